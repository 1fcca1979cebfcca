"""Every rounding against exact arithmetic, and stochastic rounding by its mean."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

from quantcore import QuantError
from quantcore.numerics.rounding import NAMES, ROUNDINGS, Stochastic, rounding

HALF = Fraction(1, 2)
EXACT = {
    "half_even": round,  # Python rounds a Fraction half to even
    "half_away": lambda v: int(math.copysign(math.floor(abs(v) + HALF), v)),
    "half_up": lambda v: math.floor(v + HALF),
    "floor": math.floor,
    "ceil": math.ceil,
    "toward_zero": math.trunc,
}


def hard_values():
    """Integers, ties and tiny numbers with their float32 neighbors, up to magnitudes with integers only."""
    seeds = [k / 2 for k in range(-40, 41)] + [2.0**k for k in range(-149, 40, 3)]
    seeds += [2.0**23 - 0.5, 2.0**22 + 0.5, 2.0**22 - 0.25, 8388607.5, 1234567.5, 3e38]
    base = np.array(seeds + [-s for s in seeds], dtype=np.float32)
    near = [base, np.nextafter(base, np.float32(np.inf)), np.nextafter(base, np.float32(-np.inf))]
    return torch.from_numpy(np.unique(np.concatenate(near)))


@for_each("name", ROUNDINGS)
def test_exact(name):
    values = hard_values()
    work = values.clone()
    rounded = rounding(name)(work)
    assert rounded.data_ptr() == work.data_ptr(), "must work in place"
    assert [int(v) for v in rounded.tolist()] == [EXACT[name](Fraction(v)) for v in values.tolist()]


def microxcaling(values, even):
    """The rounding of mx/elemwise_ops.py:66-74 (microxcaling 7bc4195), in numpy's float32."""
    size = np.abs(values.numpy())
    half = np.float32(0.5)
    tie = (np.remainder(size - half, np.float32(2)) == 0) if even else np.zeros_like(size)
    return np.copysign(np.floor(size + half) - tie, values.numpy())


@for_each("name", ["half_away_of_sum", "half_even_of_sum"])
@for_each("end", [2.0**22, 3.4e38], ids=["where float32 has every half", "all"])  # separate code paths
@for_each("below_half", [True, False], ids=["with 0.49999997", "without"])
def test_sums_are_microxcaling_s(name, end, below_half):
    values = hard_values()
    values = values[(values.abs() < end) & (below_half | (values.abs() != 0.5 - 2.0**-25))]
    expected = microxcaling(values, even=name == "half_even_of_sum")
    assert rounding(name)(values.clone()).numpy().tobytes() == expected.astype(np.float32).tobytes()


@for_each("name", NAMES)
def test_nothing_becomes_of_nan_and_infinity(name):
    rounded = rounding(name)(torch.tensor([math.nan, math.inf, -math.inf]))
    assert math.isnan(rounded[0])
    assert rounded[1:].tolist() == [math.inf, -math.inf]


@for_each("value", some([-0.3, 0.5, 0.1, 2.75, -17.001, 0.999, 1000.25], 3))
def test_stochastic_is_unbiased(value):
    """Each draw is one of the two neighbors. By Hoeffding, the mean of n is off by more than t at most once in
    1/(2 exp(-2 n t²)) runs, here 10^12; the probability is a multiple of 2^-24, which adds less than that."""
    n = 1 << 20
    exact = float(np.float32(value))
    drawn = Stochastic(seed=5)(torch.full((n,), value)).to(torch.float64)
    assert set(drawn.tolist()) == {math.floor(exact), math.ceil(exact)}
    bound = math.sqrt(math.log(2e12) / (2 * n)) + 2**-24
    assert abs(drawn.mean().item() - exact) < bound


def test_stochastic_leaves_whole_numbers():
    whole = torch.arange(-1000.0, 1000.0)
    assert torch.equal(Stochastic(3)(whole.clone()), whole)


def test_stochastic_is_seeded():
    x = torch.linspace(-3, 3, 1001)
    drawn = rounding("stochastic_7")(x.clone())
    assert torch.equal(drawn, rounding("stochastic_7")(x.clone()))
    assert not torch.equal(drawn, rounding("stochastic_8")(x.clone()))
    assert torch.equal(rounding("stochastic")(x.clone()), rounding("stochastic_0")(x.clone()))


def test_stochastic_in_pieces_is_as_in_one():
    x, pieces = torch.linspace(-3, 3, 10_007), Stochastic(1)
    parts = [pieces(part.clone()) for part in x.split(1000)]
    assert torch.equal(torch.cat(parts), Stochastic(1)(x.clone()))


@for_each("name", ["", "half", "Floor", "stochastic_", "stochastic_-1", "stochastic_1.5", None, 3])
def test_names_that_are_none(name):
    with pytest.raises(QuantError, match="choose half_even"):
        rounding(name)


def test_a_seed_too_large():
    with pytest.raises(QuantError, match="seed 9999999999"):
        rounding("stochastic_9999999999")
