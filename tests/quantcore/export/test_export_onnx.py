"""The exported ONNX file, run by onnxruntime, gives the result's codes and x̂."""

import itertools
import re
import sys
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.export import inputs_of, to_onnx

SHAPES = {
    (): ["per_tensor"],
    (7,): ["per_tensor", "per_channel(0)", "per_group(3)", "per_group(7)"],
    (1, 5): ["per_channel(0)", "per_channel(1)", "per_tensor"],
    (6, 10): [
        "per_tensor",
        "per_channel(0)",
        "per_channel(-1)",
        "per_group(5)",
        "per_group(4)",
        "per_group(4,axis=0)",
        "per_group(1)",
        "per_block([2,5])",
        "per_block([4,3])",
        "per_block([-1,4])",
        "per_block([2,-1])",
        "per_flat_group(20)",
        "per_flat_group(5)",
        "per_flat_group(7)",
    ],
    (3, 4, 6): ["per_tensor", "per_channel(1)", "per_group(3)", "per_group(6)", "per_block([2,3,-1])"],
    (2, 3, 4, 5): ["per_channel(2)", "per_block([1,2,-1,3])"],
}
FORMATS = [
    "int2",
    "uint2",
    "int3",
    "int4",
    "uint4",
    "uint5",
    "int8",
    "uint8",
    "int8n",
    "int12",
    "int16",
    "uint16",
]
SETTINGS = ["min_max", "percentile(95)", "given(0.3,1)"]


def sample(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 2 + 0.3


def run(data, x):
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return session.run(["codes", "dequantized"], {"x": x.numpy()})


def check(result):
    codes, x_hat = run(to_onnx(result), result.x)
    np.testing.assert_array_equal(codes, result.codes.numpy())
    assert x_hat.tobytes() == result.dequantized.numpy().tobytes()


@for_each("fmt", some(FORMATS))
@for_each("laid_out", some(((s, g) for s, all_g in SHAPES.items() for g in all_g), 17))
def test_onnxruntime_gives_the_same(laid_out, fmt):
    shape, granularity = laid_out
    """Every type and granularity; a format narrower than its type only where nothing is clipped."""
    narrower = fmt not in ("int2", "uint2", "int4", "uint4", "int8", "uint8", "int16", "uint16")
    for symmetry, setting in itertools.product(["symmetric", "asymmetric"], SETTINGS):
        if narrower and setting != "min_max":
            continue
        check(qc.apply(sample(shape), qc.Scheme.parse(f"{fmt} {symmetry} {granularity} {setting}")))


@for_each("convention", ["onnxruntime", "onnx", "aimet.Quantize", "quanto", "torchao", "brevitas"])
def test_other_conventions_go_out_where_their_codes_agree(convention):
    """Whichever rule gave the parameters, QuantizeLinear uses them as they are."""
    fmt = "int8n" if convention == "brevitas" else "int8"
    check(qc.apply(sample((6, 10), 3), qc.Scheme.parse(f"{fmt} per_channel {convention}")))


@for_each(
    ("x", "text", "count", "words"),
    [
        # the kernels differ at a tie: in float32, 2.25 / 0.3 is below 7.5 and 2.25 * (1 / 0.3) is 7.5
        (
            [2.25, 0.3, -1.0],
            "int8 given(0.3) torchao",
            1,
            "computes round(x / s) + z, but torchao computes round(x · (1/s)) + z",
        ),
        (
            [0.125, 0.375, -0.125],
            "int8 given(0.25,1) compressed_tensors",
            3,
            "compressed_tensors computes round(x / s + z)",
        ),
        (
            [9.0, 3.0, -9.0],
            "int4 given(1) textbook(overflow=wrap)",
            2,
            "clamps, but these codes wrap around",
        ),
        ([9.0, 3.0, -9.0], "int3 given(1)", 2, "clamps to -8..7, but these codes are -4..3"),
        ([0.6, 1.0, 1.4], "int8 given(1) textbook(rounding=floor)", 1, "the rounding here is floor"),
    ],
)
def test_other_codes_are_refused_with_their_number(x, text, count, words):
    result = qc.apply(torch.tensor(x), qc.Scheme.parse(text))
    with pytest.raises(qc.QuantError, match=f"^{count} of 3 codes would differ") as error:
        to_onnx(result)
    assert words in str(error.value)


def test_a_scale_of_0_is_refused():
    x = torch.tensor([[1.0, -2.0], [0.5, -3.0], [1000.0, 20.0]])
    result = qc.apply(x, qc.Scheme.parse("int8 per_channel(0) scales(int4)"))
    with pytest.raises(qc.QuantError, match=r"4 of 6 codes would differ, because .*divides by a scale of 0"):
        to_onnx(result)
    check(qc.apply(x, qc.Scheme.parse("int8 per_channel(0) scales(int16)")))


def test_the_number_of_codes_that_differ_is_what_onnxruntime_gives():
    x = torch.tensor([2.25, 0.3, -1.0, 6.75, -2.25])
    scheme = qc.Scheme.parse("int8 given(0.3)")
    codes, _ = run(to_onnx(qc.apply(x, scheme)), x)
    by_torchao = qc.apply(x, qc.Scheme.parse("int8 given(0.3) torchao"))
    differ = int((codes != by_torchao.codes.numpy()).sum())
    assert differ > 0
    with pytest.raises(qc.QuantError, match=f"^{differ} of 5 codes would differ"):
        to_onnx(by_torchao)


@pytest.mark.filterwarnings("ignore:1 element becomes NaN")
def test_nan_and_infinity_go_out_where_the_codes_agree():
    x = torch.tensor([[np.nan, 1.0, -np.inf, np.inf]])
    check(qc.apply(x, qc.Scheme.parse("int8 given(0.1,3) onnxruntime")))
    with pytest.raises(qc.QuantError, match="1 of 4 codes would differ"):  # NaN becomes 0 there
        to_onnx(qc.apply(x, qc.Scheme.parse("int8 given(0.1,3) torchao")))


@for_each(
    ("text", "words"),
    [
        ("uint4 asymmetric hqq", "needs an integer zero_point, but that of hqq is a float"),
        ("int8 given(0.5,200)", "needs a zero_point of the same type as the codes, -128..127"),
    ],
)
def test_what_quantizelinear_does_not_take(text, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = qc.apply(sample((4, 6)), qc.Scheme.parse(text))
    with pytest.raises(qc.QuantError, match=re.escape(words)):
        to_onnx(result)


@for_each("missing", ["onnx", "onnx.helper"])
def test_without_onnx_one_sentence_says_how_to_install_it(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "onnx.helper", raising=False) if missing == "onnx" else None
    with pytest.raises(qc.QuantError, match=re.escape(f"pip install onnx=={onnx.__version__}")):
        to_onnx(qc.apply(sample((4, 6)), qc.Scheme()))


def test_file_says_its_scheme():
    scheme = qc.Scheme.parse("int4 asymmetric per_group(5)")
    model = onnx.load_from_string(to_onnx(qc.apply(sample((6, 10)), scheme)))
    assert {p.key: p.value for p in model.metadata_props} == {"scheme": str(scheme)}


@for_each(
    ("shape", "text", "attributes", "parameters"),
    [
        ((6, 10), "per_tensor", {}, ()),
        ((6, 10), "per_channel(1)", {"axis": 1}, (10,)),
        ((6, 10), "per_group(4)", {"axis": 1, "block_size": 4}, (6, 3)),
        ((6, 10), "per_block([2,5])", {"axis": 1, "block_size": 5}, (6, 2)),
        ((6, 10), "per_block([4,3])", {"axis": 0, "block_size": 4}, (2, 10)),
        ((3, 4, 6), "per_group(6)", {"axis": 2, "block_size": 6}, (3, 4, 1)),
        ((1, 5), "per_channel(0)", {}, ()),
    ],
)
def test_layout_is_the_shortest_that_quantizelinear_knows(shape, text, attributes, parameters):
    (scale, zero_point), found = inputs_of(qc.apply(sample(shape), qc.Scheme.parse(f"int8 {text}")))
    assert found == attributes
    assert scale.shape == zero_point.shape == parameters
