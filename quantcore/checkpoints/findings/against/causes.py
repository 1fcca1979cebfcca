"""Why the error of a weight is wrong: every hypothesis predicts values, and the simplest one that explains the error wins.

A hypothesis is a function that yields what it predicts with the fit, see `Explained`. What it claims has been computed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from quantcore.checkpoints.findings.against import numbers, orders, others
from quantcore.checkpoints.findings.against.suspect import FEW, Explained, Fit, Suspect

Hypothesis = Callable[[Suspect], Iterator[Explained]]
# those that some rows show: they are tried on few, and verified on all
LOCAL: tuple[Hypothesis, ...] = (
    numbers.sign_flipped, numbers.constant_factor, numbers.zero_point_off, numbers.code_bits, numbers.other_bits,
    others.scales_of_another, others.zero_points_of_another, others.whole_of_another, orders.codes_in_words,
    orders.groups_of_columns, numbers.factor_per_row, numbers.factor_per_column, numbers.factor_per_block,
)  # fmt: skip
# those that need all rows
GLOBAL: tuple[Hypothesis, ...] = (
    orders.transposed, orders.rows_of_words, orders.rows_in_another_order, orders.columns_in_another_order,
)  # fmt: skip
# what single rows and columns that are far from the original are explained by
OF_PLACES: tuple[Hypothesis, ...] = (
    orders.rows_in_another_order, orders.columns_in_another_order, orders.groups_of_columns, numbers.factor_per_row,
    numbers.factor_per_column,
)  # fmt: skip
_CLOSE = 1.15  # hypotheses whose errors differ by less than this factor explain equally well


def cause_of(suspect: Suspect) -> Explained | None:
    """Return the simplest hypothesis that explains the error; None if none does."""
    few = replace(suspect, most=FEW)
    likely = [h for h in LOCAL if any(few.explains(e.fit) for e in h(few))]
    found = _found(suspect, likely, suspect.explains)
    if not found and not few.in_place:
        found = _found(suspect, GLOBAL, suspect.explains)
    if not found:
        return next(iter(others.codes_of_another(suspect)), None) if suspect.is_far else None
    return _simplest(found)


def cause_of_places(suspect: Suspect) -> Explained | None:
    """Return the hypothesis that explains why some rows or columns are far from the original."""
    found = _found(suspect, OF_PLACES, suspect.improves)
    return _simplest(found) if found else None


def _found(suspect: Suspect, hypotheses: Iterable[Hypothesis], is_enough: Callable[[Fit], bool]) -> list[Explained]:
    return [e for hypothesis in hypotheses for e in hypothesis(suspect) if is_enough(e.fit)]


def _simplest(found: Sequence[Explained]) -> Explained:
    best = min(e.fit.relative for e in found)
    near = [e for e in found if e.fit.relative <= _CLOSE * best + 1e-7]
    return min(near, key=lambda e: (e.complexity, e.fit.relative))
