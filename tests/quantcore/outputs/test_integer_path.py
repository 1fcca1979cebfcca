"""Integer products and requantization: torch's _int_mm, onnxruntime's operators, and exact fractions."""

import math
import re
from fractions import Fraction

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from grid import for_each
from onnx import TensorProto, helper

import quantcore as qc

RNG = np.random.default_rng(2)
KINDS = {"u8": (np.uint8, TensorProto.UINT8, "uint8"), "s8": (np.int8, TensorProto.INT8, "int8")}
SHAPES = [(3, 1, 2), (4, 7, 5), (0, 3, 2), (2, 129, 3), (1, 1, 1)]


def codes(kind, shape, values):
    dtype = KINDS[kind][0]
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    if values == "extremes":
        return RNG.choice(np.array([least, most], dtype), shape)
    return RNG.integers(least, most + 1, shape, dtype=dtype)


def run(operator, inputs, output, domain="", **attributes):
    """The result of one operator of onnxruntime; all inputs are constants of the model but the first."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    node = helper.make_node(operator, names, ["out"], domain=domain, **attributes)
    there = {name: value for name, value in inputs.items() if value is not None}
    first, *others = there
    kind = helper.np_dtype_to_tensor_dtype(there[first].dtype)
    graph = helper.make_graph(
        [node], "one",
        [helper.make_tensor_value_info(first, kind, there[first].shape)],
        [helper.make_tensor_value_info("out", output, None)],
        [onnx.numpy_helper.from_array(np.asarray(there[name]), name) for name in others],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {first: there[first]})[0]


@for_each("values", ["any", "extremes"])
@for_each("shape", SHAPES)
def test_sums_are_torchs(shape, values):
    tokens, inputs, outputs = shape
    x, w = codes("s8", (tokens, inputs), values), codes("s8", (outputs, inputs), values)
    # a copy: with one input, _int_mm of torch 2.13 misreads a transposed view
    transposed = torch.empty((inputs, outputs), dtype=torch.int8).copy_(torch.from_numpy(w).T)
    expected = torch._int_mm(torch.from_numpy(x), transposed)
    found = qc.outputs.integer_product(x, w)
    assert torch.equal(found.accumulator, expected.long())
    assert not bool(found.overflows.any())


@for_each(("of_x", "of_w"), [("u8", "u8"), ("u8", "s8"), ("s8", "s8")])
@for_each("shape", SHAPES)
def test_zero_points_are_corrected_as_onnxruntime_does(shape, of_x, of_w):
    tokens, inputs, outputs = shape
    values = "extremes" if of_w == "u8" else "any"
    x, w = codes(of_x, (tokens, inputs), values), codes(of_w, (outputs, inputs), values)
    if of_w == "s8":
        w //= 2  # 7 bits, which no kernel saturates
    z_x, z_w = codes(of_x, (), "any"), codes(of_w, (outputs,), "any")
    expected = run(
        "MatMulInteger",
        {"x": x, "w": w.T.copy(), "z_x": np.array(z_x, x.dtype), "z_w": z_w},
        TensorProto.INT32,
    )
    found = qc.outputs.integer_product(x, w, z_x, z_w)
    np.testing.assert_array_equal(found.accumulator, expected)
    wide = (x.astype(np.int64) - int(z_x)) @ (w.astype(np.int64) - z_w[:, None].astype(np.int64)).T
    np.testing.assert_array_equal(found.exact, wide)
    np.testing.assert_array_equal(sum(found.terms.values()), wide)
    assert len(found.steps) == 5


@for_each(("of_x", "of_w"), [("u8", "u8"), ("u8", "s8"), ("s8", "s8")])
@for_each("operator", ["QLinearMatMul", "QGemm"])
@for_each("shape", [(3, 1, 2), (4, 7, 5), (2, 129, 3)])
def test_codes_of_the_output_are_onnxruntimes(shape, operator, of_x, of_w):
    tokens, inputs, outputs = shape
    scheme_x, scheme_w = (
        f"{KINDS[kind][2]} asymmetric {granularity}"
        for kind, granularity in ((of_x, "per_tensor"), (of_w, "per_channel(0)"))
    )
    x = qc.apply(RNG.standard_normal((tokens, inputs), dtype=np.float32), scheme_x)
    # 7 bits of w, which no kernel saturates
    w = qc.apply(RNG.standard_normal((outputs, inputs), dtype=np.float32), scheme_w.replace("int8", "int7"))
    bias = RNG.standard_normal(outputs, dtype=np.float32) if operator == "QGemm" else None
    of_y = f"{KINDS[of_x][2]} asymmetric per_tensor"
    found = qc.outputs.integer_layer(x, w, bias, of_y)
    dtype_x, kind, _ = KINDS[of_x]
    w_codes = w.codes.numpy().astype(KINDS[of_w][0]).T.copy()
    inputs_of = {
        "x": x.codes.numpy(), "s_x": x.scale.numpy().reshape(()), "z_x": np.array(x.zero_point.item(), dtype_x),
        "w": w_codes, "s_w": w.scale.numpy()[:, 0],
        "z_w": w.zero_point.numpy()[:, 0].astype(w_codes.dtype),
    }  # fmt: skip
    s_y = {"s_y": np.float32(found.output_scale), "z_y": np.array(found.output_zero_point, dtype_x)}
    if operator == "QGemm":
        whole = found.product.bias.numpy().astype(np.int32)
        np.testing.assert_array_equal(whole, np.rint(bias / (x.scale.item() * w.scale.numpy()[:, 0])))
        expected = run("QGemm", inputs_of | {"c": whole} | s_y, kind, "com.microsoft", alpha=1.0)
    else:
        expected = run("QLinearMatMul", inputs_of | s_y, kind)
    np.testing.assert_array_equal(found.output.codes, expected)
    y = x.dequantized.double() @ w.dequantized.double().T
    y = y if bias is None else y + torch.from_numpy(bias)
    step = (found.scale / 2).double() if bias is not None else 0
    assert bool(((found.y - y).abs() <= step + 1e-5 * y.abs().max()).all())


def test_ties_go_to_even_as_in_onnxruntime():
    x = qc.apply(np.arange(-9, 9, dtype=np.float32)[:, None], "int8 given(1)")
    w = qc.apply(np.float32([[1], [-3]]), "int8 given(1)")
    found = qc.outputs.integer_layer(x, w, None, "int8 given(2, 1)")  # every odd sum is a tie
    one, zero = np.float32(1), np.int8(0)
    expected = run(
        "QLinearMatMul",
        {"x": x.codes.numpy(), "s_x": one, "z_x": zero, "w": w.codes.numpy().T.copy(), "s_w": one, "z_w": zero,
         "s_y": np.float32(2), "z_y": np.int8(1)},
        TensorProto.INT8,
    )  # fmt: skip
    np.testing.assert_array_equal(found.output.codes, expected)


def half_away(value):
    return math.floor(value + Fraction(1, 2)) if value >= 0 else -math.floor(-value + Fraction(1, 2))


def half_up(value):
    return math.floor(value + Fraction(1, 2))


SUMS = [
    0,
    1,
    -1,
    5,
    -5,
    100,
    -100,
    12345,
    -12345,
    (1 << 31) - 1,
    -(1 << 31),
    *RNG.integers(-(1 << 31), 1 << 31, 40),
]
MULTIPLIERS = [0.5, 0.25, 2.0**-10, 0.3, 0.0123, 0.9999, 1e-7, 2.0**-31, 2.0**-40, 1e-4, 2.0**-32]


@for_each("multiplier", MULTIPLIERS)
def test_both_fixed_point_roundings_are_those_of_exact_fractions(multiplier):
    factor, shift = qc.outputs.fixed_point(multiplier)
    assert (factor, shift) == (0, 0) or (1 << 30 <= factor < 1 << 31)
    sums = torch.tensor([SUMS], dtype=torch.int64)
    once, twice = (
        qc.outputs.requantize(sums, multiplier, 0, "int16", how).unclamped[0].tolist()
        for how in ("single", "double")
    )
    for i, value in enumerate(map(int, SUMS)):
        exact = Fraction(value) * factor * Fraction(2) ** (shift - 31)
        assert once[i] == half_up(exact), value
        # gemmlowp: the upper half of twice the product, then a division by a power of two
        high = half_up(Fraction(value * factor, 1 << 31))
        assert twice[i] == half_away(Fraction(high) * Fraction(2) ** shift), value
        assert abs(once[i] - twice[i]) <= 1
    if factor:
        assert factor * 2.0 ** (shift - 31) == pytest.approx(multiplier, rel=2.0**-31)


def test_the_two_roundings_differ_by_one_where_people_report_it():
    sums = torch.arange(-(1 << 12), 1 << 12)[None]
    differ = 0
    for multiplier in (0.3, 0.5, 0.123, 1 / 3, 2.0**-3):
        once, twice, real = (
            qc.outputs.requantize(sums, multiplier, 0, "int16", how).codes.int()
            for how in ("single", "double", "float")
        )
        assert int((once - twice).abs().max()) <= 1
        assert int((once - real).abs().max()) <= 1
        differ += int((once != twice).sum())
    assert differ > 0


@for_each("multiplier", [0.0888412, 0.3, 0.5, 1.7, 1e-7])
def test_every_rounding_of_a_code_can_be_followed_in_its_lines(multiplier):
    """round(a·b) = c: each c is what the runtime's rounding makes of the a·b that is shown."""
    for total in (50, -50, 12345, 5, -5):
        for how, rounds in (("single", [half_up]), ("double", [half_up, half_away])):
            found = qc.outputs.requantize([[total]], multiplier, 7, "int16", how)
            _, *lines = found.lines(0, 0, 7)
            assert len(lines) == (2 if how == "double" and multiplier < 0.5 else 1)
            for line, rounded in zip(lines, rounds, strict=False):
                product, result = re.fullmatch(
                    r"round\((.+) = .+\)(?: \+ 7)? = (-?\d+)(?:, clamped to .*)?", line
                ).groups()
                exact = Fraction(1)
                for factor in product.split("·"):
                    base, _, power = factor.partition("^")
                    exact *= Fraction(int(base)) ** int(power or 1)
                assert rounded(exact) + 7 * (line is lines[-1]) == int(result), line
            assert int(result) == int(found.codes)


def test_a_multiplier_that_rounds_to_the_next_power_of_two():
    assert qc.outputs.fixed_point(1 - 2.0**-40) == qc.outputs.fixed_point(1.0) == (1 << 30, 1)
    assert qc.outputs.fixed_point(2.0**-34) == (0, 0)


def test_a_multiplier_per_output_and_above_one():
    sums = torch.tensor([[7, 7], [-9, -9]])
    for how in ("single", "double", "float"):
        found = qc.outputs.requantize(sums, [0.5, 3.0], 2, "int8", how)
        assert found.codes[:, 1].tolist() == [23, -25]
        assert found.codes.dtype == torch.int8
    assert qc.outputs.requantize([[1 << 30]], 1.0, 0, "int8").codes.item() == 127


def test_an_accumulator_overflows():
    inputs = 1 << 17
    lowest = np.full((1, inputs), -128, np.int8)
    found = qc.outputs.integer_product(lowest, lowest)  # 2^17·2^14 = 2^31
    assert found.exact.item() == 1 << 31
    assert found.accumulator.item() == -(1 << 31)
    assert bool(found.overflows.all())
    one_less = qc.outputs.integer_product(lowest[:, 1:], lowest[:, 1:])
    assert not bool(one_less.overflows.any())
    narrow = qc.outputs.integer_product([[100, 100]], [[100, 100], [1, 1]], accumulator_bits=16)
    assert narrow.exact.tolist() == [[20000, 200]]
    assert narrow.overflows.tolist() == [[False, False]]
    narrow = qc.outputs.integer_product([[200, 200]], [[100, 100], [1, 1]], accumulator_bits=16)
    assert narrow.accumulator.tolist() == [[40000 - 65536, 400]]
    x, w = (qc.apply(np.ones((1, 4), np.float32), scheme) for scheme in ("int8", "int8"))
    assert "which overflows int16 to" in "\n".join(
        qc.outputs.integer_layer(x, w, accumulator_bits=16).lines(0, 0)
    )


def test_scales_per_token():
    x, w = RNG.standard_normal((5, 9), dtype=np.float32), RNG.standard_normal((3, 9), dtype=np.float32)
    x, w = qc.apply(x, "uint8 asymmetric per_channel(0)"), qc.apply(w, "int4 per_channel(0)")
    found = qc.outputs.integer_layer(x, w)
    y = x.dequantized.double() @ w.dequantized.double().T
    np.testing.assert_allclose(found.y, y, rtol=1e-5, atol=1e-5)
    assert found.scale.shape == (5, 3)


RESULT = qc.apply(np.ones((2, 4), np.float32), "int8")


@for_each(
    ("make", "words"),
    [
        (lambda o: o.integer_product([[1.5]], [[1]]), "x_codes has shape"),
        (lambda o: o.integer_product([[1]], [[1, 2]]), "x_codes has 1 columns"),
        (lambda o: o.integer_product([[1]], [[1]], [1, 2]), "x_zero_point has 2 numbers"),
        (lambda o: o.integer_product([[1]], "a"), "w_codes"),
        (lambda o: o.integer_product([[1]], [[1]], accumulator_bits=64), "accumulator_bits"),
        (lambda o: o.integer_product([[1 << 30]], [[1 << 30]]), "may exceed 2\\^53"),
        (lambda o: o.requantize([[1]], 0.5, 0, "e4m3fn"), "requantized to integers"),
        (lambda o: o.requantize([[1]], 0.5, 0, "int8", "twice"), "no requantization 'twice'"),
        (lambda o: o.requantize([[1 << 31]], 0.5, 0, "int8"), "does not fit in 32 bits"),
        (lambda o: o.requantize([[-(1 << 31) - 1]], 0.5, 0, "int8"), "does not fit in 32 bits"),
        (lambda o: o.requantize([[1]], -1.0, 0, "int8", "single"), "must be positive"),
        (lambda o: o.requantize([[1 << 30]], 8.0, 0, "int8", "double"), "leaves 32 bits"),
        (lambda o: o.fixed_point(2.0**31), "2\\^30 or more"),
        (lambda o: o.integer_layer(RESULT, qc.apply(np.ones((2, 4)), "int4 per_group(2)")), "several scales"),
        (lambda o: o.integer_layer(RESULT, qc.apply(np.ones((2, 4)), "e4m3fn")), "integer codes"),
        (lambda o: o.integer_layer(RESULT, np.ones((2, 4))), "integer_layer needs the result"),
        (lambda o: o.integer_layer(RESULT, RESULT, [1e9, 1]), "bias does not fit in 32 bits"),
        (lambda o: o.integer_layer(RESULT, RESULT, None, "int8 per_channel(0)"), "needs one scale"),
        (
            lambda o: o.integer_layer(qc.apply(np.ones((2, 4)), "int8 per_channel(0)"), RESULT, [1.0, 1.0]),
            "one scale of x for all tokens",
        ),
    ],
)
def test_wrong_input_is_one_sentence(make, words):
    with pytest.raises(qc.QuantError, match=words):
        make(qc.outputs)
