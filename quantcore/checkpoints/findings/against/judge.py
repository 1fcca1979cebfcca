"""What the errors of all weights together show: which are wrong, why, and where.

Why the error of a weight is wrong: every hypothesis predicts values, and the simplest one that explains the
error wins. A hypothesis is a function that yields what it predicts with the fit, see `Cause`. What it claims
was computed.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from quantcore.checkpoints.comparison.orders import Heads
from quantcore.checkpoints.comparison.sides import Opened, is_gguf
from quantcore.checkpoints.findings.against import numbers, orders
from quantcore.checkpoints.findings.against.changes import (
    Rescaled,
    are_multiplied,
    error_of,
    not_the_original,
    of_plain,
    row_factors,
    undone,
)
from quantcore.checkpoints.findings.against.global_scales import GlobalScales
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.places import of_codes_and_runs
from quantcore.checkpoints.findings.against.saturated import of_saturated, saturated
from quantcore.checkpoints.findings.against.suspect import FEW, Cause, Residual, Suspect
from quantcore.checkpoints.findings.record import (
    CheckpointFinding,
    alike,
    error,
    layer_of,
    note,
    role_of,
    warning,
)
from quantcore.checkpoints.findings.walk import walk
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.rows import ready
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError

Hypothesis = Callable[[Suspect], Iterator[Cause]]
# those that some rows show: they are tried on few, and verified on all
LOCAL: tuple[Hypothesis, ...] = (
    numbers.sign_flipped, numbers.constant_factor, numbers.zero_point_off, numbers.code_bits,
    numbers.other_bits, numbers.scales_of_another, numbers.zero_points_of_another, numbers.whole_of_another,
    orders.codes_in_words, orders.groups_in_another_order, orders.groups_of_columns,
    numbers.factor_per_row, numbers.factor_per_column, numbers.factor_per_block,
)  # fmt: skip
# those that need all rows
GLOBAL: tuple[Hypothesis, ...] = (
    orders.transposed, orders.rows_of_words, orders.rows_in_another_order, orders.columns_in_another_order,
)  # fmt: skip
# what single rows and columns that are far from the original are explained by
OF_PLACES: tuple[Hypothesis, ...] = (
    orders.rows_in_another_order, orders.columns_in_another_order, orders.groups_of_columns,
    numbers.factor_per_row, numbers.factor_per_column,
)  # fmt: skip
_CLOSE = 1.15  # hypotheses whose errors differ by less than this factor explain equally well
_SIBLINGS = 4  # other weights of a role that are compared with
_FAR = 4.0  # times the spread of siblings
_LOUD = 2.0  # mean squared error over that of rounding to nearest: from here on, causes are tried
_UNLIKE = 0.75  # relative error of a weight that no longer resembles its original
_FAR_STEPS = 8.0
_AS_WELL = 2.0  # times the relative error that a cause leaves
_ROUNDED = 2.0**-8  # the relative error of rounding to 16 bits
_MANY_RUNS = 4  # with wrong scales
_SPECIFIC = 2  # the complexity of causes that a few places can't imitate


def cause_of(suspect: Suspect) -> Cause | None:
    """Return the simplest hypothesis that explains the error; None if none does."""
    few = replace(suspect, most=FEW)
    likely = [h for h in LOCAL if any(few.explains(e.fit) for e in h(few))]
    cause = _simplest(_found(suspect, likely, suspect.explains))
    if cause is None and not few.in_place:
        cause = _simplest(_found(suspect, GLOBAL, suspect.explains))
    if cause is None and suspect.is_far:
        cause = next(numbers.codes_of_another(suspect), None)
    return cause


def cause_of_places(suspect: Suspect) -> Cause | None:
    """Return the hypothesis that explains why some rows or columns are far from the original."""
    return _simplest(_found(suspect, OF_PLACES, suspect.improves))


def _found(
    suspect: Suspect, hypotheses: Iterable[Hypothesis], is_enough: Callable[[Residual], bool]
) -> list[Cause]:
    return [e for hypothesis in hypotheses for e in hypothesis(suspect) if is_enough(e.fit)]


def _simplest(found: Sequence[Cause]) -> Cause | None:
    best = min((e.fit.relative for e in found), default=0.0)
    near = [e for e in found if e.fit.relative <= _CLOSE * best + 1e-7]
    return min(near, key=lambda e: (e.complexity, e.fit.relative), default=None)


def judge(
    measures: Mapping[str, Measure], release: Opened, source: Opened, heads: Heads
) -> Iterator[tuple[CheckpointFinding, ...]]:
    """Yield what the measures of all weights show, weight by weight; those that look wrong are read again."""
    judgement = _Judgement(measures, release, source, heads)
    for measure in sorted(measures.values(), key=lambda measure: measure.layout.is_plain):
        try:
            found = judgement.of(measure)
        except QuantError as reason:
            found = [warning(measure.layout, "not_checked", f"is not compared with the original: {reason}")]
        yield tuple(found)


class _Judgement:
    def __init__(
        self, measures: Mapping[str, Measure], release: Opened, source: Opened, heads: Heads
    ) -> None:
        self.measures, self.release, self.source, self.heads = measures, release, source, heads
        self.partners = {m.name: m.source.name for m in measures.values()}
        self.gguf_differs = is_gguf(release) != is_gguf(source)
        # the factors of columns by which norms are divided
        self.scaled = {m.name: m.source.factors for m in measures.values() if isinstance(m.source, Rescaled)}
        self.by_row: dict[str, Tensor] = {}  # factors of rows
        self.global_scales = GlobalScales(measures)
        self.roles = alike(measures.values(), _role)
        plain = [m for m in measures.values() if m.layout.is_plain]
        self.equal = sum(m.unequal == 0 for m in plain)
        self.plain = len(plain)

    def siblings(self, measure: Measure) -> list[Measure]:
        """Return the other weights of its role and storage."""
        return [m for m in self.roles[_role(measure)] if m is not measure]

    def of(self, measure: Measure) -> list[CheckpointFinding]:
        """Return what is wrong with a weight, and its order if it differs."""
        found = self.of_errors(measure)
        again = self._rescaled(measure) if any(f.severity == "error" for f in found) else None
        # factors that chance suggests leave more than a cause that is known already
        left = min((float(f.facts["after"]) for f in found if "after" in f.facts), default=math.inf)
        if again is not None and again.relative <= _AS_WELL * left + _ROUNDED:
            measure, found = again, self.of_errors(again)
        if isinstance(measure.source, Rescaled):
            found = [*found, *measure.source.said(measure.layout)]
        order = measure.source.order
        if order is None:
            return found
        words = (
            "{has} the rows of each of {its} {heads} heads in a different order than the original ({order}): "
            "llama.cpp permutes q and k for rotary embeddings."
        )
        return [*found, note(measure.layout, "rows_permuted", words, heads=order.heads, order=str(order))]

    def of_errors(self, measure: Measure) -> list[CheckpointFinding]:
        """Return what its errors show."""
        return self.of_plain(measure) if measure.layout.is_plain else self.of_quantized(measure)

    def of_quantized(self, measure: Measure) -> list[CheckpointFinding]:
        """Return what is wrong with a quantized weight."""
        if measure.leak is not None:
            return [measure.leak]
        if not measure.sums.ee:
            return []
        if not measure.sums.yy:
            words = "{is} 0 everywhere, but the original is not; download or convert it again."
            return [error(measure.layout, "all_zero", words, relative=measure.relative)]
        siblings = self.siblings(measure)
        is_far = far(measure, siblings)
        loud = measure.bulk > _LOUD or (math.isnan(measure.bulk) and measure.relative > _UNLIKE)
        suspect = self.suspect(measure, siblings, is_far)
        # a few places don't raise the error of a typical row
        cause = cause_of(suspect) if is_far or loud else None
        lost = saturated(suspect)
        if lost is not None and (cause is None or cause.fit.relative > _AS_WELL * lost.relative):
            return [of_saturated(measure, lost)]
        if cause is not None and (cause.complexity <= _SPECIFIC or _is_wide(cause)):
            return [self._caused(suspect, cause)]
        one = self.global_scales.of(measure)
        found = [one] if one is not None else self._local(suspect)
        if found:
            return found
        if not (is_far or loud) and measure.relative > 1:
            cause = cause_of(suspect)
        if cause is not None:
            return [self._caused(suspect, cause)]
        return self._unexplained(measure, siblings, is_far)

    def _local(self, suspect: Suspect) -> list[CheckpointFinding]:
        """Return what is wrong at single places."""
        measure = suspect.measure
        found = of_codes_and_runs(measure)
        strange = measure.strange_columns or measure.strange_rows
        if sum(int(f.facts.get("runs", 0)) for f in found if f.kind == "scale_wrong") >= _MANY_RUNS:
            # so many scales are wrong for one reason, if their order explains it
            cause = _simplest(_found(suspect, (orders.groups_in_another_order,), suspect.improves))
            if cause is not None and cause.fit.relative < 0.5 * suspect.now.relative:
                return [self._caused(suspect, cause)]
        if (strange and not found) or any(f.kind == "block_far" for f in found):
            cause = cause_of_places(suspect)
            if cause is not None:
                return [self._caused(suspect, cause)]
        return found

    def _caused(self, suspect: Suspect, cause: Cause) -> CheckpointFinding:
        if "column_factors" in cause.kind:
            if self._undone(suspect.measure, cause):
                cause = replace(cause, legitimate=True)
            else:
                no = " Neither a norm nor the rows of another weight of {its} layer are divided by them."
                cause = replace(cause, words=cause.words + no)
        return suspect.finding(cause)

    def _undone(self, measure: Measure, cause: Cause) -> bool:
        """Tell whether the factors of columns are divided out by a stored scale."""
        factors = cause.vector
        if factors is None:
            return False
        module = measure.name.removesuffix(".weight")
        for name, piece in self.release.release.stored.items():
            if name.startswith(module) and "scale" in name and math.prod(piece.shape) == len(factors):
                stored = Numbers(piece).read().reshape(-1).float()
                if undone(stored, factors) or undone(1 / stored, factors):
                    return True
        return False

    def _rescaled(self, measure: Measure) -> Measure | None:
        """Return the errors against the original with rows or columns multiplied, if another's are divided.

        The rows of v_proj and up_proj are divided by what the columns of o_proj and down_proj are multiplied
        by.
        """
        shape, layer, source = measure.layout.shape, layer_of(measure.name), measure.source
        others = [
            m for m in self.measures.values()
            if layer_of(m.name) == layer and m is not measure and len(m.layout.shape) == len(shape) == 2
        ]  # fmt: skip
        tried = []
        for other in others:
            if other.layout.shape[0] == shape[1]:
                factors = 1 / self._by_row(other)
                if are_multiplied(source, measure.layout, factors):
                    tried.append(Rescaled.of(source, factors, -1, other.name, "the rows of {other} are"))
            if other.layout.shape[1] == shape[0]:
                factors = self._by_row(measure)
                if are_multiplied(other.source, other.layout, 1 / factors):
                    tried.append(Rescaled.of(source, factors, 0, other.name, "the columns of {other} are"))
        if not tried:
            return None
        again = Measure(measure.layout, min(tried, key=lambda found: error_of(found, measure.layout)))
        for box in walk(ready(measure.layout), again.source):
            again.add(box)
        return again.done()

    def _by_row(self, measure: Measure) -> Tensor:
        """Return the factor by which each row of a weight is multiplied; 1 for rows of 0."""
        if measure.name not in self.by_row:
            found = row_factors(measure.source, measure.layout)
            self.by_row[measure.name] = torch.where(found > 0, found, 1.0)
        return self.by_row[measure.name]

    def _unexplained(
        self, measure: Measure, siblings: Sequence[Measure], is_far: bool
    ) -> list[CheckpointFinding]:
        if is_far:
            levels = [m.sqnr for m in siblings]
            words = (
                "{has} a larger error than its {siblings:sibling} in other layers: SQNR {sqnr} dB against "
                "the original, theirs {low} to {high} dB. None of the causes tried explains it."
            )
            facts = {"siblings": len(siblings), "sqnr": measure.sqnr, "low": min(levels), "high": max(levels)}
            return [error(measure.layout, "far_from_siblings", words, **facts)]
        if measure.relative > 1 and not measure.bulk <= _LOUD:
            return [not_the_original(measure)]
        if measure.relative > _UNLIKE and not measure.bulk <= _FAR_STEPS:
            words = (
                "{differs} from the original: {its} RMS error is {relative} times the RMS of the original."
            )
            original, relative = named(measure.source.name), measure.relative
            return [warning(measure.layout, "far_from_original", words, original=original, relative=relative)]
        return []

    def of_plain(self, measure: Measure) -> list[CheckpointFinding]:
        """Return how a weight that is stored as its values differs from the original."""
        if not measure.unequal:
            return []
        siblings = self.siblings(measure)
        suspect = self.suspect(measure, siblings)
        # most others, or all siblings, are equal: then this one was meant to be
        alone = self.equal >= 2 * (self.plain - self.equal)
        alone |= len(siblings) >= _SIBLINGS and all(m.unequal == 0 for m in siblings)
        return [of_plain(suspect, cause_of(suspect), alone, self.scaled)]

    def suspect(self, measure: Measure, siblings: Sequence[Measure], is_far: bool = False) -> Suspect:
        """Return a weight with what its cause is searched with."""
        steps = [m.bulk for m in siblings if not math.isnan(m.bulk)]
        return Suspect(
            measure, self.release, self.source, {m.name: m.source.name for m in siblings}, self.partners,
            statistics.median(steps) if len(steps) >= _SIBLINGS else math.nan,
            statistics.median(m.relative for m in siblings) if len(siblings) >= _SIBLINGS else math.nan,
            self.heads.of_weight(measure.name) or self.heads.of_weight(measure.source.name),
            self.gguf_differs, is_far,
        )  # fmt: skip


def _role(measure: Measure) -> tuple[str, str]:
    return role_of(measure.name), measure.layout.storage


def _is_wide(cause: Cause) -> bool:
    """Tell whether it concerns a good part of all rows, or columns."""
    lines = cause.facts.get("rows") or cause.facts.get("columns")
    return lines is not None and lines > 0.25 * cause.facts["of"]


def far(measure: Measure, siblings: Sequence[Measure]) -> bool:
    """Tell whether the error of a weight is far above that of its siblings, in units of their own spread.

    What rounding alone explains can differ only by chance between layers; what goes beyond it depends on the
    layer, and may differ by about as much as it is.
    """
    levels = [decibels_of(m) for m in siblings]
    levels = [level for level in levels if math.isfinite(level)]
    own = decibels_of(measure)
    if len(levels) < _SIBLINGS or not math.isfinite(own):
        return False
    middle = statistics.median(levels)
    spread = 1.4826 * statistics.median(abs(level - middle) for level in levels)
    if math.isnan(measure.bulk):
        floor = 1.0
    else:
        chance = 1 / math.sqrt(max(1, min(measure.layout.shape[0], measure.inner)))
        floor = max(0.05, chance, 0.5 * abs(middle))
    return own - max(middle, sorted(levels)[-2]) > _FAR * max(spread, floor)


def decibels_of(measure: Measure) -> float:
    """Return the error of a weight in dB, over that of rounding to nearest or else over the original."""
    level = measure.bulk if not math.isnan(measure.bulk) else measure.relative**2
    return 10 * math.log10(level) if level > 0 else -math.inf
