"""Libraries compared on a tensor in half precision: the dtype in which each computes is among the reasons."""

import itertools

import torch
from grid import for_each
from parts import in_parts, some_rows

import quantcore as qc
from quantcore.tensors import Generated, generate

LIBRARIES = ("textbook", "torch.fake_quantize", "torchao", "compressed_tensors", "brevitas", "onnx")
DTYPES = (torch.bfloat16, torch.float16)


def compared(dtype, text, a, b):
    x = torch.from_numpy(generate(Generated("normal", (16, 64)))).to(dtype)
    return qc.compare(x, qc.Scheme.parse(text), qc.CONVENTIONS[a], qc.CONVENTIONS[b])


@for_each(
    ("text", "dtype"),
    some_rows(list(itertools.product(["int8 per_channel(0)", "uint8 asymmetric per_channel(0)"], DTYPES)), 6),
)
@in_parts(3)
def test_every_code_that_differs_has_a_reason(dtype, text, part):
    for a, b in part(itertools.combinations(LIBRARIES, 2)):
        try:
            found = compared(dtype, text, a, b)
        except qc.QuantError:
            continue
        assert found.count == int((found.a.codes != found.b.codes).sum())
        assert sum(reason.count for reason in found.reasons) == found.count
        for reason in found.reasons:
            parameters = {"scale", "zero_point"} & set(reason.ingredients)
            if "brevitas" not in (a, b):  # whose choices matter in combination only
                assert bool(reason.choices) == bool(parameters), (a, b, reason)
            assert found.reason_at(reason.index).ingredients == reason.ingredients


@for_each("dtype", DTYPES)
def test_a_reason_names_both_dtypes(dtype):
    name = str(dtype).removeprefix("torch.")
    found = compared(dtype, "int8 per_channel(0)", "textbook", "torchao")
    of_codes = [reason for reason in found.reasons if reason.ingredients == ("coding_dtype",)]
    of_scale = [reason for reason in found.reasons if reason.choices == ("scale_precision",)]
    assert all(f"codes are computed, float32 against {name}" in reason.sentence for reason in of_codes)
    assert all(f"(the precision of the scale, float32 against {name})" in reason.sentence for reason in of_scale)
    if dtype == torch.bfloat16:
        assert of_codes
        assert of_scale


def test_a_library_that_computes_in_float32_differs_from_the_textbook_as_in_float32():
    """The value alone has the dtype of x."""
    for dtype in DTYPES:
        found = compared(dtype, "int8 per_channel(0)", "textbook", "torch.fake_quantize")
        x = found.a.x
        again = qc.compare(x, found.a.scheme, qc.TEXTBOOK, qc.CONVENTIONS["torch.fake_quantize"])
        assert torch.equal(found.differs, again.differs)
        assert [r.sentence for r in found.reasons] == [r.sentence for r in again.reasons]
