"""Every kind of finding for every family of formats: what is planted is found, or a table says why it can't occur."""

import itertools

import numpy as np
import pytest
import torch
from claims import CLAIMS, check
from grid import for_each
from parts import in_parts, some_rows

import quantcore as qc
from quantcore.diagnosis import FAMILIES, KINDS, family_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RNG = np.random.default_rng(5)
NORMAL = RNG.standard_normal((16, 64))


def changed(places, value, x=NORMAL):
    x = x.copy()
    x[places] = value
    return x


TENSORS = {
    "normal": NORMAL,
    "small": NORMAL * 1e-3,
    "tiny": NORMAL * 1e-9,
    "subnormal": NORMAL * 1e-40,
    "relu": np.abs(NORMAL),
    "negative": -5 - RNG.random((16, 64)),
    "sparse": NORMAL * (RNG.random(NORMAL.shape) < 0.4),
    "channel": NORMAL * np.where(np.arange(64) == 5, 300, 1),
    "element": changed((3, 5), 3000),
    "long tails": RNG.laplace(size=(128, 256)),
    "few large": RNG.standard_normal((8, 256)) * np.where(np.arange(256) % 128 == 0, 4, 1),
    "halves": np.round(NORMAL * 2) / 2,
    "dead row": changed(2, 0),
    "constant row": changed(2, 0.7),
    "two numbers": np.sign(NORMAL) * 0.3,
    "quarters": np.round(NORMAL * 4) / 4,
    # rows of 1, 1/2, 1/4 and 1/8, with equal power at each size
    "steep": np.tile(RNG.standard_normal((85, 512)), 2) * np.repeat([1, 0.5, 0.25, 0.125], [1, 4, 16, 64])[:, None],
    "with NaN": changed((1, 2), np.nan),
}
GRID = "codebook([-4, -3, -2, -1, 0, 1, 2, 3, 4])"
HQQ, MIN = "uint4 asymmetric per_channel(0) hqq", "uint4 asymmetric per_group(32) gguf.Q4_1"
# kind -> for each of `FAMILIES` that can have it, the name of a tensor and a scheme
PLANTED = {
    "nan": [("with NaN", "int8 torchao"), ("with NaN", HQQ), ("with NaN", MIN), ("normal", "e8m0"),
            ("with NaN", "nf4 per_flat_group(64) bitsandbytes.4bit")],
    "scale_out_of_range": [("tiny", "int8 per_channel scales(fp16 given(1))"), ("small", f"{HQQ} scales(e4m3fn given(1))"),
                           ("tiny", f"{MIN} scales(fp16 given(1))"), ("small", "e2m1 per_group(16) scales(e4m3fn given(1))"),
                           ("tiny", "nf4 per_group(16) scales(fp16 given(1))")],
    "wrapped": [("normal", "int8 given(0.01) textbook(overflow=wrap)"), ("normal", "uint4 asymmetric fixed(-1, 1) hqq(overflow=wrap)"),
                ("normal", "uint4 asymmetric per_group(32) fixed(-1, 1) gguf.Q4_1(overflow=wrap)")],
    "zero_point_outside": [("normal", "int8 given(0.1, zero_point=200)")],
    "zero_point_clamped": [("negative", "uint8 asymmetric brevitas")],
    "negatives_lost": [("normal", "uint8 symmetric aimet.2024.Quantize"), ("normal", "uint4 asymmetric given(0.1) hqq"),
                       ("normal", "uint4 asymmetric per_group(32) given(0.1) gguf.Q4_1"), ("normal", "float(4, 3, sign=dropped)"),
                       ("normal", "codebook([0, 1, 2, 3])")],
    "zero_not_exact": [("sparse", "int8 torchao.nf4.scales"), ("sparse", HQQ), ("sparse", MIN),
                       ("sparse", "float(3, 2, subnormals=False)"), ("sparse", "iq4_nl")],
    "one_sided": [("relu", "int4"), ("relu", "e2m1"), ("relu", "nf4")],
    "outlier_channel": [("channel", "int4"), ("channel", "uint4 asymmetric per_channel(0) hqq"),
                        ("channel", MIN), ("channel", "e2m1"), ("channel", "nf4")],
    "outlier_element": [("element", "int4"), ("element", "uint4 asymmetric hqq"), ("element", "uint4 asymmetric per_group(64) gguf.Q4_1"),
                        ("element", "e2m1"), ("element", "nf4")],
    "clipped_too_much": [("normal", "int8 fixed(-1, 1)"), ("normal", "uint4 asymmetric fixed(-0.5, 0.5) hqq"),
                         ("normal", "uint4 asymmetric per_group(32) fixed(-0.5, 0.5) gguf.Q4_1"),
                         ("normal", "e4m3fn fixed(-1, 1)"), ("normal", "nf4 fixed(-0.5, 0.5)")],
    "clips_too_little": [("long tails", "int4"), ("long tails", "uint4 asymmetric hqq"),
                         ("few large", "uint2 asymmetric per_group(256) gguf.Q4_1"), ("halves", "e2m1"), ("normal", "ternary")],
    "better_scheme": [("normal", "int4 fixed(-60, 60)"), ("halves", HQQ), ("halves", "uint4 asymmetric per_group(64) gguf.Q4_1"),
                      ("channel", "e2m1"), ("normal", "ternary fixed(-9, 9)")],
    "codes_unused": [("small", "int8 fixed(-1, 1)"), ("normal", "uint4 asymmetric fixed(-100, 100) hqq"),
                     ("normal", "uint4 asymmetric per_group(32) fixed(-100, 100) gguf.Q4_1"), ("small", "e4m3fn given(100)"),
                     ("normal", "nf4 fixed(-100, 100)")],
    "per_channel": [("steep", "int8"), ("steep", "uint8 asymmetric hqq"), ("steep", "e2m1"), ("steep", "nf4")],
    "small_groups": [("normal", "int4 per_group(4)"), ("normal", "uint4 asymmetric per_group(4) hqq"),
                     ("normal", "uint4 asymmetric per_group(4) gguf.Q4_1"), ("normal", "e2m1 per_group(4)"), ("normal", "nf4 per_group(4)")],
    "tiny_block": [("subnormal", "int8"), ("tiny", HQQ), ("subnormal", MIN), ("subnormal", "e4m3fn"), ("subnormal", "nf4")],
    "zero_block": [("dead row", "int8 per_channel(0)"), ("dead row", HQQ), ("dead row", MIN), ("dead row", "e2m1 per_channel(0)"),
                   ("dead row", "nf4 per_channel(0)")],
    "constant_block": [("constant row", "int8 per_channel(0)"), ("constant row", HQQ), ("constant row", MIN),
                       ("constant row", "e2m1 per_channel(0)"), ("constant row", "nf4 per_channel(0)")],
    "spare_bits": [("two numbers", "int8"), ("two numbers", HQQ), ("two numbers", MIN), ("two numbers", "e4m3fn"), ("two numbers", "nf4")],
    "half_precision": [(torch.from_numpy(NORMAL).bfloat16(), "int8 per_channel(0) torchao")],
    "ties": [("quarters", "int8 given(0.5)"), ("quarters", HQQ), ("quarters", MIN), ("quarters", "e2m1 given(1)"), ("quarters", f"{GRID} given(0.5)")],
}  # fmt: skip


def findings(name, scheme):
    x = TENSORS[name] if isinstance(name, str) else name
    x = x if isinstance(x, torch.Tensor) else np.asarray(x, np.float32)
    result = qc.apply(x, qc.Scheme.parse(scheme))
    found = qc.diagnose(result)
    for finding in found:
        check(result, finding)
    return {finding.kind: finding for finding in found}


def test_every_kind_is_planted_in_every_family_or_impossible():
    assert set(PLANTED) == set(KINDS) == set(CLAIMS)
    for kind, cases in PLANTED.items():
        possible = [family for family in FAMILIES if family not in KINDS[kind].impossible]
        assert {family_of(qc.Scheme.parse(scheme)) for _, scheme in cases} == set(possible), kind
        assert len(cases) == len(possible)


@in_parts(38)
@for_each("kind", PLANTED)
def test_what_is_planted_is_found_in_every_family(kind, part):
    for name, scheme in part(PLANTED[kind]):
        assert kind in findings(name, scheme), (name, scheme)


@in_parts(47)
@for_each("family", FAMILIES)
def test_what_is_impossible_is_not_found(family, part):
    """In all tensors and schemes that are planted for other kinds; the kinds are asked even so."""
    impossible = [kind for kind in KINDS if family in KINDS[kind].impossible]
    assert all(len(KINDS[kind].impossible[family]) > 10 for kind in impossible)
    schemes = {s for cases in PLANTED.values() for _, s in cases if family_of(qc.Scheme.parse(s)) == family}
    for scheme, name in part(itertools.product(sorted(schemes), ("normal", "relu", "negative"))):
        if "256" not in scheme:
            assert not set(impossible) & set(findings(name, scheme))


@for_each("bad", [np.nan, np.inf, -np.inf])
def test_what_can_be_told_of_tensors_with_nan(bad):
    """Blocks without NaN are judged as ever."""
    x = changed(slice(3, 5), [[0.0], [0.7]])
    x[1, 2] = bad
    found = findings(x, "int8 per_channel(0) torchao")
    assert {"nan", "zero_block", "constant_block"} <= set(found)
    assert not set(found) & {name for name, kind in KINDS.items() if kind.finite}
    assert all(f.fix is None for f in found.values())


SCALES = [("e4m3fn given(1)", 1e-4, False), ("e4m3fn given(1)", 1e5, True), ("fp16 given(1)", 1e-9, False), ("fp16 given(1)", 1e7, True),
          ("fp16(saturate=False) given(1)", 1e8, True), ("e2m1 given(1)", 1e-3, False), ("e2m1 given(1)", 1e3, True),
          ("nf4 given(1)", 100.0, True), ("int8 given(1)", 1e-2, False), ("uint8 given(1)", 1e4, True),
          ("uint6 per_group(2) scales(fp16 given(1))", 1e-9, False), ("e5m2 given(1)", 1e-7, False)]  # fmt: skip


@for_each(("scales", "size", "too_large"), some_rows(SCALES, 2))
def test_scales_that_their_format_cannot_hold(scales, size, too_large):
    x = (NORMAL * size).astype(np.float32)
    result = qc.apply(x, qc.Scheme.parse(f"int4 per_group(32) scales({scales})"))
    (finding,) = [f for f in qc.diagnose(result) if f.kind == "scale_out_of_range"]
    check(result, finding)
    facts = finding.facts
    assert (facts["too_large"], facts["of_blocks"]) == (too_large, 32)
    assert facts["blocks"] >= 24
    wanted = np.abs(x.reshape(16, 2, 32)).max(2) / np.float32(7)
    assert facts["wanted"] in wanted
    exact = (x - qc.apply(x, qc.Scheme.parse("int4 per_group(32)")).dequantized.numpy()).astype(float)
    if facts["blocks"] == 32:
        assert facts["sqnr_exact"] == pytest.approx(
            10 * np.log10((x.astype(float) ** 2).sum() / (exact**2).sum()), abs=0.01
        )


@for_each("std", [0.01, 0.005, 0.001])
def test_a_second_level_keeps_what_e4m3_scales_lose(std):
    x = (NORMAL * std).astype(np.float32)
    result = qc.apply(x, qc.PRESETS["torchao.nvfp4.1level"])
    finding = qc.diagnose(result)[0]
    assert finding.kind == "scale_out_of_range"
    assert finding.fix == qc.PRESETS["torchao.nvfp4"]
    assert finding.facts["blocks"] == finding.facts["of_blocks"] == 64
    assert finding.severity == ("error" if std == 0.001 else "warning")


# Random cases

FORMATS = [
    "int2", "int4", "int8", "int4n", "uint4 asymmetric", "uint8 asymmetric", "int8 asymmetric", "uint8", "int16", "e4m3fn", "e5m2",
    "e2m1", "e2m3", "e4m3fnuz", "bf16", "fp16", "e8m0", "e8m0(sign=dropped)", "float(4, 3, sign=dropped)", "nf4", "ternary",
    "binary", "iq4_nl", "log2_4", "fp4_bitsandbytes", "codebook([0, 1, 2, 4])",
]  # fmt: skip
GRANULARITIES = ["per_tensor", "per_channel(0)", "per_channel(1)", "per_group(4)", "per_group(16)", "per_group(32)",
                 "per_flat_group(8)", "per_flat_group(24)", "per_block([4, 8])"]  # fmt: skip
SETTINGS = [*["min_max"] * 5, "percentile(99)", "fixed(-100, 100)", "fixed(-0.5, 0.5)", "fixed(1, 2)", "given(0.1)", "given(1)",
            "given(50)", "given(0.01, zero_point=3)", "given(0.5, zero_point=300)", "min_mse"]  # fmt: skip
CONVENTIONS = [*["textbook"] * 12, *["textbook(overflow=wrap)"] * 2, *qc.CONVENTIONS]
STORED = [*[""] * 5, "scales(e4m3fn given(1))", "scales(fp16 given(1))", "scales(e8m0 given(1))", "scales(int8)", "scales(e4m3fn)",
          "scales(int8 per_flat_group(4))"]  # fmt: skip


def random_tensor(rng):
    shape = [(16, 64), (8, 32), (4, 256), (64,), (3, 200), (2, 4, 32), (40, 40), (5, 7)][rng.integers(8)]
    x, case = rng.standard_normal(shape), rng.integers(12)
    row = (slice(0, 2),) if len(shape) > 1 else (slice(0, 5),)
    match case:
        case 0 | 1:
            x = np.abs(x) * (1 - 2 * case)
        case 2:
            x = x**3
        case 3:
            x = rng.uniform(5, 6, shape)
        case 4:
            x = np.round(x * 2) / 2
        case 5:
            x = x * (rng.random(shape) < 0.3)
        case 6:
            x.reshape(-1)[rng.integers(x.size)] = 100 * rng.choice([-1, 1])
        case 7:
            x[..., rng.integers(shape[-1])] *= 50
        case 8:
            x = 0.7 * rng.choice([1, -1], shape)
        case 9:
            x[row] = rng.choice([0.0, 3.0])
        case 10:
            x[row] *= 1e-40
        case _:
            x.reshape(-1)[rng.integers(x.size)] = rng.choice([np.nan, np.inf, 1, 2])
    return (x * 10.0 ** rng.choice([0, 0, 0, 0, -3, 3, -9, 6, -39])).astype(np.float32)


def random_scheme(rng):
    if rng.random() < 0.3:
        return qc.PRESETS[rng.choice(list(qc.PRESETS))]
    return qc.Scheme.parse(
        " ".join(rng.choice(words) for words in (FORMATS, GRANULARITIES, SETTINGS, CONVENTIONS, STORED))
    )


def random_results(seed, n):
    rng = np.random.default_rng(seed)
    while n:
        try:
            result = qc.apply(random_tensor(rng), random_scheme(rng))
        except qc.QuantError:
            continue
        n -= 1
        yield result


@in_parts(500)
def test_what_is_said_of_random_cases_is_true_and_no_fix_has_an_error(part):
    """1,000 random tensors and schemes in the slow run: every fact is recomputed, every fix diagnosed."""
    for number in part(range(1000)):
        for result in random_results((11, number), 1):
            for finding in qc.diagnose(result):
                check(result, finding)
                if finding.fix is not None:
                    fixed = qc.diagnose(qc.apply(result.x, finding.fix))
                    assert "error" not in {f.severity for f in fixed}, (finding, fixed)
