"""The search for the schemes that give the codes."""

import dataclasses
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS, TEXTBOOK
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.matching.candidates import LARGE, Evaluator
from quantcore.matching.hypotheses.corruption import (
    CHOICES,
    COMBINED,
    SINGLE,
    Corruption,
    Kinds,
    stored_corruptions,
)
from quantcore.matching.hypotheses.mistaken_scales import (
    Trials,
    float16,
    mistaken,
    percentiles,
    signed_percentiles,
    sortable,
    tried,
)
from quantcore.matching.hypotheses.moved_zero_points import moved
from quantcore.matching.hypotheses.named_scales import block_fits, named, worked_out
from quantcore.matching.hypotheses.narrowed import Narrowed
from quantcore.matching.hypotheses.sample import by_range, swapped_axes, with_given_scale
from quantcore.matching.hypotheses.scale_from_codes import fitted
from quantcore.matching.hypotheses.scoring import (
    WORKED_OUT,
    GivenCodes,
    Hypothesis,
    SearchTask,
    score,
)
from quantcore.matching.hypotheses.search_space import (
    beyond_formats,
    granularities,
    likely_formats,
    other_formats,
    other_groups,
)
from quantcore.matching.hypotheses.unsigned import from_lowest, unsigned
from quantcore.matching.inputs import fits_grid, read_codes, read_original, read_parameter
from quantcore.matching.record import KnownMistake, Matches, Progress
from quantcore.mistakes import CASES, Outcome, compare
from quantcore.scheme import PRESETS

# Hypotheses evaluated on the whole tensor: those that fit the sample, and the nearest if none does
MOST_FITTING, MOST_NEAR, STRIDE = 400, 40, 10
FEW_NEAR = 12  # for large tensors
# The arithmetic of handwritten code: dividing by s or multiplying by 1/s; max - min as it is, even if the
# range does not include 0
_PLAIN = (TEXTBOOK, TEXTBOOK.changed(zero_in_range="no"), CONVENTIONS["torchao"])
# Of symmetric unsigned codes whose zero_point is one less than the middle
_BELOW_MIDDLE = tuple(
    TEXTBOOK.changed(unsigned_symmetric_zero_point="below_middle", symmetric_scale=rule)
    for rule in ("amax_over_qmax", "amax_over_half_range", "amax_over_half_codes")
)
# (x - min) / s, of codes that start at 0, with s = (max - min) / 255 or / 256
_FROM_MIN = tuple(
    TEXTBOOK.changed(kernel="H", zero_point_form="min", zero_in_range="no", asymmetric_scale=rule)
    for rule in ("range", "range_over_codes")
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Step = Callable[[float], Iterator[Hypothesis]]
Part = SearchTask | Step
_MOST_KNOWN = 1 << 20  # elements: known mistakes of larger tensors would hold up a page


def match(x: Any, codes: Any, scale: Any = None, zero_point: Any = None) -> Matches:
    """Find the schemes of all conventions that give these codes for x, or come nearest.

    Args:
        x: the original, any rank. Of bfloat16 or float16, the codes are looked for as libraries compute them
            in that dtype, see `apply`. Where x in its own dtype gives no exact match, the others of float32,
            bfloat16 and float16 are tried, to which a model may have been converted.
        codes: integers in the shape of x, or with its axes permuted.
        scale: the scale of the codes, if known: one number, or one per block.
        zero_point: likewise.

    >>> found = match([[0.5, -1.0], [2.0, 0.1]], [[2, -3], [7, 0]])
    >>> str(found.candidates[0].scheme), found.candidates[0].differing
    ('int4 symmetric per_tensor min_max textbook', 0)

    Raises:
        QuantError: these can't be the codes, scale or zero_point of x.
    """
    *_, last = match_steps(x, codes, scale, zero_point)
    return last.matches


def match_steps(x: Any, codes: Any, scale: Any = None, zero_point: Any = None) -> Iterator[Progress]:
    """Run `match` in steps of a few milliseconds, each with what has been found so far.

    >>> step = next(match_steps([[0.5, -1.0], [2.0, 0.1]], [[2, -3], [7, 0]]))
    >>> step.fraction, step.what
    (0.0, 'drawing samples')

    Raises:
        QuantError: at once, before the first step; see `match`.
    """
    x = read_original(x).cpu()
    shape = tuple(x.shape)
    searched = granularities(shape)
    given = read_codes(codes, shape)
    every = searched + other_groups(shape)
    scale = read_parameter(scale, "scale", shape, every)
    zero_point = read_parameter(zero_point, "zero_point", shape, every)
    searched += [g for g in every[len(searched) :] if scale is not None and fits_grid(scale, g, shape)]
    return _Search(Evaluator(x, given, scale, zero_point, searched)).steps()


class _Search:
    """Rounds of tasks, the simplest first, until a scheme fits."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator, self.tried = evaluator, 0
        self.near: list[Hypothesis] = []
        shape = tuple(evaluator.x.shape)
        # if only a transposition fits the shape of the codes, it comes first
        self.corruptions = stored_corruptions(evaluator.given, shape)
        self.readings = [self._reading(self.corruptions[0])]

    @cached_property
    def others(self) -> list[GivenCodes]:
        """The codes with every other corruption undone."""
        return [_likeliest(self._reading(corruption)) for corruption in self.corruptions[1:]]

    def _reading(self, corruption: Corruption) -> GivenCodes:
        codes = corruption.undo(self.evaluator.given)
        low, high = int(codes.min()), int(codes.max())
        # sampled repeatedly, so it is made contiguous once; there are up to ten readings, so each is kept
        # small
        kinds = (torch.int8, torch.int16, torch.int32)
        kind = next(k for k in kinds if torch.iinfo(k).min <= low and high <= torch.iinfo(k).max)
        return GivenCodes(corruption, codes.to(kind).contiguous(), tuple(likely_formats(codes)))

    def steps(self) -> Iterator[Progress]:
        """Run the rounds."""
        yield self._progress(0.0, "drawing samples")
        every = by_range(self.evaluator.x, self.evaluator.searched)
        self.space = Narrowed(self.evaluator.x, every, _likeliest(self.readings[0]))
        rounds: list[tuple[str, Callable[[], list[Part]]]] = [
            ("schemes", lambda: [SearchTask(every, self.readings)]),
            ("the given scale", lambda: [*self._with_given_scale(self.readings)]),
            ("gguf's formats and hqq's search", lambda: [self._evaluate_presets, self._moved]),
            ("other group sizes", self._other_groups),
            ("another middle of unsigned codes", self._below_middle),
            ("rules of the scale", lambda: self._sorted(self._named)),
            (
                "corrupted codes",
                lambda: [*self.space.tasks(self.others), *self._with_given_scale(self.others)],
            ),
            ("mistakes in the arithmetic", self._mistaken),
            # such as a bfloat16 tensor that was printed: its numbers do not tell its dtype
            ("other dtypes", lambda: self._converted(lossless=True)),
            ("wider formats", lambda: [*self.space.tasks([self._wider(r) for r in self.readings])]),
            ("percentiles", lambda: self._tried(percentiles)),
            ("combined mistakes", self._combined),
            ("scales derived from the codes", self._derived),
            ("x converted to other dtypes", lambda: self._converted(lossless=False)),
        ]
        count = len(rounds) + 1
        for i, (what, tasks) in enumerate(rounds):
            for part, detail in self._round(tasks()):
                yield self._progress((i + part) / count, f"{what}{detail}")
            if self._is_settled(i, len(rounds)):
                break
        else:
            for part in self._evaluate(self._nearest()):
                yield self._progress((count - 1 + part) / count, "the nearest schemes")
        candidates, evaluator = self.evaluator.candidates(explained=True), self.evaluator
        # a given scale says more than the codes
        mistakes = known_mistakes(evaluator.values, evaluator.given) if evaluator.scale is None else ()
        yield Progress(1.0, "done", Matches(candidates, self.tried, mistakes))

    def _is_settled(self, i: int, rounds: int) -> bool:
        """Tell whether what has been found until round i ends the search."""
        exact = self.evaluator.exact()
        # rules for x of another dtype explain more than a number that is in none of them
        if i < rounds - 1 and all(v.doubt == WORKED_OUT for v in exact):
            return False
        # a given scale must be explained too, but is not a reason to look for mistakes
        return self.evaluator.explains() or bool(exact and i > 0)

    def _progress(self, fraction: float, what: str) -> Progress:
        return Progress(fraction, what, Matches(self.evaluator.candidates(), self.tried))

    def _round(self, parts: list[Part]) -> Iterator[tuple[float, str]]:
        """Score all parts, then evaluate what fits; yield the fraction done."""
        steps = [step for part in parts for step in self._steps_of(part)]
        fitting: list[Hypothesis] = []
        for i, (step, detail) in enumerate(steps):
            for found in step(self._limit()):
                (self.near if found.fraction else fitting).append(found)
            self.near = sorted(self.near, key=lambda h: h.fraction)[:MOST_NEAR]
            yield 0.8 * i / len(steps), detail
        fitting.sort(key=lambda h: (h.scheme.format.bits, self.evaluator.place_of(h.scheme.granularity)))
        for done in self._evaluate(fitting[:MOST_FITTING]):
            yield 0.8 + 0.2 * done, ", the whole tensor"

    def _steps_of(self, part: Part) -> list[tuple[Step, str]]:
        """Return the steps of a part and what each is about: one for each format of a task."""
        if isinstance(part, SearchTask):
            return [(partial(self._scored, part, fmt), f": {fmt}") for fmt in part.formats()]
        return [(part, "")]

    def _scored(self, task: SearchTask, fmt: IntFormat, limit: float) -> Iterator[Hypothesis]:
        before = task.tried
        yield from score(task, fmt, tuple(self.evaluator.x.shape), limit)
        self.tried += task.tried - before

    def _limit(self) -> float:
        return 2.0 if len(self.near) < MOST_NEAR else self.near[-1].fraction

    def _evaluate(self, hypotheses: list[Hypothesis]) -> Iterator[float]:
        for i, hypothesis in enumerate(hypotheses):
            self.evaluator.evaluate(hypothesis)
            if i % STRIDE == 0 or self.evaluator.x.numel() > LARGE:
                yield i / len(hypotheses)

    def _nearest(self) -> list[Hypothesis]:
        return self.near[: FEW_NEAR if self.evaluator.x.numel() > LARGE else MOST_NEAR]

    def _with_given_scale(
        self, readings: list[GivenCodes], computed: tuple[Kinds, ...] = ((),)
    ) -> list[SearchTask]:
        """Return tasks with the given scale, if there is one."""
        evaluator = self.evaluator
        if evaluator.scale is None:
            return []
        return [
            SearchTask(source, [reading], computed)
            for reading in readings
            for source in with_given_scale(
                evaluator.x, reading.codes, evaluator.scale, evaluator.zero_point, evaluator.searched
            )
        ]

    def _below_middle(self) -> list[Part]:
        """Return symmetric codes that were shifted by qmax of the signed format: around 127 or 7."""
        tasks = self.space.tasks(unsigned(self.readings), conventions=_BELOW_MIDDLE)
        return [dataclasses.replace(task, symmetries=(True,)) for task in tasks]

    def _named(self, limit: float) -> Iterator[Hypothesis]:
        self.tried += len(self.space.fits)
        yield from named(self.space.fits, every=False)

    def _mistaken(self) -> list[Part]:
        """Return tasks with one mistake in the arithmetic, in the most likely formats of all readings."""
        readings = [*map(_likeliest, self.readings), *self.others]
        choices = tuple((kind,) for kind in CHOICES)
        # all granularities: integers for zero points, which narrow them down, tell nothing here
        from_min = SearchTask(
            self.space.every, from_lowest(self.readings), ((), *choices), False, (False,), _FROM_MIN
        )
        tasks = [*self.space.tasks(readings, SINGLE), *self._with_given_scale(readings, choices)]
        return [
            *tasks,
            from_min,
            *(SearchTask(source, readings) for source in swapped_axes(self.evaluator.x)),
        ]

    def _combined(self) -> list[Part]:
        """Return combinations of mistakes typical of handwritten code, in the most likely formats."""
        readings = [self._with_narrower(_likeliest(r)) for r in self.readings]
        tasks = self.space.tasks(readings, COMBINED, _PLAIN)
        rounded = [float16(task.source, task.readings) for task in tasks]
        return [*tasks, *rounded, *self._tried(mistaken)]

    def _converted(self, lossless: bool) -> list[Part]:
        """Return tasks with x converted to each other dtype that keeps all its numbers, or does not."""
        evaluator = self.evaluator
        finite = bool(evaluator.x.isfinite().all())
        found: list[Part] = []
        for dtype in DTYPES:
            changed = evaluator.changed_in(dtype)
            if changed is None or (changed == 0) != lossless:
                continue
            if finite and not bool(evaluator.given_as(dtype).isfinite().all()):
                continue  # x exceeds the dtype
            readings = [*self.readings, *(self.others if lossless else ())]
            tasks = [*self.space.tasks(readings), *self._with_given_scale(readings)]
            found += [dataclasses.replace(t, source=t.source.converted(dtype)) for t in tasks]
        return found

    def _sorted(self, *steps: Step) -> list[Part]:
        return [*steps] if sortable(self.evaluator.values) else []

    def _tried(self, trials: Trials) -> list[Part]:
        if not sortable(self.evaluator.values):
            return []
        readings = [self._with_narrower(_likeliest(r)) for r in self.readings]
        return [partial(self._run_trials, trials, r) for r in readings]

    def _run_trials(self, trials: Trials, reading: GivenCodes, limit: float) -> Iterator[Hypothesis]:
        x = self.evaluator.values
        for found in tried(x, reading, trials(x, reading.formats), limit):
            self.tried += 1
            yield found

    def _derived(self) -> list[Part]:
        readings = [*map(_likeliest, self.readings), *self.others]
        fits = [lambda limit, r=reading: fitted(self.evaluator.values, r) for reading in readings]
        rules = [partial(self._derived_rules, reading) for reading in readings]
        # of equal scales, the one with a rule is evaluated
        return [*self._tried(signed_percentiles), *self._sorted(*rules), *fits]

    def _derived_rules(self, reading: GivenCodes, limit: float) -> Iterator[Hypothesis]:
        found = block_fits(self.evaluator.values, reading)
        self.tried += len(found)
        yield from named(found, every=True)
        yield from worked_out(found[:1])

    def _other_groups(self) -> list[Part]:
        groups = [g for g in other_groups(tuple(self.evaluator.x.shape)) if g not in self.evaluator.searched]
        if not groups:
            return []
        self.evaluator.searched += groups
        readings = [_likeliest(r) for r in self.readings]
        return [SearchTask(by_range(self.evaluator.x, groups), readings, uniform=True)]

    def _evaluate_presets(self, limit: float) -> Iterator[Hypothesis]:
        """Evaluate the presets of gguf, including ggml's searches, right away; keep them only if they fit."""
        x, given = self.evaluator.x, self.evaluator.given
        if x.shape != given.shape or not x.dim() or not bool(x.isfinite().all()):
            return
        low, high = int(given.min()), int(given.max())
        for name, scheme in PRESETS.items():
            fmt = scheme.format
            if name.startswith("gguf.") and fmt.qmin <= low and high <= fmt.qmax:
                self.tried += 1
                self.evaluator.evaluate_preset(scheme)
        yield from ()

    def _moved(self, limit: float) -> Iterator[Hypothesis]:
        for found in moved(self.evaluator.x, self.space.every, self.readings[0]):
            self.tried += 1
            yield found

    def _with_narrower(self, reading: GivenCodes) -> GivenCodes:
        """Return the reading, plus common formats that its codes exceed, as unclamped codes do."""
        narrower = tuple(beyond_formats(int(reading.codes.min()), int(reading.codes.max())))
        return GivenCodes(reading.corruption, reading.codes, reading.formats + narrower)

    def _wider(self, reading: GivenCodes) -> GivenCodes:
        bounds = int(reading.codes.min()), int(reading.codes.max())
        return GivenCodes(reading.corruption, reading.codes, tuple(other_formats(*bounds, reading.formats)))


def _likeliest(reading: GivenCodes) -> GivenCodes:
    """Return the reading with fewer formats: its two narrowest widths, and 8 bits, or 16 for wider codes."""
    narrowest = sorted({f.bits for f in reading.formats})[:2]
    kept = {*narrowest, 8 if narrowest and narrowest[0] <= 8 else 16}
    return GivenCodes(reading.corruption, reading.codes, tuple(f for f in reading.formats if f.bits in kept))


def known_mistakes(x: Tensor, codes: Tensor) -> tuple[KnownMistake, ...]:
    """Return the lesson's cases whose mistake gives these codes on x, unless the right code gives them too.

    Codes alone may not show whether anything went wrong: unsigned codes of a symmetric range lose all
    negative values, by mistake or because a library does it that way. A search stops at the scheme without a
    mistake, which is likelier, so the known mistakes are run on the tensor separately.

    Args:
        x: float32, any rank; nothing is tried on more than 2^20 elements.
        codes: integers of the same shape.
    """
    if x.shape != codes.shape or not 0 < x.numel() <= _MOST_KNOWN or not bool(x.isfinite().all()):
        return ()
    found = []
    for name, case in CASES.items():
        try:
            comparison = compare(case, x)
        except QuantError:  # it does not run on such a tensor
            continue
        if _equal(codes, comparison.wrong) and not _equal(codes, comparison.right):
            scale = comparison.wrong.scale
            found.append(KnownMistake(name, case.title, scale.min().item(), scale.max().item()))
    return tuple(found)


def _equal(codes: Tensor, outcome: Outcome) -> bool:
    return torch.equal(outcome.codes.to(torch.float64), codes.to(torch.float64))
