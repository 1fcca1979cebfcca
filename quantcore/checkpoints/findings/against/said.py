"""Findings on single scales, zero points and codes."""

import math
from typing import Any

from quantcore.checkpoints.comparison.orders import Order
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.nearest import KEPT
from quantcore.checkpoints.findings.against.places import Lines, Place, Run, wrong_runs
from quantcore.checkpoints.findings.record import CheckpointFinding, error, note
from quantcore.checkpoints.findings.siblings import alike
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.tensor import CheckpointTensor

_MATTERS = 0.05  # of the mean x² of the weight: smaller errors don't count
_ZEROED = 10.0  # times the error of a typical run, for one whose codes are all 0: some of its elements are steps away
_WORSE = 30.0  # times the error of a typical run, for one that no cause explains
_FEEDBACK = 3.0  # times more where codes are not rounded to nearest: error feedback leaves large errors on purpose


def of_codes_and_runs(measure: Measure, tensor: CheckpointTensor) -> list[CheckpointFinding]:
    """Return what is wrong with single scales, zero points and codes."""
    if measure.grid is None:
        return []
    lines = Lines(tensor, measure.source, measure)
    explained, left = wrong_runs(lines)
    found = [_of_places(measure.layout, same) for same in alike(explained, _cause).values()]
    taken = {(p.row, lines.start_of(p.column)) for p in explained}
    codes = _codes(measure, lines, taken)
    if codes:
        found.append(codes)
    if not found:
        found += _worse(measure, lines, left)
    return found


def of_order(layout: Layout, order: Order) -> CheckpointFinding:
    """Return the note on llama.cpp's order of rows."""
    return note(
        layout, "rows_permuted",
        "{has} the rows of each of {its} {heads} heads in a different order than the original ({order}): llama.cpp permutes q "
        "and k for rotary embeddings.", heads=order.heads, order=str(order),
    )  # fmt: skip


def _cause(place: Place) -> tuple[str, float, int]:
    """Return what places of one cause share: about the same factor, too."""
    return place.what, round(place.factor, 1 if abs(place.factor) > 1 else 3), place.bit


def _of_places(layout: Layout, places: list[Place]) -> CheckpointFinding:
    """Return the finding on scales, zero points or mins that are wrong for the same reason."""
    first, rows = places[0], len({place.row for place in places})
    facts: dict[str, Any] = {
        "factor": first.factor, "row": first.row, "first": first.column, "last": first.stop - 1, "rows": rows,
        "runs": len(places), "bit": first.bit, "before": first.before, "after": first.after,
    }  # fmt: skip
    if len(places) == 1:
        where = "row {row}, columns {first} to {last}"
    elif rows == 1:
        where = "{runs:block} of row {row}"
    else:
        where = "{runs:block} in {rows:row}, the first of them row {row}, columns {first} to {last}"
    after = "with that undone, the relative error there is {after} instead of {before}"
    if first.what == "zero point":
        facts["steps"] = int(first.factor)
        words = f"{{has}} a zero point that is off by {{steps}} in {where}: {after}."
    else:
        bit = " (bit {bit} of the stored number is flipped)" if first.bit >= 0 else ""
        words = f"{{has}} a {first.what} that is wrong by the factor {{factor}} in {where}{bit}: {after}."
    return error(layout, f"{first.what.replace(' ', '_')}_wrong", words, **facts)


def _codes(measure: Measure, lines: Lines, taken: set[tuple[int, int]]) -> CheckpointFinding | None:
    """Codes that are not the nearest, in a weight whose codes are."""
    if measure.nearest is None or measure.nearest.in_few_columns:  # moved before they were rounded
        return None
    places = [p for p in measure.nearest.places if (p.row, lines.start_of(p.column)) not in taken]
    if not places:
        return None
    first = max(places, key=lambda p: p.steps)
    stored, nearest = lines.codes_at(first.row, first.column)
    changed = stored ^ nearest
    facts: dict[str, Any] = {
        "elements": len(places), "row": first.row, "column": first.column, "steps": first.steps, "code": stored, "nearest": nearest,
    }  # fmt: skip
    least = "at least " * (len(places) == KEPT)
    others = "all" if measure.nearest.unexplained == len(places) else "nearly all"
    words = (
        f"{{has}} {least}{{elements:code}} that rounding can't give, although {others} others are rounded to nearest: at row "
        "{row}, column {column}, the error is {steps} steps"
    )
    if changed and not changed & (changed - 1):
        facts["bit"] = changed.bit_length() - 1
        words += "; bit {bit} of its code is flipped"
    return error(measure.layout, "code_impossible", words + ".", **facts)


def _worse(measure: Measure, lines: Lines, left: list[tuple[Place, Run]]) -> list[CheckpointFinding]:
    """Runs that are worse than nothing, and far from all others, without a known cause."""
    level = {(row, column): mean for mean, row, column in measure.runs}
    usual = measure.sums.xx / math.prod(measure.layout.shape)  # mean x²
    zeroed, bad = [], []
    for place, run in left:
        if run.error(run.y) <= _MATTERS * usual * len(run.x):
            continue
        times = level.get((place.row, lines.start_of(place.column)), 0.0) / max(1.0, measure.bulk)
        if not run.y.any() and times > _ZEROED:
            zeroed.append(place)
        if measure.nearest is not None:
            is_bad = place.before > 1 and times > _WORSE
        else:
            is_bad = place.before > 2 and times > _FEEDBACK * _WORSE
        if is_bad:
            bad.append(place)
    if zeroed:
        words = "{is} 0 in {runs:block} where the original is not, the first of them in row {row}, columns {first} to {last}."
        return [error(measure.layout, "zeroed", words, **_where(zeroed, zeroed[0]))]
    if not bad:
        return []
    worst = max(bad, key=lambda p: p.before)
    words = (
        "{has} {runs:block} that no longer resemble the original, the worst of them in row {row}, columns {first} to {last}: the "
        "relative error there is {before}."
    )
    return [error(measure.layout, "block_far", words, **_where(bad, worst), before=worst.before)]


def _where(places: list[Place], one: Place) -> dict[str, int]:
    """Return the number of runs, and the place of one of them."""
    return {"runs": len(places), "row": one.row, "first": one.column, "last": one.stop - 1}
