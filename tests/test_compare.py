"""Why two libraries differ: what a reason names really turns one's code into the other's."""

import itertools
import warnings

import golden_cases as golden
import pytest
import torch

import quantcore as qc
from quantcore.compare import INGREDIENTS, SETS

C = qc.CONVENTIONS
PAIRS = [
    ("int8", "onnxruntime", "torchao"),
    ("int8", "textbook", "aimet.Quantize"),
    ("int4", "torchao", "torchao.no_clipping_err"),
    ("int8 per_channel(0)", "torch.quantize_per_channel", "compressed_tensors"),
    ("uint8 asymmetric", "torch.fake_quantize", "torch.quantize_per_tensor"),
    ("int8 asymmetric per_channel(0)", "onnxruntime", "compressed_tensors"),
    ("uint8 asymmetric per_channel(0)", "brevitas", "torch.fake_quantize"),
    ("uint4 asymmetric per_channel(0)", "hqq", "torchao"),
    ("uint4 asymmetric per_channel(0)", "hqq", "hqq.round_zero"),
    ("uint8", "aimet.Quantize", "aimet.2024.Quantize"),
    ("int8 asymmetric per_group(8)", "onnxruntime", "aimet.QuantizeDequantize"),
]
INPUTS = {
    c["input"]: c["x"]
    for c in golden.cases()
    if c["input"] in ("edge8x32", "ties8x32", "student64x128", "a4x4")
}


def sample(name):
    return torch.from_numpy(golden.array(INPUTS[name]))


def substituted(result, other, ingredients):
    """A's arithmetic with B's ingredients, by way of the public `quantize` and parameters given to it."""
    scale = other.scale if "scale" in ingredients else result.scale
    zero_point = other.params.zero_point if "zero_point" in ingredients else result.params.zero_point
    scheme = other.scheme if "kernel" in ingredients else result.scheme
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return qc.quantize(result.x, scale, zero_point, scheme)


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize(("text", "a", "b"), PAIRS)
def test_every_difference_has_the_reason_that_makes_it(name, text, a, b):
    x = sample(name)
    try:
        found = qc.compare(x, qc.Scheme.parse(text), C[a], C[b])
    except qc.QuantError:
        pytest.skip("one of them refuses it")
    assert torch.equal(found.differs, found.a.codes.int() != found.b.codes.int())
    assert torch.equal(found.behind >= 0, found.differs)
    reasons = found.reasons()
    assert sum(r.count for r in reasons) == int(found.differs.sum())
    hqq = "hqq" in a + b  # keeps 1/s itself, which `quantize` is not given
    for place, ingredients in enumerate(SETS):
        cells = found.behind == place
        if cells.any() and not hqq and (found.a.params.zero_point.int() == found.a.params.zero_point).all():
            mixed = substituted(found.a, found.b, ingredients)
            assert torch.equal(mixed[cells].int(), found.b.codes[cells].int())
            for fewer in itertools.combinations(ingredients, len(ingredients) - 1):
                if fewer:
                    assert (
                        substituted(found.a, found.b, fewer)[cells].int() != found.b.codes[cells].int()
                    ).all()
    for reason in reasons:
        assert reason.ingredients in SETS
        assert set(reason.ingredients) <= set(INGREDIENTS)
        assert found.differs[reason.index]
        assert found.reason_at(reason.index).sentence == reason.sentence
        assert reason.sentence.endswith(".")
        assert a in reason.sentence
        assert b in reason.sentence
    equal = (~found.differs).nonzero()
    if len(equal):
        assert found.reason_at(tuple(equal[0].tolist())) is None


@pytest.mark.parametrize(
    ("x", "text", "a", "b", "parts"),
    [
        ([2.25], "int8 given(0.3)", "onnxruntime", "torch.fake_quantize",
         ["tie: onnxruntime rounds x / s = 7.4999995 to 7", "rounds x · (1/s) = 7.5 to 8"]),
        ([0.125, 0.375, -0.125], "int8 asymmetric given(0.25, zero_point=1)", "onnxruntime", "compressed_tensors",
         ["tie: ", "x / s = 0.5 to 0, + 1", "x / s + z = 1.5 to 2"]),
        ([-2.5] * 4, "int8", "onnxruntime", "torchao", ["scale: ", "/ 254", "/ 127.5", "-127.5 to -128"]),
        ([10.5, 11, 12, 13, 14], "uint4 asymmetric", "torchao", "hqq", ["range must include 0", "(14 - 0) / 15"]),
        ([1e-9, -1e-9, 5e-10], "int8", "torchao", "torch.fake_quantize", ["the smallest scale", "1.1920929e-07"]),
        ([float("nan"), 1.0], "int8 given(0.1)", "torchao", "torch.fake_quantize", ["no integer holds it", "torchao makes 0 of nan"]),
    ],
)  # fmt: skip
def test_reasons_in_words(x, text, a, b, parts):
    found = qc.compare(x, qc.Scheme.parse(text), C[a], C[b])
    said = " ".join(r.sentence for r in found.reasons())
    for part in parts:
        assert part in said


def test_choice_behind_is_the_one_that_does_it():
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(3))
    for text, a, b, choice in [
        ("int8", "textbook", "torchao", "symmetric_scale"),
        ("uint4 symmetric", "torchao", "torch.fake_quantize", "unsigned_symmetric_zero_point"),
        ("uint8 asymmetric per_channel(0)", "brevitas", "compressed_tensors", None),
    ]:
        try:
            found = qc.compare(x, qc.Scheme.parse(text), C[a], C[b])
        except qc.QuantError:
            continue
        choices = {c for r in found.reasons() for c in r.choices}
        assert choice in choices or choice is None


def test_table_of_libraries():
    x = sample("student64x128")
    scheme = qc.Scheme.parse("int8 per_channel(0)")
    frame = qc.library_table(x, scheme, C["onnxruntime"]).set_index("library")
    assert list(frame.index) == list(C)
    for name, row in frame.iterrows():
        own = qc.Scheme.parse(f"int8 per_channel(0) {name}")
        if row["refused"]:
            assert row["refused"] == qc.refusal(own, tuple(x.shape))
            continue
        result = qc.apply(x, own)
        assert row["scale"] == result.scale[0, 0]
        assert row["sqnr_db"] == qc.report(result).sqnr_db
        base = qc.apply(x, qc.Scheme.parse("int8 per_channel(0) onnxruntime"))
        assert row["codes that differ"] == int((result.codes != base.codes).sum())
