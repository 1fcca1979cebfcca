"""Findings on small floats, codebooks and presets are sensible, or there are none."""

import math

import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc

pytestmark = pytest.mark.filterwarnings("ignore")
FORMATS = [*(name for name in qc.FLOATS if name not in ("e8m0", "bf16")), *qc.CODEBOOKS, "float(3,2)"]


def normal(shape=(16, 64), seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def found(x, text):
    scheme = text if isinstance(text, qc.Scheme) else qc.Scheme.parse(text)
    return {finding.kind: finding for finding in qc.diagnose(qc.apply(x, scheme))}


@in_parts(3)
@for_each("granularity", some(["per_channel", "per_tensor", "per_flat_group(64)", "per_group(32)"]))
@for_each("name", some(FORMATS, 3))
def test_nothing_of_healthy_tensors(name, granularity, part):
    """But with two or three values, a range up to the largest element leaves almost nothing of a normal tensor."""
    for seed in part(range(3)):
        kinds = set(found(normal(seed=seed), f"{name} {granularity}"))
        few = {"clips_too_little", "better_scheme"}
        assert kinds <= (few if name in ("ternary", "binary") else set())


@for_each("name", some(qc.PRESETS, 19))
@in_parts(3)
def test_nothing_is_wrong_with_presets_of_healthy_tensors(name, part):
    for seed in part(range(3)):
        kinds = found(normal((4, 256), seed), qc.PRESETS[name])
        if qc.PRESETS[name].convention.scale.symmetric_scale == "amax_over_half_range":
            kinds.pop("ties", None)  # in each group -max|x| is -7.5 scales, a tie that the rule itself makes
        if qc.PRESETS[name].format == qc.CODEBOOKS["ternary"]:
            kinds.pop("clips_too_little", None)
        assert not kinds


ODD = {
    "zeros": torch.zeros(8, 256),
    "constant": torch.full((8, 256), -3.0),
    "steps": normal((8, 256)).round(),
    "sparse": normal((8, 256)) * (normal((8, 256), 1) > 1.5),
    "denormals": normal((8, 256)) * 1e-41,
    "ends": normal((8, 256)).sign() * 3e38,
    "one": torch.tensor(0.7),
    "outlier": normal((8, 256)).index_put((torch.tensor(3), torch.tensor(5)), torch.tensor(1e4)),
}


@for_each("tensor", ODD)
@for_each("name", some([*qc.PRESETS, *FORMATS, "e8m0", "bf16"], 53))
def test_odd_tensors_give_whole_sentences_with_real_numbers(name, tensor):
    scheme = qc.PRESETS.get(name) or qc.Scheme.parse(name)
    try:
        result = qc.apply(ODD[tensor], scheme)
    except qc.QuantError:
        return
    for finding in qc.diagnose(result):
        assert finding.sentence.endswith(".")
        assert "nan" not in finding.sentence
        assert "inf is" not in finding.sentence
        if finding.fix is not None:
            assert finding.gain is not None
            assert finding.gain.after != finding.gain.before
            assert math.isfinite(finding.gain.before) or finding.gain.before == -math.inf


@for_each("name", some(["e2m1", "e4m3fn", "nf4", "ternary"]))
def test_clipping_by_a_narrow_range_is_fixed(name):
    x = normal()
    x[3, 5] = 50.0
    finding = found(x, f"{name} per_channel percentile(95)")["clipped_too_much"]
    after = qc.report(qc.apply(x, finding.fix)).sqnr_db
    # the sums are in another order
    assert after == pytest.approx(finding.gain.after, rel=1e-12)
    assert after > finding.gain.before
    assert "clipped_too_much" not in found(x, finding.fix)


@for_each("name", some(FORMATS, 9))
def test_zeros_constants_and_subnormals_are_named(name):
    x = normal()
    x[2] = 0.0
    row = (((2, 3), (0, x.shape[1])),)
    assert found(x, f"{name} per_channel")["zero_block"].boxes == row
    x[2] = 4.0
    assert found(x, f"{name} per_channel")["constant_block"].facts["value"] == 4
    x[2] = normal((64,)) * 1e-40
    tiny = found(x, f"{name} per_channel")["tiny_block"]
    assert tiny.facts["scale"] < torch.finfo(torch.float32).tiny


def test_what_a_format_cannot_hold_is_named():
    x = torch.tensor([[1.0, -2.0, 3.0]])
    finding = found(x, "e8m0")["nan"]
    assert finding.severity == "error"
    assert finding.facts == {"elements": 1, "tensor": "x̂", "at": (0, 1), "value": -2}
    assert finding.boxes == (((0, 1), (1, 2)),)
    assert "nan" not in found(x.abs(), "e8m0")


def test_a_format_as_wide_as_float32_needs_no_scale():
    x = normal() / 16
    assert "Set the scale to 1." in found(x, "bf16")["tiny_block"].sentence
    assert found(x, "bf16 given(1)") == {}
    # 2^100 or more
    for bias, wide in ((27, True), (28, False)):
        assert ("Set the scale to 1." in found(x * 1e-10, f"float(7, 3, bias={bias})")["tiny_block"].sentence) == wide


def test_scales_with_a_sign_are_not_subnormal():
    """ggml gives a block's scale the sign of its extreme element."""
    x = normal((4, 256))
    assert bool((qc.apply(x, qc.PRESETS["gguf.Q4_0"]).scale < 0).any())
    assert "tiny_block" not in found(x, qc.PRESETS["gguf.Q4_0"])


def test_zero_that_is_shifted_away():
    x = normal((4, 256)) * (normal((4, 256), 2) > 0.5)
    finding = found(x, qc.PRESETS["gguf.Q4_1"])["zero_not_exact"]
    assert finding.fix is None or float(qc.apply(x, finding.fix).dequantized[x == 0].abs().max()) == 0


@for_each(("sign", "side"), [(1, "below"), (-1, "above")])
@for_each(("fmt", "wasted", "of"), [("e2m1", 7, 15), ("e4m3fn", 126, 253)])
def test_0_is_on_neither_side(fmt, wasted, of, sign, side):
    x = sign * torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
    (found,) = [f for f in qc.diagnose(qc.apply(x, qc.Scheme.parse(f"{fmt} per_channel(0)"))) if f.kind == "one_sided"]
    assert [found.facts[name] for name in ("unused", "codes", "side")] == [wasted, of, side]
