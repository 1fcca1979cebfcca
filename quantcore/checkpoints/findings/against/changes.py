"""Changes that are made on purpose, and weights that are stored as their values, which show them, or differ.

AWQ and SmoothQuant multiply rows or columns, and divide what comes before by the same factors. A norm is
stored as its values, so its factors are those by which the release's differs from the original's. Those of
rows are estimated. Whether the columns of a weight are multiplied by them is measured: their errors are then
smaller by what the factors explain.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.pairing import pair_up
from quantcore.checkpoints.comparison.sides import Opened
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Cause, Suspect
from quantcore.checkpoints.findings.paired import of_pairing, rotated, rotations
from quantcore.checkpoints.findings.record import CheckpointFinding, alike, error, layer_of, note
from quantcore.checkpoints.findings.walk import Box, Ordered, in_order, walk
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Refused
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError

_LITTLE = 0.05  # relative error up to which weights may all be of another version
_SAMPLE = 1 << 18  # elements that show whether a weight is scaled
CLEAR = 0.05  # |factor - 1| from which on a column shows well whether it is multiplied
_LEAST = 0.01  # the same, where too few columns have a larger one
_ENOUGH = 8  # columns that show it
_SURE = 0.5  # how far what factors remove may be from what they would add, relative to that


@dataclass(frozen=True, kw_only=True)
class Rescaled(Ordered):
    """A weight of the original whose columns (axis -1) or rows (axis 0) are multiplied by ``factors``.

    ``other``: the name of what is divided by them; ``words``: how.
    """

    is_exact = False

    inner: Ordered
    factors: Tensor = field(compare=False)
    axis: int
    other: str
    words: str

    @classmethod
    def of(cls, inner: Ordered, factors: Tensor, axis: int, other: str, words: str) -> "Rescaled":
        """Return the products of a weight of the original."""
        return cls(
            inner.tensor, inner.shape, inner.order,
            inner=inner, factors=factors, axis=axis, other=other, words=words,
        )  # fmt: skip

    def read(self, rows: slice) -> Tensor:
        """Return the products of the rows that the release has at ``rows``."""
        values = self.inner.read(rows)
        if self.axis:
            return values * self.factors
        return values * self.factors[rows].reshape(-1, *[1] * (values.dim() - 1))

    def said(self, layout: Layout) -> Iterator[CheckpointFinding]:
        """Yield the notes that a weight is compared with products."""
        if isinstance(self.inner, Rescaled):
            yield from self.inner.said(layout)
        what = "column" if self.axis else "row"
        off = (self.factors - 1).abs() > _LEAST
        words = (
            f"{{has}} {{n}} of {{its}} {{of:{what}}} multiplied by factors of {{low}} to {{high}}, by which "
            f"{self.words} divided, "
            "as AWQ and SmoothQuant do; {it} {is} compared with these products."
        )
        low, high = (float(t) for t in torch.aminmax(self.factors))
        n = int(off.sum())
        yield note(layout, f"{what}_factors", words, n=n, of=len(off), low=low, high=high, other=self.other)


class Originals:
    """The originals of weights.

    ``pairs``: of each that has one; ``findings``: on how the two checkpoints are paired.
    """

    def __init__(self, source: Opened, release: Opened) -> None:
        pairing = pair_up(source, release)
        moved = tuple(sorted(set(rotations(release.release)) ^ set(rotations(source.release))))
        self._source, self._release = source, release
        self._known: dict[int | None, list[tuple[str, Tensor]]] = {}  # vectors that differ, by layer
        self.pairs = {} if moved else pairing.of_other
        self.findings = (*of_pairing(pairing, source), *([rotated(moved)] if moved else []))

    def of(self, name: str) -> Ordered | None:
        """Return the original of a weight as it is compared; None if there is only some of it."""
        found = in_order(self._source, self._release, self.pairs[name], name)
        return None if found is None else self.rescaled(name, found)

    @cached_property
    def _names(self) -> dict[int | None, list[str]]:
        """The names of vectors by layer."""
        whole = [name for name, pairs in self.pairs.items() if len(pairs) == 1]
        layouts = {name: self._release.tensors[name].layout for name in whole}
        return alike((n for n in whole if layouts[n].is_plain and len(layouts[n].shape) == 1), layer_of)

    def rescaled(self, name: str, original: Ordered) -> Ordered:
        """Return the original of a weight times the factors of its columns, if the release's has any.

        Raises:
            QuantError: it can't be read.
        """
        layout, layer = self._release.tensors[name].layout, layer_of(name)
        if isinstance(layout, Refused) or len(layout.shape) < 2 or 0 in layout.shape:
            return original
        if layer not in self._known:
            names = self._names.get(layer, ())
            self._known[layer] = [ratio for other in names for ratio in self._ratios(other)]
        tried = [
            Rescaled.of(original, factors, -1, norm, "{other} is")
            for norm, factors in self._known[layer]
            if len(factors) == layout.shape[-1] and are_multiplied(original, layout, factors, _LEAST)
        ]
        return min(tried, key=lambda found: error_of(found, layout), default=original)

    def _ratios(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """Yield the factors by which a vector is divided, as it is and with 1 added, as Gemma's norms do."""
        try:
            y = self._release.tensors[name].read()
            x = self._source.tensors[self.pairs[name][0].original.name].read().reshape(y.shape)
        except QuantError:  # said where it is checked
            return
        for added in (0.0, 1.0):
            ratio = (x + added) / (y + added)
            if bool(((ratio - 1).abs() > _LEAST).any()) and bool((ratio.isfinite() & (ratio > 0)).all()):
                yield name, ratio


def are_multiplied(original: Ordered, layout: Layout, factors: Tensor, least: float = CLEAR) -> bool:
    """Tell whether the columns of a weight are multiplied by factors.

    They are if the factors remove about as much error from a typical column as they would add to it if they
    were not; those that differ from 1 by more than ``least`` show it. Rows may be multiplied by factors, too.
    """
    x, y = _sample(original, layout)
    scaled = x * factors
    if abs(_removed(y, x, scaled, factors, least) - 1) < _SURE:
        return True
    x, scaled = (values * _of_rows(values, y)[:, None] for values in (x, scaled))
    return abs(_removed(y, x, scaled, factors / factors.median(), least) - 1) < _SURE


def error_of(original: Ordered, layout: Layout) -> float:
    """Return the squared error of a weight in its first rows."""
    x, y = _sample(original, layout)
    return float((x - y).square_().sum())


def _sample(original: Ordered, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the first rows of the original and of the release."""
    rows = slice(0, min(layout.shape[0], max(1, _SAMPLE // math.prod(layout.shape[1:]))))
    box = Box(layout, rows, original)
    return _finite(box.original, layout.shape[-1]), _finite(box.exact, layout.shape[-1])


def _finite(values: Tensor, width: int) -> Tensor:
    """Return values as float64 rows of a width, with 0 for what is not finite."""
    return values.reshape(-1, width).nan_to_num(0.0, 0.0, 0.0).double()


def _removed(y: Tensor, x: Tensor, scaled: Tensor, factors: Tensor, least: float) -> float:
    """Return the squared error that factors remove from a typical column, over what they would add to it.

    About 1 if ``y`` is ``scaled`` with errors, -1 if it is ``x`` with errors; 0 if too few columns show it.
    """
    removed = (x - y).square().sum(0) - (scaled - y).square().sum(0)
    added = (x - scaled).square().sum(0)
    for distance in (CLEAR, least):
        telling = ((factors - 1).abs() > distance) & (added > 0)
        if int(telling.sum()) >= _ENOUGH:
            return float((removed / added)[telling].median())
    return 0.0


def _of_rows(x: Tensor, y: Tensor) -> Tensor:
    """Return the factor of each row by which x becomes y, by least squares."""
    return ((x * y).sum(1) / x.square().sum(1)).nan_to_num(1.0, 1.0, 1.0)


def row_factors(original: Ordered, layout: Layout) -> Tensor:
    """Return the factor by which each row of a weight is multiplied, by least squares."""
    found = []
    for box in walk(layout, original):
        x, y = (_finite(t, math.prod(layout.shape[1:])) for t in (box.original, box.exact))
        found.append(_of_rows(x, y).float())
    return torch.cat(found)


def of_plain(
    suspect: Suspect, cause: Cause | None, alone: bool, scaled: Mapping[str, Tensor]
) -> CheckpointFinding:
    """Return how a weight that is stored as its values differs, and why.

    Args:
        alone: whether most other weights of its kind equal the original's.
        scaled: the factors of the weights whose columns are multiplied.
    """
    on_purpose = next(_on_purpose(suspect, scaled), None)
    if on_purpose is not None:
        return on_purpose
    if cause is not None:
        return suspect.finding(cause)
    measure, layout = suspect.measure, suspect.layout
    if measure.relative > 1:
        return not_the_original(measure)
    row, column = divmod(measure.sums.worst_at, measure.width)
    facts: dict[str, Any] = {
        "values": measure.unequal, "of": math.prod(layout.shape), "largest": measure.sums.worst,
        "first": (row, column) if len(layout.shape) > 1 else (row,), "relative": measure.relative,
    }  # fmt: skip
    words = (
        "{differs} from the original in {values} of {its} {of:value} by more than rounding, by up to "
        "{largest} at {first}; the relative error is {relative}."
    )
    say = error if alone or measure.relative > _LITTLE else note
    return say(layout, "plain_differs", words, **facts)


def _on_purpose(s: Suspect, scaled: Mapping[str, Tensor]) -> Iterator[CheckpointFinding]:
    """Yield the notes on a change that converters make on purpose."""
    is_vector = len(s.layout.shape) == 1
    if is_vector:
        yield from _plus_one(s)
    fit = s.fit(-(s.x.exp()), x=s.y)
    if s.gguf_differs and fit.relative < 1e-3:
        words = "{is} the negative exponential of the original, as llama.cpp stores A_log; compared so"
        yield s.finding(replace(s.explained("negative_exponential", words, fit), legitimate=True))
    if is_vector:
        yield from _norm_scaled(s, scaled)


def _plus_one(s: Suspect) -> Iterator[CheckpointFinding]:
    """Yield the note on a vector to which 1 was added, or subtracted, before it was rounded to its dtype."""
    room = 2 * torch.finfo(s.layout.dtype).eps * (1 + s.x.abs())
    for sign, undone in (("plus", s.y - 1), ("minus", s.y + 1)):
        if bool(((s.x - undone).abs() <= room).all()):
            why = "llama.cpp adds 1 to the norms of some models; with that undone"
            words = f"{{is}} the original {{sign}} 1: {why}"
            cause = s.explained("plus_one", words, s.fit(undone), sign=sign)
            yield s.finding(replace(cause, legitimate=True))


def _norm_scaled(s: Suspect, scaled: Mapping[str, Tensor]) -> Iterator[CheckpointFinding]:
    """Yield the notes on a vector divided by the factors of the columns of a weight in its layer."""
    words = (
        "{is} divided by the factors by which the columns of {other} are multiplied, as AWQ and SmoothQuant "
        "do; the products are those of the original."
    )
    for name, factors in scaled.items():
        if layer_of(name) == layer_of(s.layout.name) and divided(s, factors):
            yield note(s.layout, "norm_scaled", words, other=name, relative=s.now.relative)


def not_the_original(measure: Measure) -> CheckpointFinding:
    """Return the finding on a weight whose errors are larger than the original."""
    words = (
        "{is} not what the original has: {its} RMS error is {relative} times the RMS of the original. None "
        "of the causes tried explains it."
    )
    original = named(measure.source.name)
    return error(measure.layout, "not_the_original", words, original=original, relative=measure.relative)


def undone(ratio: Tensor, factors: Tensor) -> bool:
    """Tell whether what was multiplied here was divided there: products are constant, but for noise."""
    if len(ratio) != len(factors) or not bool((ratio * factors > 0).all()):
        return False
    logs = ratio.abs().log()
    left = logs + factors.abs().log()
    return bool((left - left.median()).abs().median() < 0.25 * (logs - logs.median()).abs().median())


def divided(s: Suspect, factors: Tensor) -> bool:
    """Tell whether a vector, such as a norm, is that of the original divided by the factors."""
    if not bool((s.x != 0).all() and (s.y != 0).all()):
        return False
    # Gemma's norms multiply by 1 + weight
    return any(undone(((s.y + added) / (s.x + added)).reshape(-1), factors) for added in (0.0, 1.0))
