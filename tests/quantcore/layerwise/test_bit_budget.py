"""`bit_budget` against brute force, two halves of it, and a table of every budget."""

import functools
import itertools
import math

import numpy as np
import pytest
from grid import for_each

import quantcore as qc
from quantcore.layerwise import budget_curve


def cases(rng, count, groups, options):
    """Real numbers, small integers with ties, and errors that fall as costs rise."""
    for number in range(count):
        shape = rng.integers(1, groups + 1), rng.integers(1, options + 1)
        if number % 3 == 0:
            errors, costs = rng.random(shape), rng.random(shape)
        elif number % 3 == 1:
            errors, costs = rng.integers(0, 4, shape), rng.integers(0, 4, shape)
        else:
            costs = np.sort(rng.integers(1, 50, shape))
            errors = 4.0 ** -(costs / 10) * rng.integers(1, 9, (shape[0], 1))
        low, high = math.fsum(costs.min(1)), math.fsum(costs.max(1))
        yield errors, costs, low + rng.random() * (high - low) if number % 5 else int(rng.integers(low, high + 1)) if number % 3 else low


def by_force(errors, costs, budget):
    rows = range(len(errors))
    return min(
        (round(sum(errors[i][o] for i, o in zip(rows, pick, strict=True)), 12), round(sum(costs[i][o] for i, o in zip(rows, pick, strict=True)), 12))
        for pick in itertools.product(range(len(errors[0])), repeat=len(errors))
        if math.fsum(costs[i][o] for i, o in zip(rows, pick, strict=True)) <= budget
    )


def checked(errors, costs, budget):
    """The least error and the cost that `bit_budget` finds."""
    found = qc.bit_budget(errors, costs, budget)
    rows = np.arange(len(errors))
    assert found.cost == pytest.approx(math.fsum(np.asarray(costs)[rows, found]), rel=1e-15)
    assert found.error == pytest.approx(math.fsum(np.asarray(errors)[rows, found]), rel=1e-15)
    assert found.cost <= budget
    return found


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_against_brute_force(count):
    large = (4, 4) if count < 1000 else (6, 5)
    for errors, costs, budget in cases(np.random.default_rng(1), count, *large):
        found = checked(errors, costs, budget)
        assert (found.error, found.cost) == pytest.approx(by_force(errors.tolist(), costs.tolist(), budget), abs=1e-11)
        assert found.gap == 0


def by_halves(errors, costs, budget):
    """The least error: every choice for half the groups, with the best that the rest of the budget buys for the others."""

    def sums(values):
        return functools.reduce(lambda total, own: np.add.outer(total, own).ravel(), values, np.zeros(1))

    half = len(errors) // 2
    first, second = slice(half), slice(half, None)
    order = np.argsort(sums(costs[second]))
    best = np.append(np.inf, np.minimum.accumulate(sums(errors[second])[order]))
    affordable = np.searchsorted(sums(costs[second])[order], budget - sums(costs[first]), side="right")
    return (sums(errors[first]) + best[affordable]).min()


@pytest.mark.parametrize("count", [4, pytest.param(200, marks=pytest.mark.slow)])
def test_against_two_halves(count):
    rng = np.random.default_rng(2)
    for _ in range(count):
        shape = int(rng.integers(7, 13 if count > 4 else 9)), int(rng.integers(3, 7 if count > 4 else 5))
        costs = np.sort(rng.integers(1, 1000, shape)).astype(float)
        errors = 2.0 ** -(costs / 200) * rng.random((shape[0], 1)) * rng.uniform(0.8, 1.2, shape)
        budget = costs.min(1).sum() + rng.random() * (costs.max(1) - costs.min(1)).sum()
        assert checked(errors, costs, budget).error == pytest.approx(by_halves(errors, costs, budget), rel=1e-12)


def by_table(errors, costs, budget):
    """The least error by a table of every budget in whole numbers."""
    table = np.zeros(budget + 1)
    for own, of in zip(errors, costs, strict=True):
        rows = [np.concatenate([np.full(cost, np.inf), table])[: budget + 1] + error for error, cost in zip(own, of, strict=True)]
        table = np.min(rows, 0)
    return table[budget]


@pytest.mark.parametrize("count", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_models_are_solved_exactly(count):
    """Layers of a few sizes, and sizes that all differ, with errors that fall fourfold per bit."""
    rng = np.random.default_rng(3)
    for number, (groups, options) in itertools.product(range(count), [(26, 3), (60, 8), (90, 10)][: 1 + count]):
        bits = np.sort(rng.integers(30, 85, options)) / 10
        sizes = rng.choice([20, 50, 110], (groups, 1)) if number % 2 == 0 else rng.integers(10, 200, (groups, 1))
        costs = np.rint(sizes * bits).astype(int)
        errors = 4.0**-bits * rng.lognormal(size=(groups, 1)) * rng.uniform(0.9, 1.1, (groups, options))
        low, high = int(costs.min(1).sum()), int(costs.max(1).sum())
        curve = budget_curve(errors, costs)
        for budget in np.linspace(low, high, 6).astype(int):
            found = checked(errors, costs, int(budget))
            assert found.error == pytest.approx(by_table(errors, costs, budget), rel=1e-12)
            assert found.gap == 0
            assert found.error <= min(choice.error for choice in curve if choice.cost <= budget) * (1 + 1e-12)
        assert [c.cost for c in curve] == sorted(c.cost for c in curve)
        assert curve[-1].error == pytest.approx(errors.min(1).sum())


def test_what_would_take_too_long_states_its_gap(monkeypatch):
    """On cases that are also solved exactly."""
    rng = np.random.default_rng(4)
    stated = 0
    for errors, costs, budget in cases(rng, 60, 4, 4):
        exact = qc.bit_budget(errors, costs, budget)
        with monkeypatch.context() as patch:
            patch.setattr("quantcore.layerwise.budget.MOST", 0)
            found = checked(errors, costs, budget)
        assert exact.error - 1e-12 <= found.error <= exact.error + found.gap + 1e-12
        stated += found.gap > 0
    assert stated > 10


def test_ties_go_to_the_smaller_cost():
    assert qc.bit_budget([[1, 1, 1]], [[3, 2, 4]], 9) == (1,)
    assert qc.bit_budget([[1, 2], [1, 2]], [[2, 1], [2, 1]], 3).cost == 3
    assert qc.bit_budget([[0.0, 0.0]] * 3, [[5, 0]] * 3, 15) == (1, 1, 1)


def test_a_budget_that_is_just_met():
    """Ten costs of 0.1 are within 1, though added in order they round below it, and 0.30000000000000004 is not within 0.3."""
    assert qc.bit_budget([[1.0, 0.0]] * 10, [[0.0, 0.1]] * 10, 1.0).cost == 1
    assert qc.bit_budget([[1.0, 0.0]], [[0.0, 0.1 + 0.2]], 0.3) == (0,)
    assert qc.bit_budget([[1.0, 0.0]], [[0.0, 5e-324]], 5e-324) == (1,)
    assert qc.bit_budget([[1e300, 1e-300]], [[0.0, 1e300]], math.inf) == (1,)
    costs = np.random.default_rng(5).random((9, 2))
    for order in (costs, costs[::-1]):  # the cheapest, added in order
        assert qc.bit_budget(np.ones_like(costs), order, sum(order.min(1))) == tuple(order.argmin(1))
    assert qc.bit_budget(np.empty((0, 3)), np.empty((0, 3)), 0) == ()


@for_each(
    ("errors", "costs", "budget", "said"),
    [
        ([[1.0]], [[3.0]], 2, "No choice is within the budget of 2: the cheapest options of the 1 groups cost 3"),
        ([[math.nan]], [[3.0]], 5, "errors must be finite and not negative"),
        ([[1.0]], [[-1.0]], 5, "costs must be finite and not negative"),
        ([[1.0, 2.0]], [[1.0]], 5, r"errors have shape \(1, 2\), but costs have \(1, 1\)"),
        ([1.0], [1.0], 5, r"errors must be numbers of shape \(groups, options\)"),
        ([["a"]], [[1.0]], 5, "errors must be numbers"), ([[1.0]], [[1.0]], math.nan, "The budget must be a number"),
    ],
)  # fmt: skip
def test_what_can_not_be_chosen_is_said(errors, costs, budget, said):
    with pytest.raises(qc.QuantError, match=said):
        qc.bit_budget(errors, costs, budget)
