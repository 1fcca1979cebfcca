"""Findings on single scales, zero points and codes, and on bits that leaked."""

import math
from typing import Any

from quantcore.checkpoints.comparison.row_order import RowOrder
from quantcore.checkpoints.findings.against.leak import Leak
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.places import Lines, Place, Run, wrong_runs
from quantcore.checkpoints.findings.record import CheckpointFinding, error, note
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.tensor import CheckpointTensor

_MATTERS = 0.05  # of the mean x² of the weight: smaller errors don't count
_ZEROED = 10.0  # times the error of a typical run, for one whose codes are all 0: some of its elements are steps away
_WORSE = 30.0  # times the error of a typical run, for one that no cause explains


def of_leak(layout: Layout, leak: Leak) -> CheckpointFinding:
    """Return the finding on a leak."""
    return error(
        layout,
        "bit_leak",
        "{has} larger errors in {worse} {what} than in {better} ones: {its} mean squared error against the original is "
        "{large} there, {small} elsewhere. Bits leaked between codes that share a byte because the packer did not mask "
        "them; pack the weight again.",
        worse=leak.worse,
        better="even" if leak.worse == "odd" else "odd",
        what=leak.what,
        large=leak.large,
        small=leak.small,
    )


def of_codes_and_runs(measure: Measure, tensor: CheckpointTensor) -> list[CheckpointFinding]:
    """Return what is wrong with single scales, zero points and codes."""
    if measure.grid is None or not (measure.runs or measure.nearest is not None):
        return []
    lines = Lines(tensor, measure.source, measure)
    explained, left = wrong_runs(lines)
    found = [_of_places(measure.layout, same) for same in _alike(explained)]
    taken = {(p.row, lines.start_of(p.column)) for p in explained}
    codes = _codes(measure, lines, taken)
    if codes:
        found.append(codes)
    if not found:
        found += _worse(measure, lines, left)
    return found


def of_order(layout: Layout, order: RowOrder) -> CheckpointFinding:
    """Return the note on llama.cpp's order of rows."""
    return note(
        layout, "rows_permuted",
        "{has} the rows of each of {its} {heads} heads in a different order than the original ({order}): llama.cpp permutes q "
        "and k for rotary embeddings.", heads=order.orders.heads, order=str(order),
    )  # fmt: skip


def _alike(places: list[Place]) -> list[list[Place]]:
    """Group places with the same cause."""
    groups: dict[tuple[str, float, int], list[Place]] = {}
    for place in places:
        key = (
            place.what,
            round(place.factor, 1) if abs(place.factor) > 1 else round(place.factor, 3),
            place.bit,
        )
        groups.setdefault(key, []).append(place)
    return list(groups.values())


def _of_places(layout: Layout, places: list[Place]) -> CheckpointFinding:
    first = places[0]
    facts: dict[str, Any] = {
        "factor": first.factor, "row": first.row, "first": first.column, "last": first.stop - 1, "rows": len({p.row for p in places}),
        "runs": len(places), "bit": first.bit, "before": first.before, "after": first.after,
    }  # fmt: skip
    where = "row {row}, columns {first} to {last}"
    if len(places) > 1:
        one = facts["rows"] == 1
        where = (
            "{runs:block} of row {row}"
            if one
            else "{runs:block} in {rows:row}, the first of them row {row}, columns {first} to {last}"
        )
    after = "with that undone, the relative error there is {after} instead of {before}"
    kind = {"scale": "scale_wrong", "zero point": "zero_point_wrong", "min": "min_wrong"}[first.what]
    if first.what == "zero point":
        facts["steps"] = int(first.factor)
        words = f"{{has}} a zero point that is off by {{steps}} in {where}: {after}."
    else:
        bit = " (bit {bit} of the stored number is flipped)" if first.bit >= 0 else ""
        words = f"{{has}} a {first.what} that is wrong by the factor {{factor}} in {where}{bit}: {after}."
    return error(layout, kind, words, **facts)


def _codes(measure: Measure, lines: Lines, taken: set[tuple[int, int]]) -> CheckpointFinding | None:
    """Codes that are not the nearest, in a weight whose codes are."""
    if measure.nearest is None:
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
    words = "{has} {elements:code} that rounding can't give, although all others are rounded to nearest: at row {row}, column {column}, the error is {steps} steps"
    if changed and not changed & (changed - 1):
        facts["bit"] = changed.bit_length() - 1
        words += "; bit {bit} of its code is flipped"
    return error(measure.layout, "code_impossible", words + ".", **facts)


def _worse(measure: Measure, lines: Lines, left: list[tuple[Place, Run]]) -> list[CheckpointFinding]:
    """Runs that are worse than nothing, and far from all others, without a known cause."""
    level = {(row, column): mean for mean, row, column in measure.runs}
    # error feedback leaves large errors on purpose
    rare, worst = (1.0, 1.0) if measure.nearest is not None else (3.0, 2.0)
    usual = measure.original / math.prod(measure.layout.shape)  # mean x²
    matter = [
        (p, not run.y.any(), level.get((p.row, lines.start_of(p.column)), 0.0) / max(1.0, measure.bulk))
        for p, run in left if run.error(run.y) > _MATTERS * usual * len(run.x)
    ]  # fmt: skip
    zeroed = [p for p, is_zero, times in matter if is_zero and times > _ZEROED]
    if zeroed:
        first = zeroed[0]
        return [
            error(
                measure.layout, "zeroed",
                "{is} 0 in {runs:block} where the original is not, the first of them in row {row}, columns {first} to {last}.",
                runs=len(zeroed), row=first.row, first=first.column, last=first.stop - 1,
            )
        ]  # fmt: skip
    bad = [p for p, _, times in matter if p.before > worst and times > _WORSE * rare]
    if not bad:
        return []
    first = max(bad, key=lambda p: p.before)
    words = "{has} {runs:block} that no longer resemble the original, the first of them in row {row}, columns {first} to {last}: the relative error there is {before}"
    return [
        error(
            measure.layout, "block_far", words + ".", runs=len(bad), row=first.row,
            first=first.column, last=first.stop - 1, before=first.before,
        )
    ]  # fmt: skip
