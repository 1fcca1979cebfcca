"""Which arithmetic explains codes, what it leaves, and whose columns they share: from counts and places that are given."""

import math

import numpy as np
import pytest
import torch
from grid import for_each
from releases import WRITERS
from suspects import M, suspect, weight

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.findings.against import grid
from quantcore.checkpoints.findings.against.grid import BFLOAT16, FLOAT32, Beyond, Elements, Roundings
from quantcore.checkpoints.layouts.plain import plain


def roundings(shape=(1000, 128), dtype=torch.float32):
    return Roundings(plain(StoredTensor("w", "I8", shape, None, 0, math.prod(shape))).layout(), dtype)


def beyond(*excesses):
    return [Beyond(e, i, i, e + 0.5) for i, e in enumerate(excesses)]


@for_each(
    ("count", "afterwards", "inner", "tolerance", "margin"),
    [
        # 8 / 1000 rows, 100 times the share that is not explained, 16 times the share that float32 does not give
        (0, 0, 100_000, FLOAT32, 0.008), (2, 0, 1000, FLOAT32, 0.2), (3, 0, 1000, BFLOAT16, 0.048), (8, 0, 100_000, FLOAT32, 0.008),
        (9, 9, 100_000, FLOAT32, 0.009), (100, 0, 100_000, FLOAT32, 0.1), (101, 0, 100_000, BFLOAT16, 0.01616),
        (101, 90, 100_000, BFLOAT16, 0.09), (40_000, 100, 100_000, BFLOAT16, 6.4), (40_000, 101, 100_000, None, None),
    ],
)  # fmt: skip
def test_the_first_arithmetic_that_explains_nearly_all(count, afterwards, inner, tolerance, margin):
    """At most one code of a thousand, or two, may be left; only what is off by far more than the mean movement is said."""
    all_of_them = roundings()
    (later,) = all_of_them._afterwards
    all_of_them._exact.count, later.count = count, afterwards
    edge = margin or 1.0
    for way in (all_of_them._exact, later):
        way.places = beyond(2 * edge, 1.01 * edge, 0.99 * edge)
    found = all_of_them.found(inner)
    if tolerance is None:
        assert found is None
        return
    assert (found.tolerance, found.margin) == (tolerance, pytest.approx(margin))
    assert found.places == tuple(beyond(2 * edge, 1.01 * edge))
    assert found.unexplained == (count if tolerance == FLOAT32 else afterwards)


@for_each(
    ("shape", "width"),
    [
        ((64, 128), 128),
        ((8, 16, 128), 128),
        ((8, 20, 16), 16),
        ((8, 20, 15), 300),
        ((64, 32, 3, 3), 288),
        ((4, 15), 15),
        ((4, 16), 16),
    ],
)
def test_columns_of_stacks_and_kernels(shape, width):
    """Each expert of a stack has columns of its own rows; those of a convolution are its kernels' elements."""
    of = roundings(shape)
    assert of._width == width
    assert of.found(10**6).margin == pytest.approx(8 / (math.prod(shape) // width))


@for_each(
    ("columns", "few"),
    [
        ([5, 5], False), ([5, 5, 5], True), ([5, 6, 5, 6], True), ([5, 6, 7, 5, 6], False), ([5, 6, 7, 5, 6, 7], True), ([], False),
        ([5, 133, 261], True), ([5, 134, 263], False),
    ],
)  # fmt: skip
def test_places_that_share_columns(columns, few):
    """Two or more to a column on average; a column of the next expert of a stack is the same."""
    of = roundings((8, 16, 128))
    of._exact.places = [Beyond(1.0, row, column, 1.5) for row, column in enumerate(columns)]
    assert of.found(10**6).in_few_columns is few


def test_half_a_unit_of_float16():
    """As numpy has it, for numbers of any size, subnormal ones and 0, too."""
    numbers = [1.0, 1.25, 1.999, 2.0, 0.75, -3.0, -1000.0, 2.0**-14, 2.0**-15, 0.0]
    wanted = [float(np.spacing(np.abs(np.float16(n)))) / 2 for n in numbers]
    assert grid._half_unit(torch.tensor(numbers), torch.float16).tolist() == wanted


def test_half_a_unit_of_bfloat16():
    """It has seven bits after the point."""
    found = grid._half_unit(torch.tensor([1.0, 1.99, 2.0, -0.5, 100.0, 2.0**-126, 0.0]), torch.bfloat16)
    assert found.tolist() == [2.0**-8, 2.0**-8, 2.0**-7, 2.0**-9, 2.0**-2, 2.0**-134, 2.0**-134]


def elements(n=20_000, seed=0, zero=0.0):
    """Random values a little beyond the middle between two codes, their exact excess, as vectors."""
    draw = np.random.default_rng(seed)
    scale = draw.uniform(0.001, 1, n).astype(np.float32)
    code = draw.integers(-120, 120, n).astype(np.float32)
    up = draw.choice([-1.0, 1.0], n)
    x = (
        (code.astype(np.float64) - zero + up * 0.5) * scale * (1 + draw.uniform(-2, 2, n) * 2.0**-23)
    ).astype(np.float32)
    excess = np.abs(x.astype(np.float64) / scale - (code.astype(np.float64) - zero)) - 0.5
    y = ((code - np.float32(zero)) * scale).astype(np.float32)
    return x, y, scale, code, excess


@for_each("zero", [0.0, 9.0])
def test_what_float32_may_give(zero):
    """What it gives is within the bound, and the bound is not much larger."""
    x, y, scale, code, excess = elements(zero=zero)
    given = np.round(x / scale + np.float32(zero)) == code
    assert 0 < given.sum() < len(given)
    t = [torch.from_numpy(a) for a in (x, y, scale, code)]
    one = torch.ones(len(x))
    e = Elements(*t, torch.from_numpy(excess), (t[1] / t[2]).abs(), 0 * one, one)
    room = (e.float32 - grid.FLOAT_ROOM).numpy()
    assert (excess[given] <= room[given]).all()
    assert (room <= 2.0**-20 * (np.abs(code) + zero + 1)).all()
    assert (room >= 2.0**-20 * np.maximum(np.abs(code), zero)).all()
    assert torch.equal(e.of_scale, e.float32)  # of a scale that is stored exactly
    rounded = Elements(*t, torch.from_numpy(excess), (t[1] / t[2]).abs(), 2.0**-8 * one, one)
    assert torch.allclose(rounded.of_scale - e.float32, 2.0**-8 * ((t[1] / t[2]).abs() + 0.5), atol=1e-5)


def test_steps_of_two_codes():
    """Codes that lie two units of the scale apart: a relative error is half as many steps."""
    one = torch.ones(4)
    code = torch.tensor([2.0, 4.0, -6.0, 0.0])
    narrow = Elements(code, code, one, code, 0 * one, code.abs(), 0 * one, one).float32 - grid.FLOAT_ROOM
    wide = Elements(code, code, one, code, 0 * one, code.abs(), 0 * one, 2 * one).float32 - grid.FLOAT_ROOM
    assert torch.allclose(wide, narrow / 2 + FLOAT32 / 4, rtol=1e-4)


def test_only_the_largest_are_kept():
    """Of all that were added, with their errors and places; the rest is counted."""
    of = roundings()
    excess = torch.linspace(0.001, 1.0, 100, dtype=torch.float64)[
        torch.randperm(100, generator=torch.Generator().manual_seed(0))
    ]
    one = torch.ones(100)
    for part in (slice(0, 30), slice(30, 100)):
        e = Elements(*[t[part] for t in (one, one, one, one, excess, one, 0 * one, one)])
        of.add(e, torch.arange(100)[part], 1000 - torch.arange(100)[part])
    assert of._exact.count == 100
    order = excess.argsort(descending=True)[: grid.KEPT]
    assert [(p.row, p.column) for p in of._exact.places] == [(int(i), 1000 - int(i)) for i in order]
    assert [p.steps for p in of._exact.places] == pytest.approx([float(excess[i]) + 0.5 for i in order])


@for_each(("number", "kept"), [(128, True), (129, False)])
def test_arithmetic_that_leaves_too_much_is_given_up(number, kept):
    """More than one code of a thousand of all; float32's is kept as the measure of movements."""
    of = roundings()
    one = torch.ones(number)
    of.add(Elements(one, one, one, one, one, one, 0 * one, one), torch.arange(number), torch.arange(number))
    assert bool(of._afterwards) is kept
    assert of._exact.count == number


@for_each(
    ("dtype", "ways"), [(torch.float32, (0, 1)), (torch.bfloat16, (6, 2)), (torch.float16, (6, 2))]
)
def test_arithmetic_of_dtypes(dtype, ways, tmp_path):
    """Quotients of 16 bits are those of integers whose original has them; others only round the original itself."""
    codebook = suspect(tmp_path, WRITERS["nf4"][0](M, weight()), weight(), "nf4").layout
    integers, others = roundings(dtype=dtype), Roundings(codebook, dtype)
    assert (len(integers._in_dtype), len(integers._afterwards)) == ways
    assert (len(others._in_dtype), len(others._afterwards)) == (0, ways[1])
    unit = {torch.float32: 0.0, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}[dtype]
    assert (integers.near, others.near) == (unit, 0.0)
    assert {way.tolerance for way in integers._in_dtype} == ({unit} if unit else set())
    for way in (others._exact, others._afterwards[0]):
        way.count = 10**6
    if unit:
        assert others.found(1000).tolerance == pytest.approx(BFLOAT16 + unit)


@for_each("step", [1.0, 2.0])
@for_each(("units", "explained"), [(0.95, True), (1.05, False)])
def test_an_original_that_was_rounded_afterwards(step, units, explained):
    """Its values lie within half a unit in their last place: 2^-9 of them, in steps of their codes."""
    x, scale = torch.tensor([1.0, -1.0, 4.0]), torch.tensor([0.01, 0.01, -0.04])
    excess = units * torch.tensor([2.0**-8, 2.0**-8, 2.0**-6]) / scale.abs() / step
    e = Elements(x, x, scale, x / scale, excess, (x / scale).abs() / step, 0 * x, torch.full_like(x, step))
    assert (roundings(dtype=torch.bfloat16)._of_original(e) <= 0).tolist() == [explained] * 3


def one_of(of, name):
    return of._exact if name == "float32" else of._afterwards[0]


@for_each("name", ["float32", "of_scale"])
@for_each(("times", "counted"), [(0.9, False), (1.0, False), (1.1, True)])
def test_what_arithmetic_may_give_is_not_counted(name, times, counted):
    """Up to its bound, and no farther."""
    code = torch.tensor([3.0, -7.0, 0.0, 100.0])
    scale = torch.tensor([0.1, -0.2, 0.3, 4.0])
    given = (
        code * scale,
        code * scale,
        scale,
        code,
        0 * code,
        code.abs(),
        torch.full_like(code, 2.0**-8),
        0 * code + 1,
    )
    bound = getattr(Elements(*given), name)
    of = roundings()
    of.add(Elements(*given[:4], times * bound, *given[5:]), torch.arange(4), torch.arange(4))
    assert one_of(of, name).count == 4 * counted


def test_an_error_of_the_margin_shows_nothing():
    of = roundings()
    of._exact.places = beyond(8 / 1000)
    assert of.found(10**6).places == ()


def in_bfloat16(x, code, scale, zero):
    """The excess that every arithmetic in bfloat16 leaves, of codes to which a zero point was added."""
    x, code, scale = (torch.as_tensor(t, dtype=torch.float32) for t in (x, code, scale))
    y = (code - zero) * scale
    excess = ((x - y) / scale).abs() - 0.5
    one = torch.ones_like(x)
    e = Elements(x, y, scale, code, excess, (y / scale).abs(), 0 * one, one)
    ways = roundings(dtype=torch.bfloat16)._in_dtype
    return torch.stack([way.excess(e) for way in ways])


@for_each("zero", [0.0, 3.0, -5.0])
def test_codes_that_every_arithmetic_gives(zero):
    """Where quotients are nearer to a number than to the middle between two."""
    draw = np.random.default_rng(1)
    scale = draw.uniform(0.01, 4, 500)
    number = draw.integers(-8, 8, 500)
    x = (number + draw.uniform(-0.25, 0.25, 500)) * scale
    assert (in_bfloat16(x, number + zero, scale, zero) == -1).all()
    assert (in_bfloat16(x, number + zero + 1, scale, zero) > 0.1).all()


@for_each(
    ("x", "code", "left"),
    # a unit in the last place of the quotient is 1/64 at 3, 1/2 at 102 and 104
    [
        (3.0, 1.0, 1.5 - 1 / 64),
        (102.0, 100.0, 1.0),
        (104.0, 100.0, 3.0),
        (-104.0, -100.0, 3.0),
        (101.0, 100.0, grid.FLOAT_ROOM),
    ],
)
def test_a_quotient_may_be_off_by_a_unit(x, code, left):
    """Codes that bfloat16 does not give exceed that, and by something at least."""
    assert in_bfloat16([x], [code], [1.0], 0.0).reshape(-1).tolist() == pytest.approx(
        [left] * 6, abs=2e-4 if left > 0.1 else 1e-9
    )


@for_each(("number", "kept"), [(128, 1), (129, 0)])
def test_arithmetic_in_bfloat16_that_leaves_too_much(number, kept):
    """Ways that give the same are one."""
    of = roundings(dtype=torch.bfloat16)
    one = torch.ones(number)
    of.add(
        Elements(3 * one, one, one, one, 1.5 * one, one, 0 * one, one),
        torch.arange(number),
        torch.arange(number),
    )
    assert len(of._in_dtype) == kept
