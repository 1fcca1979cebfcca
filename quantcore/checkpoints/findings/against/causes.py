"""Why the error of a weight is wrong: every hypothesis predicts values, and the simplest one that explains the error wins.

A hypothesis is a function that yields what it predicts with the fit, see `Explained`. What it claims has been computed.
"""

from collections.abc import Callable, Iterator

from quantcore.checkpoints.findings.against import numbers, orders, others
from quantcore.checkpoints.findings.against.suspect import Explained, Suspect

HYPOTHESES: tuple[Callable[[Suspect], Iterator[Explained]], ...] = (
    numbers.sign_flipped,
    numbers.constant_factor,
    numbers.zero_point_off,
    numbers.code_bits,
    numbers.other_bits,
    others.scales_of_another,
    others.zero_points_of_another,
    others.whole_of_another,
    orders.transposed,
    orders.swapped_codes,
    orders.rows_in_another_order,
    orders.columns_in_another_order,
    orders.groups_of_columns,
    numbers.factor_per_row,
    numbers.factor_per_column,
    numbers.factor_per_block,
)
_CLOSE = 1.15  # hypotheses whose errors differ by less than this factor explain equally well


def cause_of(suspect: Suspect) -> Explained | None:
    """Return the simplest hypothesis that explains the error; None if none does."""
    found = [e for hypothesis in HYPOTHESES for e in hypothesis(suspect) if suspect.explains(e.fit)]
    if not found:
        return next((e for e in others.codes_of_another(suspect)), None)
    best = min(e.fit.relative for e in found)
    near = [e for e in found if e.fit.relative <= _CLOSE * best + 1e-7]
    return min(near, key=lambda e: (e.complexity, e.fit.relative))
