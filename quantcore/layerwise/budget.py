"""The options of groups with the least summed error within a budget: a multiple-choice knapsack.

It is solved exactly, group by group: of all sums of costs and errors so far, those stay that no other beats
and that may still lead to a choice better than a known one (Nemhauser and Ullmann, 1969; bounds by the linear
relaxation: Sinha and Zoltners, 1979). Layers repeat, so sums coincide, and few stay. If more than `MOST` do,
options on the lower convex hull of each group are taken by falling error per cost, which is the optimum of
the linear relaxation but for one group; the gap to it is stated. Sums are exact, so that ties are ties and no
rounding exceeds the budget.
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

MOST = 20_000  # sums that are kept of one group; 200 groups of 10 options of models keep some hundred
NEAR = 40  # sums of one group, for a first choice that leaves few to be looked at


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
    found, gap = _along_hull(groups, limit)
    if gap:
        near = _least(groups, limit, found, NEAR) or found
        exact = _least(groups, limit, near)
        found, gap = (exact, Fraction(0)) if exact else (found, gap)
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


def _both(one: _Pick, other: _Pick) -> _Pick:
    return _Pick(one.cost + other.cost, one.error + other.error, one.options + other.options)


def _best(picks: list[_Pick]) -> list[_Pick]:
    """Return those that can be best, by rising cost and falling error."""
    kept: list[_Pick] = []
    for pick in sorted(picks, key=lambda pick: pick[:2]):
        if not kept or pick.error < kept[-1].error:
            kept.append(pick)
    return kept


def _least(
    groups: Sequence[Sequence[_Pick]], limit: int, known: _Pick, near: int | None = None
) -> _Pick | None:
    """Return the choice with the least error, then the least cost, within the limit; None if that takes long.

    Args:
        known: a choice within the limit, which may be the least.
        near: keep so many sums of each group, those with the lowest bounds, for a choice near it.
    """
    bounds = _Bounds(groups, limit, known)
    sums: list[tuple[int, int]] = [(0, 0)]
    came: list[list[tuple[int, int]]] = []  # of every sum, the sum before and the option that led there
    for i, group in enumerate(groups):
        most = limit - bounds.cheapest[i]
        more = sorted(
            (cost + option.cost, error + option.error, before, at)
            for at, option in enumerate(group)
            for before, (cost, error) in enumerate(sums)
            if cost + option.cost <= most
        )
        sums, steps = [], []
        for cost, error, *step in more:
            if not sums or error < sums[-1][1]:
                sums.append((cost, error))
                steps.append((step[0], step[1]))
        if len(sums) > MOST:
            return None
        kept = bounds.may_be_least(i, sums, near)
        sums = [own for own, keep in zip(sums, kept, strict=True) if keep]
        came.append([own for own, keep in zip(steps, kept, strict=True) if keep])
        if not sums:
            return known
    (cost, error), at = sums[-1], len(sums) - 1
    options: tuple[int, ...] = ()
    for group, own in zip(reversed(groups), reversed(came), strict=True):
        at, option = own[at]
        options = group[option].options + options
    return _Pick(cost, error, options)


class _Bounds:
    """By how much the groups still to come add to an error at least, by the linear relaxation.

    ``cheapest``: what the groups after each cost at least.
    """

    def __init__(self, groups: Sequence[Sequence[_Pick]], limit: int, known: _Pick) -> None:
        worst = sum(group[0].error for group in groups)
        # numbers of any size as floats; what rounding may come to is allowed for
        self._unit = [max(1, max(limit, known.cost) >> 1000), max(1, worst >> 1000)]
        self._limit = limit
        self._known = self._float(known.error, 1) * (1 + 1e-9) + self._float(worst, 1) * 1e-12
        steps = sorted(
            ((_slope(a, b), i, a, b) for i, group in enumerate(groups) for a, b in pairwise(_hull(group))),
            key=lambda step: -step[0],
        )
        self._of = np.array([i for _, i, _, _ in steps], int)
        self._costs = np.array([self._float(b.cost - a.cost, 0) for *_, a, b in steps])
        self._gains = np.array([self._float(a.error - b.error, 1) for *_, a, b in steps])
        self.cheapest = [sum(group[0].cost for group in groups[i + 1 :]) for i in range(len(groups))]
        self._errors = [sum(group[0].error for group in groups[i + 1 :]) for i in range(len(groups))]

    def _float(self, value: int, kind: int) -> float:
        return value / self._unit[kind]

    def may_be_least(self, group: int, sums: Sequence[tuple[int, int]], near: int | None) -> list[bool]:
        """Return which sums after a group may lead to an error no larger than that of the known choice."""
        left = [self._float(self._limit - self.cheapest[group] - cost, 0) for cost, _ in sums]
        errors = [self._float(error + self._errors[group], 1) for _, error in sums]
        ahead = self._of > group
        costs, gains = (np.append(0.0, np.cumsum(own[ahead])) for own in (self._costs, self._gains))
        lowest = np.array(errors) - np.interp(left, costs, gains)
        most = self._known
        if near is not None and len(sums) > near:
            most = min(most, np.partition(lowest, near)[near])
        kept: list[bool] = (lowest <= most).tolist()
        return kept


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
