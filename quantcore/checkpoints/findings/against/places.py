"""Single scales, zero points and codes that the original contradicts, and the findings on them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.findings.against.grid import FLOAT_ROOM, KEPT, Nearest, nearest_power
from quantcore.checkpoints.findings.against.measure import RUNS, Measure
from quantcore.checkpoints.findings.record import CheckpointFinding, alike, error
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.formats import IntFormat, e8m0

STANDS_OUT = 6.0  # times the mean squared error of the weight: such runs of columns are looked at
_MOST_OFFSET = 1 << 16  # steps
_LEAST = 6  # elements that a factor is estimated from
_CLOSE = 1.1  # causes whose errors differ by less than this factor fit alike
_EXPLAINED = 0.25  # of the squared error may be left
_READ = {
    "F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8, "F8_E8M0": torch.uint8,
}  # fmt: skip
_MATTERS = 0.05  # of the mean x² of the weight: smaller errors don't count
_ZEROED = 10.0  # times the error of a typical run, for one whose codes are all 0: some are steps away
_WORSE = 30.0  # times the error of a typical run, for one that no cause explains
_FEEDBACK = 3.0  # times more without rounding to nearest: error feedback leaves large errors on purpose


@dataclass(frozen=True)
class WrongRun:
    """What is wrong with a run of columns of one row.

    ``what``: "scale" (too large by ``factor``), "zero point" (too large by ``factor`` steps), "min", "row"
    (values of another row) or "" (not known); ``bit``: of the stored number, if flipping it explains the
    factor, else -1. ``before``, ``after``: relative errors.
    """

    row: int
    column: int
    stop: int
    what: str
    factor: float
    bit: int
    before: float
    after: float


@dataclass(frozen=True, eq=False)
class Run:
    """A run of columns of one row: the original's values, the release's, and the grid of its codes.

    ``has_min``: whether a min is added.
    """

    layout: Layout
    row: int
    columns: Tensor
    x: Tensor
    y: Tensor
    scale: Tensor
    has_min: bool
    value: Tensor
    gap: Tensor

    @cached_property
    def shift(self) -> Tensor:
        """What zero point or min add."""
        return self.y - self.scale * self.value

    def error(self, y: Tensor) -> float:
        """Return Σ(x - y)²."""
        return float((self.x - y).double().square_().sum())


class Lines:
    """Rows of a weight and of its original, read on demand."""

    def __init__(self, measure: Measure) -> None:
        assert measure.grid is not None
        self.measure, self.grid = measure, measure.grid
        self._row: tuple[int, list[Tensor]] | None = None

    def start_of(self, column: int) -> int:
        """Return the first place of the run that holds a column, in `Measure.order`."""
        place = column if self.measure.order is None else int((self.measure.order == column).nonzero()[0])
        return place // self.measure.run * self.measure.run

    def run(self, row: int, start: int) -> Run:
        """Return a run of columns."""
        x, y, scale, bits = self._read(row)
        order = self.measure.order
        cut = (torch.arange(len(x)) if order is None else order)[start : start + self.measure.run]
        codes = bits[cut]
        return Run(
            self.measure.layout, row, cut, x[cut], y[cut], scale[cut], self.measure.has_min,
            self.grid.table[codes].nan_to_num(0.0, 0.0, 0.0), self.grid.gaps[codes] * scale[cut].abs(),
        )  # fmt: skip

    def codes_at(self, row: int, column: int) -> tuple[int, int]:
        """Return the bits of the stored code of an element, and those of the nearest one."""
        x, y, scale, bits = self._read(row)
        shift = y[column] - scale[column] * self.grid.table[bits[column]]
        away = (x[column] - shift - scale[column] * self.grid.table).abs().nan_to_num(torch.inf)
        return int(bits[column]), int(away.argmin())

    def _read(self, row: int) -> list[Tensor]:
        if self._row is None or self._row[0] != row:
            box = Box(self.measure.layout, slice(row, row + 1), self.measure.source)
            found = (box.original, box.exact, self.grid.scales(box.rows), self.grid.bits(box.codes))
            self._row = row, [t.reshape(-1) for t in found]
        return self._row[1]


def wrong_runs(lines: Lines) -> tuple[list[WrongRun], list[tuple[WrongRun, Run]]]:
    """Return the runs of columns with a wrong scale or zero point, and others that stand out."""
    measure = lines.measure
    bulk = measure.bulk
    nearest = measure.nearest
    wanted: dict[tuple[int, int], None] = {}
    if nearest is not None:
        for beyond in nearest.places:
            wanted[beyond.row, lines.start_of(beyond.column)] = None
    level = STANDS_OUT * max(bulk, 0.1)
    for mean, row, column in measure.runs:
        if mean > level:
            wanted[row, column] = None
    explained: list[WrongRun] = []
    left: list[tuple[WrongRun, Run]] = []
    for row, column in sorted(wanted)[:RUNS]:
        run = lines.run(row, column)
        place = _place_of(run, bulk, nearest)
        if place.what:
            explained.append(place)
        else:
            left.append((place, run))
    return explained, left


def _place_of(run: Run, bulk: float, nearest: Nearest | None) -> WrongRun:
    before = run.error(run.y)
    power = float(run.x.double().square().sum()) or 1.0
    ends = int(run.columns[0]), int(run.columns[-1]) + 1
    best = WrongRun(run.row, *ends, "", 1.0, -1, math.sqrt(before / power), math.inf)
    if len(run.x) < _LEAST or not bool((run.scale != 0).all()):
        return best
    found = []
    for what, number, y, gap, bit in _changes(run):
        after = run.error(y)
        steps = float((((run.x - y).abs() / gap) ** 2).mean()) * 12
        rounded = nearest is not None and _rounded(run, y, gap, nearest)
        typical = steps < 3 * max(1.0, bulk) and after < _EXPLAINED * before
        if rounded or typical:
            found.append(WrongRun(run.row, *ends, what, number, bit, best.before, math.sqrt(after / power)))
    least = min((p.after for p in found), default=math.inf)
    near = [p for p in found if p.after <= _CLOSE * least]
    # of those that fit alike, a flipped bit explains most, then a power of two
    return min(near, key=lambda p: (p.bit < 0, not _is_power(p.factor), p.after), default=best)


def _is_power(factor: float) -> bool:
    return math.frexp(abs(factor))[0] == 0.5


def _rounded(run: Run, y: Tensor, gap: Tensor, nearest: Nearest) -> bool:
    """Tell whether every error is within half a step, and some were beyond by more than rounding explains."""
    size = (run.value.abs() + (run.shift / run.scale).abs() + 1) / (run.gap / run.scale.abs())
    room = nearest.tolerance * size + FLOAT_ROOM
    now = ((run.x - run.y).abs() / run.gap > 0.5 + room + nearest.margin).sum()
    inner = (run.value != run.value.max()) & (run.value != run.value.min())
    beyond = ((run.x - y).abs() / gap > 0.5 + room + 1e-3) & inner
    return int(now) >= 3 and not bool(beyond.any())


def _changes(run: Run) -> Iterator[tuple[str, float, Tensor, Tensor, int]]:
    """Yield (what is wrong, by how much, values with that undone, their steps, a flipped bit or -1)."""
    large = run.value.abs() >= run.value.abs().mean()
    scaled, added = (run.scale * run.value, run.shift) if run.has_min else (run.y, 0.0)
    middle = _median((run.x - added)[large] / scaled[large])
    flips = list(_flips(run))
    factors = [(f, bit) for f, bit in flips if middle and abs(f / middle - 1) < 0.1]
    if middle and abs(middle - 1) > 0.02:
        near = nearest_power(middle)
        factors += [(near, -1)] if abs(near / middle - 1) < 0.15 else []
        factors.append((middle, -1))
    for factor, bit in factors:
        yield "scale", 1 / factor, factor * scaled + added, run.gap * abs(factor), bit
    if run.has_min:
        ratio = _median((run.x - scaled) / run.shift)
        if ratio and abs(ratio - 1) > 0.02:
            yield "min", 1 / ratio, scaled + ratio * run.shift, run.gap, -1
    elif isinstance(run.layout.element, IntFormat):
        offset = round(min(max(_median((run.x - run.y) / run.scale), -_MOST_OFFSET), _MOST_OFFSET))
        if offset and abs(offset) < _MOST_OFFSET:
            yield "zero point", float(offset), run.y + offset * run.scale, run.gap, -1


def _median(values: Tensor) -> float:
    values = values[values.isfinite()]
    return float(values.median()) if len(values) else 0.0


def _flips(run: Run) -> Iterator[tuple[float, int]]:
    """Yield the factor that each bit of the stored scale, if flipped back, puts on the values."""
    inner = run.layout.shape[1:]
    column = tuple(int(i) for i in np.unravel_index(int(run.columns[0]), inner)) if inner else ()
    places = run.layout.locate((run.row, *column)).parameters
    role = next((r for r in ("scale", "d", "scale_code") if r in places), None)
    # a scale code of bitsandbytes is the place of a number in a table
    if role is None or "nested_absmax" in places:
        return
    place, piece = places[role], run.layout.fields[role].piece
    kind = "F16" if role == "d" else piece.dtype  # of ggml's blocks
    read = _READ.get(kind)
    if read is None or len(place.bits) != 8 * read.itemsize:
        return
    raw = int.from_bytes(piece.source.read(place.bits[0][0], read.itemsize), "little")
    now = _number(raw, kind)
    for bit in range(len(place.bits)):
        other = _number(raw ^ (1 << bit), kind)
        if now and math.isfinite(other) and math.isfinite(now) and other:
            yield other / now, bit


def _number(raw: int, kind: str) -> float:
    data = torch.frombuffer(bytearray(raw.to_bytes(_READ[kind].itemsize, "little")), dtype=_READ[kind])
    return float(e8m0(True).on_tensors(data) if data.dtype == torch.uint8 else data.float())


def of_codes_and_runs(measure: Measure) -> list[CheckpointFinding]:
    """Return what is wrong with single scales, zero points and codes."""
    if measure.grid is None:
        return []
    lines = Lines(measure)
    explained, left = wrong_runs(lines)
    found = [_of_places(measure.layout, same) for same in alike(explained, _cause).values()]
    taken = {(p.row, lines.start_of(p.column)) for p in explained}
    codes = _codes(measure, lines, taken)
    if codes:
        found.append(codes)
    if not found:
        found += _worse(measure, lines, left)
    return found


def _cause(place: WrongRun) -> tuple[str, float, int]:
    """Return what places of one cause share: about the same factor, too."""
    return place.what, round(place.factor, 1 if abs(place.factor) > 1 else 3), place.bit


def _of_places(layout: Layout, places: list[WrongRun]) -> CheckpointFinding:
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
    """Return the codes that are not the nearest, in a weight whose codes are."""
    if measure.nearest is None or measure.nearest.in_few_columns:  # moved before they were rounded
        return None
    places = [p for p in measure.nearest.places if (p.row, lines.start_of(p.column)) not in taken]
    if not places:
        return None
    first = max(places, key=lambda p: p.steps)
    stored, nearest = lines.codes_at(first.row, first.column)
    changed = stored ^ nearest
    facts: dict[str, Any] = {
        "elements": len(places), "row": first.row, "column": first.column, "steps": first.steps,
        "code": stored, "nearest": nearest,
    }  # fmt: skip
    least = "at least " * (len(places) == KEPT)
    others = "all" if measure.nearest.unexplained == len(places) else "nearly all"
    words = (
        f"{{has}} {least}{{elements:code}} that rounding can't give, although {others} others are rounded to "
        "nearest: at row {row}, column {column}, the error is {steps} steps"
    )
    if changed and not changed & (changed - 1):
        facts["bit"] = changed.bit_length() - 1
        words += "; bit {bit} of its code is flipped"
    return error(measure.layout, "code_impossible", words + ".", **facts)


def _worse(measure: Measure, lines: Lines, left: list[tuple[WrongRun, Run]]) -> list[CheckpointFinding]:
    """Return the runs that are worse than nothing, and far from all others, without a known cause."""
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
        words = (
            "{is} 0 in {runs:block} where the original is not, the first of them in row {row}, columns "
            "{first} to {last}."
        )
        return [error(measure.layout, "zeroed", words, **_where(zeroed, zeroed[0]))]
    if not bad:
        return []
    worst = max(bad, key=lambda p: p.before)
    words = (
        "{has} {runs:block} that no longer resemble the original, the worst of them in row {row}, columns "
        "{first} to {last}: the relative error there is {before}."
    )
    return [error(measure.layout, "block_far", words, **_where(bad, worst), before=worst.before)]


def _where(places: list[WrongRun], one: WrongRun) -> dict[str, int]:
    """Return the number of runs, and the place of one of them."""
    return {"runs": len(places), "row": one.row, "first": one.column, "last": one.stop - 1}
