"""The nearest scheme that a library supports, what the library does differently, and its arithmetic in steps."""

import itertools
import warnings
from dataclasses import replace

import golden_cases as golden
import numpy as np
import pytest
import torch
from grid import for_each
from parts import in_parts, some

import quantcore as qc
from quantcore.conventions import KERNELS
from quantcore.scheme import unsupported_format

SCHEMES = [
    "int4",
    "int5 asymmetric",
    "uint8 symmetric",
    "int8n per_channel(1)",
    "int2 per_group(3)",
    "uint16 asymmetric per_block([2,3])",
]


@in_parts(7)
def test_a_format_that_is_ruled_out_is_refused_at_every_granularity(part):
    """Match skips such formats without looking at granularities."""
    places = [
        ("", (8, 16)),
        ("per_channel(1)", (8, 16)),
        ("per_group(4)", (8, 16)),
        ("per_block([2,3])", (4, 6)),
        ("", ()),
    ]
    formats = ["int4", "int8", "int8n", "uint8", "uint2", "int16", "e4m3fn", "nf4"]
    ruled_out = 0
    every = itertools.product(qc.CONVENTIONS, formats, ("symmetric", "asymmetric"))
    for name, text, symmetry in part(every):
        schemes = [(qc.Scheme.parse(f"{text} {symmetry} {place} {name}"), shape) for place, shape in places]
        if unsupported_format(schemes[0][0]):
            ruled_out += 1
            assert all(qc.unsupported_reason(scheme, shape) for scheme, shape in schemes), (name, text, symmetry)
    assert ruled_out > len(part(range(100)))
    assert unsupported_format(qc.Scheme.parse("int4 bitsandbytes.int8_vectorwise"))
    assert not unsupported_format(qc.Scheme.parse("int4 asymmetric textbook"))


@for_each("name", qc.INTEGER_CONVENTIONS)
@for_each("text", some(SCHEMES, 3))
@for_each("shape", some([(8, 16), (4, 6, 10), (7,), ()], 3))
def test_nearest_scheme_is_taken(name, text, shape):
    scheme = qc.Scheme.parse(f"{text} {name}")
    try:
        sentence = qc.unsupported_reason(scheme, shape)
    except qc.QuantError:  # the granularity does not fit the shape at all
        with pytest.raises(qc.QuantError):
            qc.nearest_supported(scheme, shape)
        return
    other = qc.nearest_supported(scheme, shape)
    assert (other == scheme) == (sentence is None)
    if other is None:
        assert (name, shape) == ("torch.quantize_per_channel", ())
        return
    assert qc.unsupported_reason(other, shape) is None
    assert other.convention == scheme.convention
    assert qc.apply(torch.randn(shape), other).codes.shape == shape


@for_each(
    ("text", "other"),
    [
        ("int5 onnxruntime", "int4 onnxruntime"),
        ("int7 onnxruntime", "int8 onnxruntime"),
        ("int4 per_group(5) torchao", "int4 per_group(4) torchao"),
        ("int8 brevitas", "int8n brevitas"),
        ("int4 hqq", "uint4 asymmetric hqq"),
        ("uint4 asymmetric compressed_tensors", "int4 asymmetric compressed_tensors"),
        ("int8 per_channel(1) compressed_tensors", "int8 per_channel(0) compressed_tensors"),
        ("int4 torch.quantize_per_channel", "int8 per_channel(0) torch.quantize_per_channel"),
    ],
)
def test_fewest_changes(text, other):
    assert qc.nearest_supported(qc.Scheme.parse(text), (8, 16)) == qc.Scheme.parse(other)


@for_each(
    ("text", "phrases"),
    [
        ("int8", []),
        ("int8 given(0.1) torchao", ["codes are round(x · (1/s))", "NaN becomes code 0"]),
        ("int8 given(0.1,zero_point=1) torchao", ["codes are round(x · (1/s)) + z", "NaN becomes code 0"]),
        ("uint4 symmetric torch.fake_quantize", ["the zero point is 7"]),
        ("uint8 symmetric torch.fake_quantize", ["the scale is max|x| / 127.5"]),
        ("uint8 symmetric aimet.2024.Quantize", ["the zero point is 0"]),
        ("int8 onnxruntime", ["a scale below 2^-126 is replaced by 1", "a scale of NaN is refused"]),
        ("int4 onnxruntime", ["the scale is 2 · max|x| / 15", "the scale is computed in float64"]),
        ("int8 asymmetric per_group(2) onnx", ["the zero point is computed in float64"]),
        ("int8 asymmetric compressed_tensors", ["the zero point is rounded after the subtraction", "a scale of 0 is replaced by 2^-23"]),
        ("uint8 asymmetric brevitas", ["the range is extended down to 0, but not up to 0"]),
        ("uint4 asymmetric hqq", ["the range need not include 0", "the zero point is -low · (1/s), not rounded"]),
        ("int2 aimet.Quantize", ["the scale is (1 · d + 2 · d) / 3, where d is the larger of high / 2 and -low / 2"]),
    ],
)  # fmt: skip
def test_differences(text, phrases):
    said = qc.differences(qc.Scheme.parse(text))
    assert set(phrases) <= set(said)
    assert bool(said) == bool(phrases)


@for_each("rule", ["amax_over_half_range", "max_of_sides", "signed_end", "full_range", "aligned_grid"])
def test_float64_is_told_where_it_changes_a_scale(rule):
    """One division rounds to the same float32 as in float64, which several operations don't."""
    x = np.random.default_rng(3).normal(size=(400, 4)).astype(np.float32)
    x[0] = 3e38
    own = qc.TEXTBOOK.changed(symmetric_scale=rule)
    schemes = [replace(qc.Scheme.parse("int8 per_channel"), convention=c) for c in (own, own.changed(scale_precision="float64"))]
    scales = [qc.apply(x, scheme).scale for scheme in schemes]
    said = "the scale is computed in float64" in qc.differences(schemes[1])
    assert said == (not torch.equal(*scales))


@in_parts(10)
@for_each("name", [n for n in qc.INTEGER_CONVENTIONS if golden.cases(n)])
def test_trace_is_what_the_library_computed(name, part):
    """An element's trace ends in the recorded code, and each step follows from the previous one."""
    kernels = {}
    for case in part([c for c in golden.cases(name) if "raises" not in c][::15]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = qc.apply(golden.array(case["x"]), golden.scheme_of(case))
        codes, scale = golden.array(case["codes"]), golden.array(case["scale"])
        for index in itertools.islice(np.ndindex(codes.shape), 0, None, max(1, codes.size // 9)):
            trace = qc.trace(result, index)
            if codes[index] in (-(1 << 31), -(1 << 63)):
                continue
            kernel = KERNELS[result.scheme.rules.coding.kernel]
            kernels[kernel.formula] = kernel
            assert trace.code == codes[index]
            assert np.float32(trace.scale) == scale[trace.block] or np.isnan(scale[trace.block])
            before = trace.quotient if trace.summed is None else trace.summed
            assert trace.rounded == np.round(np.float32(before)) or np.isnan(trace.rounded)
            if trace.overflow is None and not np.isnan(trace.shifted):
                assert trace.code == trace.shifted
            if trace.overflow == "saturate":
                assert trace.code in (result.scheme.format.qmin, result.scheme.format.qmax)
            assert [s.value for s in trace.steps()][-3] == str(trace.code)
    assert kernels


def test_steps_stand_in_the_kernel_s_order():
    x = torch.tensor([[1.3, -2.2, 0.7]])

    def names(text):
        return [s.name for s in qc.trace(qc.apply(x, qc.Scheme.parse(text)), (0, 0)).steps()[3:-3]]

    assert names("uint8 asymmetric onnxruntime") == ["x / s", "round", "+ z"]
    assert names("uint8 asymmetric torchao") == ["1/s", "x · (1/s)", "round", "+ z"]
    assert names("int8 asymmetric compressed_tensors") == ["x / s", "+ z", "round"]
    assert names("uint8 asymmetric per_channel torch.quantize_per_channel") == [
        "1/s",
        "x · (1/s)",
        "+ z",
        "round",
    ]
    assert names("uint8 asymmetric torch.quantize_per_tensor") == ["1/s", "x · (1/s) + z", "round"]
