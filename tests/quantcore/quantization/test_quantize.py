"""Codes, scales and zero points against oracles that share no code with quantcore."""

import dataclasses
import itertools
import json
import math
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some, some_rows
from places import GOLDEN

import quantcore as qc

# torch warns once that its quantized tensors will be removed; until then they are an oracle
pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")

FORMATS = [
    qc.IntFormat(bits, signed, narrow)
    for bits in range(2, 17)
    for signed in (True, False)
    for narrow in (False, True)
]
WRAP = qc.TEXTBOOK.changed(overflow="wrap")

# (shape, granularity, extent of a block along each axis, worked out by hand)
LAYOUTS = [
    ((), qc.PerTensor(), ()),
    ((7,), qc.PerTensor(), (7,)),
    ((7,), qc.PerChannel(0), (1,)),
    ((7,), qc.PerGroup(3), (3,)),
    ((7,), qc.PerBlock((-1,)), (7,)),
    ((6, 10), qc.PerTensor(), (6, 10)),
    ((6, 10), qc.PerChannel(0), (1, 10)),
    ((6, 10), qc.PerChannel(-1), (6, 1)),
    ((6, 10), qc.PerGroup(5), (1, 5)),
    ((6, 10), qc.PerGroup(4), (1, 4)),
    ((6, 10), qc.PerGroup(4, axis=0), (4, 1)),
    ((6, 10), qc.PerGroup(5, axis=-2), (5, 1)),
    ((6, 10), qc.PerBlock((2, 5)), (2, 5)),
    ((6, 10), qc.PerBlock((4, 3)), (4, 3)),
    ((6, 10), qc.PerBlock((4, -1)), (4, 10)),
    ((3, 4, 5), qc.PerTensor(), (3, 4, 5)),
    ((3, 4, 5), qc.PerChannel(1), (3, 1, 5)),
    ((3, 4, 5), qc.PerChannel(-3), (1, 4, 5)),
    ((3, 4, 5), qc.PerGroup(2), (1, 1, 2)),
    ((3, 4, 5), qc.PerGroup(3, axis=1), (1, 3, 1)),
    ((3, 4, 5), qc.PerBlock((2, -1, 3)), (2, 4, 3)),
    ((2, 3, 4, 5), qc.PerTensor(), (2, 3, 4, 5)),
    ((2, 3, 4, 5), qc.PerChannel(2), (2, 3, 1, 5)),
    ((2, 3, 4, 5), qc.PerGroup(3, axis=-1), (1, 1, 1, 3)),
    ((2, 3, 4, 5), qc.PerGroup(2, axis=-4), (2, 1, 1, 1)),
    ((2, 3, 4, 5), qc.PerBlock((2, 2, 3, -1)), (2, 2, 3, 5)),
]


def formats_for(shape, block):
    """Every format if there is one block, otherwise every 15th in turn."""
    if math.prod(grid_of(shape, block)) <= 1 or (shape, block) == ((6, 10), (4, 3)):
        return list(enumerate(FORMATS))
    start = [layout[::2] for layout in LAYOUTS].index((shape, block))
    return list(enumerate(FORMATS))[start % 15 :: 15]


def randn(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3


def blocks_of(shape, block):
    """(position in the grid, slices of the elements) of every block, by explicit counting."""
    grid = [math.ceil(n / b) for n, b in zip(shape, block, strict=True)]
    for position in itertools.product(*map(range, grid)):
        yield (
            position,
            tuple(slice(p * b, min(p * b + b, n)) for p, b, n in zip(position, block, shape, strict=True)),
        )


def grid_of(shape, block):
    return tuple(math.ceil(n / b) for n, b in zip(shape, block, strict=True))


def parameters(grid, fmt, seed=0, even=False):
    """For every block a power of two as scale and a zero point within the format."""
    rng = np.random.default_rng(seed)
    scale = np.ldexp(np.float32(1), rng.integers(-4, 3, grid)).astype(np.float32)
    lowest = fmt.qmin + fmt.qmin % 2 if even else fmt.qmin
    zero_point = rng.integers(lowest, fmt.qmax + 1, grid).astype(np.int32)
    return torch.tensor(scale), torch.tensor(zero_point - zero_point % 2 if even else zero_point)


def halves(shape, block, scale, fmt, seed=0):
    """x = k/2 · s with integer k, exact in float32: half of the elements are ties, and some overflow."""
    rng = np.random.default_rng(seed)
    reach = min(3 * fmt.available, 1 << 17)
    x = torch.tensor(rng.integers(-reach, reach + 1, shape).astype(np.float32))
    for position, part in blocks_of(shape, block):
        x[part] *= scale[position] / 2
    return x


def off_ties(shape, block, scale, fmt, seed=0):
    """x with x/s at least 0.1 from every tie, so that x·(1/s) rounds like x/s."""
    rng = np.random.default_rng(seed)
    reach = min(2 * fmt.available, 1 << 15)
    quotient = rng.integers(-reach, reach + 1, shape) + rng.uniform(-0.4, 0.4, shape)
    x = torch.tensor(quotient)
    for position, part in blocks_of(shape, block):
        x[part] *= float(scale[position])
    return x.float()


def codes_of_fake_quantize(x, scale, zero_point, block, fmt):
    """Codes by torch.fake_quantize_per_tensor_affine on each block; its output divided by s gives them exactly."""
    codes = torch.empty(x.shape, dtype=torch.int64)
    for position, part in blocks_of(tuple(x.shape), block):
        s, z = float(scale[position]), int(zero_point[position])
        x_hat = torch.fake_quantize_per_tensor_affine(x[part], s, z, fmt.qmin, fmt.qmax)
        codes[part] = torch.round(x_hat.double() / s).long() + z
    return codes


@for_each(("shape", "granularity", "block"), some_rows(LAYOUTS, 23))
@for_each("make", [halves, off_ties])
def test_codes_against_fake_quantize(shape, granularity, block, make):
    for seed, fmt in formats_for(shape, block):
        scale, zero_point = parameters(grid_of(shape, block), fmt, seed)
        if make is off_ties:
            scale = scale * torch.tensor(np.random.default_rng(seed).uniform(0.5, 1.0, scale.shape)).float()
        x = make(shape, block, scale, fmt, seed)
        given = qc.Given(scale.tolist(), zero_point.tolist())
        expected = codes_of_fake_quantize(x, scale, zero_point, block, fmt)
        for symmetric in (True, False):
            result = qc.apply(x, qc.Scheme(fmt, symmetric, granularity, given))
            assert torch.equal(result.codes.long(), expected), fmt
            assert torch.equal(result.scale, scale)
            assert torch.equal(result.zero_point, zero_point)


@for_each("bits", [2, 4, 8, 16])
@for_each("axis", [0, 1, 2, -1])
def test_codes_against_fake_quantize_per_channel(bits, axis):
    fmt = qc.IntFormat(bits)
    shape = (5, 6, 7)
    block = tuple(1 if i == axis % 3 else n for i, n in enumerate(shape))
    scale, zero_point = parameters(grid_of(shape, block), fmt, bits)
    x = halves(shape, block, scale, fmt)
    result = qc.apply(
        x, qc.Scheme(fmt, False, qc.PerChannel(axis), qc.Given(scale.tolist(), zero_point.tolist()))
    )
    expected = torch.fake_quantize_per_channel_affine(
        x, scale.flatten(), zero_point.flatten(), axis % 3, fmt.qmin, fmt.qmax
    )
    assert torch.equal(result.dequantized, expected)


# quantize_per_tensor and quantize_per_channel add z before rounding, so ties go the other way if z is odd
@for_each(("fmt", "dtype"), [(qc.INT8, torch.qint8), (qc.UINT8, torch.quint8)])
@for_each("shape", [(), (9,), (6, 10), (3, 4, 5), (2, 3, 4, 5)])
def test_codes_against_quantize_per_tensor(fmt, dtype, shape):
    for seed in range(10):
        scale, zero_point = parameters((), fmt, seed, even=True)
        x = halves(shape, shape, scale.expand((1,) * len(shape)), fmt, seed)
        codes = qc.quantize(x, scale, zero_point, qc.Scheme(fmt))
        expected = torch.quantize_per_tensor(x, float(scale), int(zero_point), dtype)
        assert torch.equal(codes, expected.int_repr())
        assert torch.equal(qc.dequantize(codes, scale, zero_point, qc.Scheme(fmt)), expected.dequantize())


@for_each(("fmt", "dtype"), [(qc.INT8, torch.qint8), (qc.UINT8, torch.quint8)])
@for_each(("shape", "axis"), [((9,), 0), ((6, 10), 0), ((6, 10), 1), ((3, 4, 5), 1)])
def test_codes_against_quantize_per_channel(fmt, dtype, shape, axis):
    block = tuple(1 if i == axis else n for i, n in enumerate(shape))
    scale, zero_point = parameters(grid_of(shape, block), fmt, even=True)
    x = halves(shape, block, scale, fmt)
    scheme = qc.Scheme(fmt, granularity=qc.PerChannel(axis))
    expected = torch.quantize_per_channel(x, scale.flatten().double(), zero_point.flatten(), axis, dtype)
    codes = qc.quantize(x, scale, zero_point, scheme)
    assert torch.equal(codes, expected.int_repr())
    assert torch.equal(qc.dequantize(codes, scale, zero_point, scheme), expected.dequantize())


def golden_cases():
    cases = json.loads((GOLDEN / "quantize_linear.json").read_text())["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases]


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN / "quantize_linear.npz", allow_pickle=False) as arrays:
        return dict(arrays)


@for_each("case", golden_cases())
def test_codes_recorded_from_onnx(case, golden):
    scale, zero_point, codes = (golden[f"{case['id']}.{what}"] for what in ("scale", "zero_point", "codes"))
    by_hand = qc.Given(scale.tolist(), zero_point.tolist())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that tool does not clamp all zero_points to the format
        scheme = dataclasses.replace(qc.Scheme.parse(case["scheme"]), range_setting=by_hand)
        result = qc.apply(golden[case["x"]], scheme)
    assert np.array_equal(result.codes.numpy().astype(np.int64), codes.astype(np.int64))


def numpy_parameters(x, fmt, symmetric):
    """Textbook formulas on one block, in numpy's float32."""
    low, high = np.float32(x.min()), np.float32(x.max())
    if symmetric:
        scale = max(abs(low), abs(high)) / np.float32(2 ** (fmt.bits - 1) - 1)
        return scale if scale > 0 else np.float32(1), 0 if fmt.signed else 2 ** (fmt.bits - 1)
    low, high = min(low, np.float32(0)), max(high, np.float32(0))
    qmin = (-(2 ** (fmt.bits - 1)) if fmt.signed else 0) + fmt.narrow
    qmax = 2 ** (fmt.bits - 1) - 1 if fmt.signed else 2**fmt.bits - 1
    scale = (high - low) / np.float32(qmax - qmin)
    scale = scale if scale > 0 else np.float32(1)
    return scale, int(min(max(qmin - np.round(low / scale), qmin), qmax))


def numpy_codes(x, scale, zero_point, fmt):
    qmin = (-(2 ** (fmt.bits - 1)) if fmt.signed else 0) + fmt.narrow
    qmax = 2 ** (fmt.bits - 1) - 1 if fmt.signed else 2**fmt.bits - 1
    return np.clip(np.rint(x / scale) + np.float32(zero_point), qmin, qmax).astype(np.int64)


@for_each(("shape", "granularity", "block"), some_rows(LAYOUTS, 31))
@for_each("symmetric", [True, False])
def test_parameters_and_codes_against_numpy(shape, granularity, block, symmetric):
    for seed, fmt in formats_for(shape, block):
        x = randn(shape, seed) + (0, 4, -20)[seed % 3]
        result = qc.apply(x, qc.Scheme(fmt, symmetric, granularity))
        assert result.scale.shape == result.zero_point.shape == grid_of(shape, block)
        assert (result.scale.dtype, result.zero_point.dtype) == (torch.float32, torch.int32)
        for position, part in blocks_of(shape, block):
            inside = x[part].numpy()
            scale, zero_point = numpy_parameters(inside, fmt, symmetric)
            assert scale.dtype == np.float32
            assert result.scale[position].item() == scale
            assert result.zero_point[position].item() == zero_point
            codes = numpy_codes(inside, scale, zero_point, fmt)
            assert np.array_equal(result.codes[part].numpy(), codes)
            x_hat = (codes - zero_point).astype(np.float32) * scale
            assert np.array_equal(result.dequantized[part].numpy(), x_hat)
            assert np.array_equal(result.error[part].numpy(), inside - x_hat)


@for_each(
    "granularity", [qc.PerTensor(), qc.PerChannel(1), qc.PerGroup(384), qc.PerBlock((600, 500))]
)
def test_tensor_larger_than_a_box_of_the_walk(granularity):
    shape = (1000, 1300)
    block = qc.block_shape(granularity, shape)
    x = randn(shape)
    result = qc.apply(x, qc.Scheme(qc.INT4, False, granularity))
    for position, part in itertools.islice(blocks_of(shape, block), None, None, 37):
        scale, zero_point = numpy_parameters(x[part].numpy(), qc.INT4, False)
        assert (result.scale[position].item(), result.zero_point[position].item()) == (scale, zero_point)
    scale = result.scale.repeat_interleave(block[0], 0)[:1000].repeat_interleave(block[1], 1)[:, :1300]
    zero = result.zero_point.repeat_interleave(block[0], 0)[:1000].repeat_interleave(block[1], 1)[:, :1300]
    codes = np.clip(np.rint(x.numpy() / scale.numpy()) + zero.numpy().astype(np.float32), -8, 7)
    assert np.array_equal(result.codes.numpy(), codes.astype(np.int8))
    assert np.array_equal(
        result.dequantized.numpy(), (codes - zero.numpy()).astype(np.float32) * scale.numpy()
    )


SOME_SCHEMES = [
    qc.Scheme(fmt, symmetric, granularity, setting)
    for fmt in (qc.INT2, qc.INT8, qc.IntFormat(8, narrow=True), qc.UINT4, qc.UINT16)
    for symmetric in (True, False)
    for granularity in (qc.PerTensor(), qc.PerChannel(1), qc.PerGroup(5), qc.PerBlock((4, 3)))
    for setting in (qc.MinMax(), qc.Percentile(90), qc.Fixed(-2, 3), qc.Given(0.37))
]


def per_element(parameters, shape, block):
    out = torch.empty(shape, dtype=parameters.dtype)
    for position, part in blocks_of(shape, block):
        out[part] = parameters[position]
    return out


@for_each("scheme", some(SOME_SCHEMES, 9), ids=str)
def test_dequantized_stands_on_the_grid_and_within_half_a_step(scheme):
    x = randn((6, 10), 1)
    result = qc.apply(x, scheme)
    fmt, x_hat = scheme.format, result.dequantized
    block = qc.block_shape(scheme.granularity, (6, 10))
    scale, zero_point = (per_element(p, (6, 10), block) for p in (result.scale, result.zero_point))
    codes = np.arange(fmt.qmin, fmt.qmax + 1)
    for position, part in blocks_of((6, 10), block):
        shifted = (codes - int(result.zero_point[position])).astype(np.float32)
        assert np.isin(x_hat[part].numpy(), shifted * result.scale[position].numpy()).all()
    # inside the range: between the values of the lowest and the highest code
    inside = (x.double() >= (fmt.qmin - zero_point).double() * scale) & (
        x.double() <= (fmt.qmax - zero_point).double() * scale
    )
    error = (x.double() - x_hat.double()).abs()
    bound = scale.double() / 2 + (x.double().abs() + x_hat.double().abs()) * 2.0**-24
    assert inside.any()
    assert (error <= bound)[inside].all()
    assert torch.equal(result.error, x - x_hat)


@for_each("scheme", some(SOME_SCHEMES, 3), ids=str)
def test_quantizing_again_changes_nothing(scheme):
    result = qc.apply(randn((6, 10), 2), scheme)
    again = qc.quantize(result.dequantized, result.scale, result.zero_point, scheme)
    assert torch.equal(again, result.codes)


@for_each("symmetric", [True, False])
def test_finer_granularity_never_widens_a_range(symmetric):
    x = randn((12, 16), 3)
    chain = [
        qc.PerTensor(),
        qc.PerBlock((6, -1)),
        qc.PerChannel(0),
        qc.PerGroup(8),
        qc.PerGroup(4),
        qc.PerGroup(1),
    ]
    results = [qc.apply(x, qc.Scheme(qc.INT4, symmetric, granularity)) for granularity in chain]
    scales = [per_element(r.scale, (12, 16), r.block) for r in results]
    for coarse, fine in itertools.pairwise(scales):
        assert (fine <= coarse).all()
        assert (fine < coarse).any()


@for_each("order", list(itertools.permutations(range(3))))
@for_each("symmetric", [True, False])
def test_permuted_axes_permute_the_result(order, symmetric):
    x, block = randn((4, 5, 6), 4), (2, 3, 4)
    scheme = qc.Scheme(qc.INT8, symmetric, qc.PerBlock(block), qc.Percentile(95))
    plain = qc.apply(x, scheme)
    turned = dataclasses.replace(scheme, granularity=qc.PerBlock(tuple(block[i] for i in order)))
    result = qc.apply(x.permute(order), turned)
    assert torch.equal(result.codes, plain.codes.permute(order))
    assert torch.equal(result.scale, plain.scale.permute(order))
    assert torch.equal(result.zero_point, plain.zero_point.permute(order))
    assert torch.equal(result.dequantized, plain.dequantized.permute(order))


def exact(x, scheme, scale, zero_point, codes, x_hat):
    result = qc.apply(x, scheme)
    assert result.scale.flatten().tolist() == np.float32(scale).flatten().tolist()
    assert result.zero_point.flatten().tolist() == np.atleast_1d(zero_point).tolist()
    assert result.codes.tolist() == codes
    assert result.dequantized.tolist() == np.float32(x_hat).tolist()
    return result


SYM, ASYM = qc.Scheme(), qc.Scheme(symmetric=False)
USYM, UASYM = qc.Scheme(qc.UINT8), qc.Scheme(qc.UINT8, symmetric=False)
f32 = np.float32


@for_each(("scheme", "code"), [(SYM, 0), (USYM, 128), (ASYM, -128), (UASYM, 0)])
def test_zeros_are_exact(scheme, code):
    result = exact([0.0, -0.0], scheme, 1, code, [code, code], [0, 0])
    assert result.error.tolist() == [0, 0]


def test_one_zero_row_leaves_the_others_alone():
    x = [[0, 0], [127, -1], [0, 0]]
    exact(x, qc.Scheme(granularity=qc.PerChannel(0)), [1, 1, 1], [0, 0, 0], x, x)


@for_each(
    ("scheme", "value", "scale", "zero_point", "code"),
    [
        (SYM, 5, f32(5) / f32(127), 0, 127),
        (SYM, -5, f32(5) / f32(127), 0, -127),
        (USYM, -5, f32(5) / f32(127), 128, 1),
        (ASYM, 5, f32(5) / f32(255), -128, 127),
        (ASYM, -5, f32(5) / f32(255), 127, -128),
        (UASYM, 5, f32(5) / f32(255), 0, 255),
    ],
)
def test_constant_block(scheme, value, scale, zero_point, code):
    x_hat = f32(code - zero_point) * scale
    exact([value] * 3, scheme, scale, zero_point, [code] * 3, [x_hat] * 3)
    exact(value, scheme, scale, zero_point, code, x_hat)
    exact([[[value]]], scheme, scale, zero_point, [[[code]]], [[[x_hat]]])


def test_range_too_small_to_divide():
    exact([1e-45, -1e-45], SYM, 1, 0, [0, 0], [0, 0])
    exact([1e-45, -1e-45], ASYM, 1, -128, [-128, -128], [0, 0])


def test_denormal_scale():
    # 1e-40 is 71362 · 2^-149, and 71362 / 127 rounds to 562
    unit = 2.0**-149
    assert f32(1e-40) == 71362 * unit
    exact([1e-40, 1e-41], SYM, 562 * unit, 0, [127, 13], [127 * 562 * unit, 13 * 562 * unit])
    # (71362 + 71362) / 255 = 559.7; the zero point -128 - round(-71362 / 560) is -1
    exact([1e-40, -1e-40], ASYM, 560 * unit, -1, [126, -128], [127 * 560 * unit, -127 * 560 * unit])


def test_range_that_overflows():
    most = f32(3e38)
    scale = most / f32(255) + most / f32(255)
    assert np.isfinite(scale)
    quotient = most / scale  # 127.5, or a float32 next to it
    zero_point = int(-128 + np.rint(quotient))
    codes = [int(np.clip(np.rint(q) + zero_point, -128, 127)) for q in (-quotient, 0, quotient)]
    exact([-3e38, 0, 3e38], ASYM, scale, zero_point, codes, (f32(codes) - zero_point) * scale)
    exact([-3e38, 3e38], SYM, most / f32(127), 0, [-127, 127], f32([-127, 127]) * (most / f32(127)))


def test_a_tie_goes_to_the_even_code():
    x = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
    for zero_point in (0, 1):  # x/s is rounded, not x/s + z
        codes = qc.quantize(x, 1.0, zero_point, SYM)
        assert codes.tolist() == [q + zero_point for q in (-2, -2, 0, 0, 2, 2, 4)]


SETTINGS = [qc.MinMax(), qc.Percentile(99), qc.Fixed(-1, 1), qc.Given(0.1)]


@for_each("setting", SETTINGS, ids=str)
@for_each("symmetric", [True, False])
@for_each("shape", [(), (50,), (5, 10), (2, 5, 5), (2, 2, 2, 5)])
@for_each("bad", [(math.nan,), (math.inf,), (-math.inf,), (math.nan, -math.inf, math.nan)])
def test_what_is_not_finite_is_refused(setting, symmetric, shape, bad):
    x = torch.ones(shape)
    places = [0] if not shape else [17, 23, 31][: len(bad)]
    for place, value in zip(places, bad, strict=False):
        x.view(-1)[place] = value
    count = (int(x.isnan().sum()), int(x.isinf().sum()))
    index = tuple(int(i) for i in np.unravel_index(places[0], shape))
    granularity = qc.PerGroup(2) if shape else qc.PerTensor()
    with pytest.raises(qc.QuantError) as caught:
        qc.apply(x, qc.Scheme(qc.INT8, symmetric, granularity, setting))
    text = str(caught.value)
    nan = {0: "", 1: "one NaN"}.get(count[0], f"{count[0]} NaN")
    infinite = {0: "", 1: "one infinity"}.get(count[1], f"{count[1]} infinities")
    assert f"x contains {' and '.join(filter(None, (nan, infinite)))}" in text
    assert ("the first at" in text) == (sum(count) > 1)
    assert f"at index {index};" in text
    with pytest.raises(qc.QuantError, match="x contains"):
        qc.quantize(x, 1.0, 0, SYM)


@for_each("scheme", some(SOME_SCHEMES, 23), ids=str)
def test_x_is_never_modified(scheme):
    x = randn((6, 10), 5)
    for given in (x, x.numpy(), x.T.contiguous().T, x.double()):
        before = given.copy() if isinstance(given, np.ndarray) else given.clone()
        result = qc.apply(given, scheme)
        assert result.dequantized.shape == result.error.shape == (6, 10)
        qc.report(result)
        assert (given == before).all()
    assert torch.equal(result.x, x)


@for_each("granularity", [qc.PerTensor(), qc.PerGroup(4)])
def test_out_is_written_into(granularity):
    scheme = qc.Scheme(qc.INT4, granularity=granularity)
    first = qc.apply(randn((6, 10), 6), scheme)
    where, old = first.codes.data_ptr(), first.codes.clone()
    x = randn((6, 10), 7)
    second = qc.apply(x, scheme, out=first)
    assert second.codes.data_ptr() == where
    assert torch.equal(second.codes, qc.apply(x, scheme).codes)
    assert not torch.equal(second.codes, old)
    x_hat = torch.empty(6, 10)
    written = qc.dequantize(second.codes, second.scale, second.zero_point, scheme, out=x_hat)
    assert written is x_hat
    assert torch.equal(x_hat, second.dequantized)


@for_each("out", [torch.empty(10, 6, dtype=torch.int8), torch.empty(6, 10, dtype=torch.int16)])
def test_out_of_another_kind_is_refused(out):
    with pytest.raises(qc.QuantError, match="out has shape"):
        qc.quantize(randn((6, 10)), 1.0, 0, SYM, out=out)


@for_each(
    ("fmt", "dtype"), [(qc.INT8, np.int8), (qc.UINT8, np.uint8), (qc.INT16, np.int16), (qc.UINT16, np.uint16)]
)
@for_each("zero_point", [0, 3, -200, 1000])
def test_wrapping_is_a_cast_without_a_clamp(fmt, dtype, zero_point):
    x = np.arange(-70_000, 70_000, 7, dtype=np.float32)
    scheme = qc.Scheme(fmt, convention=WRAP)
    assert np.array_equal(
        qc.quantize(x, 1.0, zero_point, scheme).numpy(), (x.astype(np.int64) + zero_point).astype(dtype)
    )


@for_each("fmt", FORMATS, ids=str)
def test_wrapping_keeps_the_lowest_bits(fmt):
    x = [float(sign * (2**n + k)) for n in range(23) for k in (-1, 0, 1) for sign in (-1, 1)]
    x += [2.0**40, -(2.0**40), 2.0**61, 3e38, -3e38, 0.5, 1.5, -0.5]
    codes = qc.quantize(x, 1.0, 0, qc.Scheme(fmt, convention=WRAP)).tolist()
    lowest = -(1 << (fmt.bits - 1)) if fmt.signed else 0
    expected = [(round(min(max(v, -(2.0**62)), 2.0**62)) - lowest) % (1 << fmt.bits) + lowest for v in x]
    assert codes == expected


@for_each("scheme", ["uint4 asymmetric given(0.1, zero_point=20) hqq",
                                    "uint4 asymmetric per_group(32) given(0.1, zero_point=-3) gguf.Q4_1"])  # fmt: skip
def test_a_zero_point_that_is_no_code_may_be_any_number(scheme):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        qc.apply(torch.zeros(2, 32), qc.Scheme.parse(scheme))


@for_each(("zero_point", "outside"), [(127, False), (-128, False), (128, True), (-129, True)])
def test_zero_point_outside_the_format(zero_point, outside):
    scheme = qc.Scheme(range_setting=qc.Given(0.5, zero_point))
    with pytest.warns(UserWarning, match=f"zero_point {zero_point}") if outside else nullcontext():
        result = qc.apply([-1.0, 0.0, 1.0], scheme)
    assert len(result.warnings) == outside
    assert all(f"zero_point {zero_point} lies outside" in text for text in result.warnings)
    expected = np.clip(np.array([-2, 0, 2]) + zero_point, -128, 127)
    assert result.codes.tolist() == expected.tolist()
    assert result.dequantized.tolist() == ((expected - zero_point) * 0.5).tolist()


@for_each(
    ("zero_points", "named"), [((-129, 0), -129), ((0, 128), 128), ((-128, 130), 130), ((-130, 131), -130)]
)
def test_the_zero_point_that_is_named_lies_outside(zero_points, named):
    scheme = qc.Scheme(
        granularity=qc.PerChannel(0), range_setting=qc.Given(0.5, tuple((z,) for z in zero_points))
    )
    with pytest.warns(UserWarning, match=f"zero_point {named} lies") as caught:
        qc.apply(torch.ones(2, 3), scheme)
    assert caught[0].filename == __file__  # the warning points to the caller


def test_codes_have_the_dtype_and_shape_of_the_format():
    for shape, fmt in itertools.product([(), (1,), (2, 3)], FORMATS):
        codes = qc.apply(torch.ones(shape), qc.Scheme(fmt)).codes
        assert (tuple(codes.shape), codes.dtype) == (shape, fmt.dtype)


@for_each("scale", [[[1.0]], [1.0, 2.0], torch.ones(3, 1)])
def test_parameters_of_another_grid_are_refused(scale):
    scheme = qc.Scheme(granularity=qc.PerChannel(0))
    with pytest.raises(qc.QuantError, match="form a grid"):
        qc.quantize(torch.ones(2, 3), scale, 0, scheme)
    with pytest.raises(qc.QuantError, match="form a grid"):
        qc.dequantize(torch.ones(2, 3, dtype=torch.int8), 1.0, scale, scheme)


def test_result_names_its_parts():
    x = randn((6, 10))
    scheme = qc.Scheme(symmetric=False, granularity=qc.PerGroup(5), range_setting=qc.Percentile(75))
    result = qc.apply(x, scheme)
    params = qc.choose_qparams(x, scheme)
    assert result.scheme == scheme
    assert result.block == (1, 5)
    assert torch.equal(result.params.scale, params.scale)
    assert torch.equal(result.params.zero_point, params.zero_point)
    # the 25th and 75th percentile of five elements are the second and the fourth; the range includes 0
    ordered = x.view(6, 2, 5).sort(-1).values
    assert torch.equal(params.low, ordered[..., 1].clamp(max=0))
    assert torch.equal(params.high, ordered[..., 3].clamp(min=0))
    by_hand = dataclasses.replace(scheme, range_setting=qc.Given(0.5))
    assert (qc.choose_qparams(x, by_hand).low, qc.choose_qparams(x, by_hand).high) == (None, None)
    assert torch.equal(
        qc.choose_qparams(x, dataclasses.replace(scheme, symmetric=True)).low,
        -qc.choose_qparams(x, dataclasses.replace(scheme, symmetric=True)).high,
    )
