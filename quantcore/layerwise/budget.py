"""The options of groups with the least summed error within a budget: a multiple-choice knapsack.

Up to `EXACT` combinations of half of the groups it is exact: the groups are split in two halves, all
combinations of each are listed, and the best pairs are found by sorting (Horowitz and Sahni, 1974). Beyond,
options on the lower convex hull of each group are taken by falling error per cost, which is the optimum of
the linear relaxation but for one group; the gap to it is stated (Sinha and Zoltners, 1979). Sums are exact,
so that ties are ties and no rounding exceeds the budget.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from quantcore.errors import QuantError

EXACT = 6**6  # combinations of half of the groups: 12 groups with 6 options each


class Allocation(tuple[int, ...]):
    """The option of every group, with their summed ``error`` and ``cost``.

    ``gap``: how much larger the error may be than the least possible one; 0 if it is the least.
    """

    error: float
    cost: float
    gap: float

    @classmethod
    def of(cls, options: Sequence[int], error: float, cost: float, gap: float = 0.0) -> "Allocation":
        """Return a choice."""
        found = cls(options)
        found.error, found.cost, found.gap = error, cost, gap
        return found


class _Pick(NamedTuple):
    """The option of one group or of several; their summed cost and error are integers in common units."""

    cost: int
    error: int
    options: tuple[int, ...] = ()


def bit_budget(errors: Any, costs: Any, budget: float) -> Allocation:
    """Return the option of each group with the least summed error at a summed cost of at most ``budget``.

    Args:
        errors, costs: of shape (groups, options), finite and not negative; costs in the budget's unit.

    >>> choice = bit_budget([[9.0, 1.0], [4.0, 3.0]], [[2, 4], [2, 4]], 6)
    >>> tuple(choice), choice.error, choice.gap
    ((1, 0), 5.0, 0.0)

    Raises:
        QuantError: the shapes differ, a number is not finite or negative, or no choice is within the budget.
    """
    groups, error_unit, cost_unit = _groups(errors, costs)
    limit = _limit(budget, cost_unit)
    cheapest = [group[0].cost for group in groups]
    least = sum(cheapest)
    in_floats = sum(float(cost * cost_unit) for cost in cheapest)  # as the one who asks may have added them
    if in_floats <= float(budget):
        limit = max(limit, least)
    if least > limit:
        raise QuantError(
            f"No choice is within the budget of {budget:g}: the cheapest options of the {len(groups):,} "
            f"groups cost {float(least * cost_unit):g}. Raise the budget, or give cheaper options."
        )
    middle = _middle(groups)
    if max(math.prod(map(len, half)) for half in (groups[:middle], groups[middle:])) <= EXACT:
        found, gap = _best_pair(_picks(groups[:middle]), _picks(groups[middle:]), limit), Fraction(0)
    else:
        found, gap = _along_hull(groups, limit)
    error, cost = float(found.error * error_unit), float(found.cost * cost_unit)
    return Allocation.of(found.options, error, cost, float(gap * error_unit))


def budget_curve(errors: Any, costs: Any) -> list[Allocation]:
    """Return the choices on the lower convex hull of error against cost, the cheapest first.

    Each has the least error of all choices that cost as much or less.

    >>> curve = budget_curve([[9.0, 1.0], [4.0, 3.0]], [[2, 4], [2, 4]])
    >>> [(tuple(choice), choice.cost, choice.error) for choice in curve]
    [((0, 0), 4.0, 13.0), ((1, 0), 6.0, 5.0), ((1, 1), 8.0, 4.0)]

    Raises:
        QuantError: as in `bit_budget`.
    """
    groups, error_unit, cost_unit = _groups(errors, costs)
    found = [pick for pick, _ in _hull_path(groups)]
    return [Allocation.of(p.options, float(p.error * error_unit), float(p.cost * cost_unit)) for p in found]


def _groups(errors: Any, costs: Any) -> tuple[list[list[_Pick]], Fraction, Fraction]:
    """Return each group's options that can be best, by rising cost and falling error, and both units."""
    checked = []
    for name, values in (("errors", errors), ("costs", costs)):
        try:
            array = np.asarray(values, np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.ndim != 2 or not array.shape[1]:
            raise QuantError(f"{name} must be numbers of shape (groups, options), with one option or more.")
        if not np.isfinite(array).all() or (array < 0).any():
            raise QuantError(
                f"{name} must be finite and not negative; leave out options that can't be chosen."
            )
        checked.append(array)
    if checked[0].shape != checked[1].shape:
        raise QuantError(
            f"errors have shape {checked[0].shape}, but costs have {checked[1].shape}; give one cost per "
            "error."
        )
    (of_errors, error_unit), (of_costs, cost_unit) = map(_integers, checked)
    groups = [
        _best([_Pick(cost, error, (i,)) for i, (error, cost) in enumerate(zip(*row, strict=True))])
        for row in zip(of_errors, of_costs, strict=True)
    ]
    return groups, error_unit, cost_unit


def _integers(values: np.ndarray) -> tuple[list[list[int]], Fraction]:
    """Return the numbers as multiples of a power of two, exactly, with that power."""
    ratios = [[float(v).as_integer_ratio() for v in row] for row in values]
    unit = max((below for row in ratios for _, below in row), default=1)
    return [[above * (unit // below) for above, below in row] for row in ratios], Fraction(1, unit)


def _limit(budget: float, unit: Fraction) -> int:
    """Return the largest cost that is ``budget`` or less once it is rounded to a float."""
    budget = float(budget)
    if math.isnan(budget) or budget < 0:
        raise QuantError(f"The budget must be a number of 0 or more, not {budget:g}.")
    if math.isinf(budget) or budget == math.nextafter(math.inf, 0):
        return int(Fraction(math.nextafter(math.inf, 0)) * 2**64 / unit)
    limit = math.floor((Fraction(budget) + Fraction(math.nextafter(budget, math.inf))) / 2 / unit)
    return limit if float(limit * unit) <= budget else limit - 1


def _middle(groups: Sequence[Sequence[_Pick]]) -> int:
    """Return where to split the groups so that the half with more combinations has as few as possible."""
    sizes = [len(group) for group in groups]
    return min(range(len(sizes) + 1), key=lambda i: max(math.prod(sizes[:i]), math.prod(sizes[i:])))


def _picks(groups: Sequence[Sequence[_Pick]]) -> list[_Pick]:
    """Return the combinations that can be best, by rising cost and falling error."""
    picks = [_Pick(0, 0)]
    for group in groups:
        picks = _best([_both(pick, option) for pick in picks for option in group])
    return picks


def _both(one: _Pick, other: _Pick) -> _Pick:
    return _Pick(one.cost + other.cost, one.error + other.error, one.options + other.options)


def _best(picks: list[_Pick]) -> list[_Pick]:
    """Return those that can be best, by rising cost and falling error."""
    kept: list[_Pick] = []
    for pick in sorted(picks, key=lambda pick: pick[:2]):
        if not kept or pick.error < kept[-1].error:
            kept.append(pick)
    return kept


def _best_pair(first: list[_Pick], second: list[_Pick], limit: int) -> _Pick:
    """Return the pair with the least error, then the least cost, within the limit."""
    costs = [pick.cost for pick in second]
    pairs = (_both(a, second[at - 1]) for a in first if (at := bisect_right(costs, limit - a.cost)))
    return min(pairs, key=lambda pair: (pair.error, pair.cost))


def _hull(options: Sequence[_Pick]) -> list[_Pick]:
    """Return the options on the lower convex hull of error against cost."""
    hull: list[_Pick] = []
    for option in options:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) <= _slope(hull[-1], option):
            hull.pop()
        hull.append(option)
    return hull


def _slope(one: _Pick, other: _Pick) -> Fraction:
    """Return by how much the error falls per cost."""
    return Fraction(one.error - other.error, other.cost - one.cost)


def _hull_path(groups: Sequence[Sequence[_Pick]]) -> list[tuple[_Pick, Fraction]]:
    """Return the choices along the hulls, each with the slope of the step that led there."""
    hulls = [_hull(group) for group in groups]
    steps = sorted(
        ((_slope(a, b), i, a, b) for i, hull in enumerate(hulls) for a, b in pairwise(hull)),
        key=lambda step: (-step[0], step[1], step[2].cost),
    )
    pick = reduce(_both, (hull[0] for hull in hulls), _Pick(0, 0))
    path = [(pick, Fraction(0))]
    for slope, i, a, b in steps:
        pick = _changed(pick, i, a, b)
        path.append((pick, slope))
    return path


def _changed(pick: _Pick, i: int, a: _Pick, b: _Pick) -> _Pick:
    """Return a pick in which group ``i`` has option b instead of a."""
    options = pick.options[:i] + b.options + pick.options[i + 1 :]
    return _Pick(pick.cost + b.cost - a.cost, pick.error + b.error - a.error, options)


def _along_hull(groups: Sequence[Sequence[_Pick]], limit: int) -> tuple[_Pick, Fraction]:
    """Return a choice within the limit, and how far its error may be from the least."""
    path = _hull_path(groups)
    at = bisect_right([pick.cost for pick, _ in path], limit) - 1
    pick, bound = path[at][0], Fraction(path[at][0].error)
    if at + 1 < len(path):
        bound -= path[at + 1][1] * (limit - pick.cost)
    held = [
        next(option for option in group if option.options == (at,))
        for group, at in zip(groups, pick.options, strict=True)
    ]
    while True:  # what is left of the budget goes where the error falls most
        better = [
            (held[i].error - o.error, held[i].cost - o.cost, i, o)
            for i, group in enumerate(groups) for o in group
            if o.error < held[i].error and pick.cost + o.cost - held[i].cost <= limit
        ]  # fmt: skip
        if not better:
            return pick, max(Fraction(0), pick.error - bound)
        _, _, i, option = max(better, key=lambda found: found[:2])
        pick, held[i] = _changed(pick, i, held[i], option), option
