"""Hypotheses evaluated on the whole tensor, and the candidates among them."""

import dataclasses
import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerTensor, block_shape
from quantcore.matching.explanations import explain_corruption
from quantcore.matching.hypotheses.corruption import Corruption, reproduce
from quantcore.matching.hypotheses.sample import numbers_of
from quantcore.matching.hypotheses.scoring import Hypothesis
from quantcore.matching.hypotheses.search_space import COMMON_BITS
from quantcore.matching.inputs import parameter_note
from quantcore.matching.reasons import explain
from quantcore.matching.record import Candidate, few, precisions
from quantcore.mistakes import IN_CODES
from quantcore.notation import write_call
from quantcore.qparams import QParams, choose_qparams
from quantcore.quantization import apply_quietly
from quantcore.scheme import Scheme

NEAREST = 8  # candidates shown if nothing fits
LARGE, EXPLAINED_OF_LARGE = 1 << 20, 2  # elements; only a few candidates are explained for larger tensors
FIRST = 1 << 14  # elements of the first rows, which rule out most presets
_NAMES = list(CONVENTIONS)


@dataclass(frozen=True, eq=False)
class EvaluatedScheme:
    """The result of a hypothesis on the whole tensor.

    ``codes``, ``parameters``: equal for equal results; ``steps``: what happened to x and codes besides the
    scheme: each mistake, and a conversion of x to another dtype.
    """

    scheme: Scheme
    corruption: Corruption
    differing: int
    codes: bytes
    parameters: tuple[bytes, ...]
    notes: tuple[str, ...]
    scale_agrees: bool
    doubt: int
    dtype: torch.dtype
    steps: int
    rule: str
    said: tuple[str, ...]


@dataclass(eq=False)
class Evaluator:
    """Compares hypotheses with the given codes.

    ``x``: in its own dtype; ``searched``: the granularities, the simplest first.
    """

    x: Tensor
    given: Tensor
    scale: Tensor | None
    zero_point: Tensor | None
    searched: list[Granularity]
    evaluations: list[EvaluatedScheme] = field(default_factory=list)
    _seen: set[tuple[Any, ...]] = field(default_factory=set)
    _known: dict[Any, tuple[int, bytes]] = field(default_factory=dict)
    _given_as: dict[torch.dtype, Tensor] = field(default_factory=dict)
    _shown: tuple[Any, tuple[Candidate, ...]] = (None, ())
    _orders: dict[EvaluatedScheme, tuple[Any, ...]] = field(default_factory=dict)

    @cached_property
    def values(self) -> Tensor:
        """The numbers of x, float32."""
        return self.x.to(torch.float32)

    def given_as(self, dtype: torch.dtype) -> Tensor:
        """Return x converted to a dtype."""
        if dtype not in self._given_as:
            self._given_as[dtype] = self.x.to(dtype)
        return self._given_as[dtype]

    def place_of(self, granularity: Granularity) -> int:
        """Return the place among those searched, the simplest first; others follow as they are found."""
        if granularity not in self.searched:
            self.searched.append(granularity)
        return self.searched.index(granularity)

    def changed_in(self, dtype: torch.dtype) -> int | None:
        """Return how many elements converting x to a dtype changes; None if it has this dtype."""
        if dtype == self.x.dtype:
            return None
        values = self.given_as(dtype).to(torch.float32)
        return int(((values != self.values) & ~self.values.isnan()).sum())

    def evaluate(self, hypothesis: Hypothesis) -> None:
        """Compare one hypothesis; schemes that their library does not support are left out."""
        scheme, corruption = hypothesis.scheme, hypothesis.corruption
        dtype = hypothesis.dtype or self.x.dtype
        name = (str(scheme), corruption, dtype)
        if name in self._seen:
            return
        self._seen.add(name)
        try:
            params = choose_qparams(self.given_as(dtype), scheme)
            differing, codes = self._compared(scheme, corruption, dtype, params)
        except QuantError:
            return
        self._add(hypothesis, params, differing, codes)

    def evaluate_preset(self, scheme: Scheme) -> None:
        """Compare a scheme that needs more than one scale per block; it counts only if it gives every code.

        Rows are independent, so the first ones quickly rule out most schemes.
        """
        rows = self.x.reshape(-1, self.x.shape[-1])
        few = max(1, FIRST // rows.shape[1])
        given = self.given.reshape(rows.shape)
        try:
            for count in (few, len(rows)):
                result = apply_quietly(rows[:count], scheme)
                if not torch.equal(result.codes.to(given.dtype), given[:count]):
                    return
        except QuantError:
            return
        grid = (*self.x.shape[:-1], -1)
        params = QParams(result.scale.reshape(grid), result.params.zero_point.reshape(grid))
        self._add(Hypothesis(scheme, Corruption(), 0.0), params, 0, b"")

    def _add(self, found: Hypothesis, params: QParams, differing: int, codes: bytes) -> None:
        numbers = (params.scale.numpy().tobytes(), params.zero_point.to(torch.float32).numpy().tobytes())
        notes = [
            "" if given is None else parameter_note(what, given, getattr(params, what))
            for what, given in (("scale", self.scale), ("zero_point", self.zero_point))
        ]
        told, agrees = tuple(filter(None, notes)), not notes[0]
        dtype, wrong = found.dtype or self.x.dtype, found.corruption
        steps = len(wrong.stored) + len(wrong.computed) + (dtype != self.x.dtype)
        self.evaluations.append(
            EvaluatedScheme(
                found.scheme,
                wrong,
                differing,
                codes,
                numbers,
                told,
                agrees,
                found.doubt,
                dtype,
                steps,
                found.rule,
                found.said,
            )
        )

    def exact(self) -> list[EvaluatedScheme]:
        """Return the evaluations that give every code."""
        return [v for v in self.evaluations if not v.differing]

    def explains(self) -> bool:
        """Tell whether an evaluation gives every code, and the given scale if there is one."""
        return any(v.scale_agrees for v in self.exact())

    def candidates(self, explained: bool = False) -> tuple[Candidate, ...]:
        """Return the exact candidates, or else the nearest; ``explained``: with the cells that differ."""
        state = len(self.evaluations), explained
        if self._shown[0] != state:
            self._shown = state, self._candidates(explained)
        return self._shown[1]

    def _candidates(self, explained: bool) -> tuple[Candidate, ...]:
        groups: dict[Any, list[EvaluatedScheme]] = {}
        for v in sorted(self.exact() or self.evaluations, key=self._order_of):
            groups.setdefault((v.differing, v.codes, v.corruption, v.parameters, v.dtype), []).append(v)
        shown = list(groups.values()) if self.exact() else self._without_causes(list(groups.values()))
        few = len(shown) if self.x.numel() <= LARGE else EXPLAINED_OF_LARGE
        found = [self._candidate(group, explained and i < few) for i, group in enumerate(shown)]
        if explained and len(found) > 1 and self.exact() and shown[0][0].doubt:
            found[0] = dataclasses.replace(
                found[0], explanations=found[0].explanations + _alternatives(found)
            )
        return tuple(found)

    def _without_causes(self, groups: list[list[EvaluatedScheme]]) -> list[list[EvaluatedScheme]]:
        """Return the nearest groups, without mistakes that leave many codes unexplained if others remain."""
        believed = [g for g in groups if not g[0].corruption.computed or few(g[0].differing, self.x.numel())]
        return _nearest(believed or groups)

    def _compared(
        self, scheme: Scheme, corruption: Corruption, dtype: torch.dtype, params: QParams
    ) -> tuple[int, bytes]:
        """Return how many codes differ, and a hash of the codes; equal arithmetic is run once."""
        c, fmt = scheme.in_dtype(dtype).rules, scheme.format
        finite = scheme.range_setting.ends_are_elements and bool(params.scale.isfinite().all())
        arithmetic = (
            block_shape(scheme.granularity, tuple(self.x.shape)),
            *numbers_of(params),
            (
                c.coding.kernel,
                c.coding.rounding,
                c.coding.overflow,
                c.coding.coding_dtype,
                None if finite else (c.nonfinite.nan, c.nonfinite.cast),
            ),
            (fmt.qmin, fmt.qmax, corruption, dtype),
        )
        if arithmetic not in self._known:
            expected = reproduce(self.given_as(dtype), scheme, corruption)
            differing = int(torch.count_nonzero(corruption.undo(self.given) != expected))
            # all hypotheses that fit have the same codes
            shown = expected.contiguous().numpy().tobytes() if differing else b""
            self._known[arithmetic] = differing, hashlib.blake2b(shown, digest_size=16).digest()
        return self._known[arithmetic]

    def _order_of(self, v: EvaluatedScheme) -> tuple[Any, ...]:
        if v not in self._orders:  # ranked again whenever progress is shown
            self._orders[v] = self._order(v)
        return self._orders[v]

    def _order(self, v: EvaluatedScheme) -> tuple[Any, ...]:
        """Rank by fewest differences, then agreement with the given scale and zero_point, then simplicity.

        A scale derived from the codes explains less than one that follows from x.
        """
        scheme, fmt = v.scheme, v.scheme.format
        mistakes = [IN_CODES[kind].rank for kind in v.corruption.computed]
        return (
            (
                v.differing,
                v.doubt,
                v.steps,
                len(v.notes),
                not scheme.range_setting.ends_are_elements,
                mistakes,
                v.doubt and fmt.bits not in COMMON_BITS,  # a scale of its own is that of any wider format
                fmt.bits,
            ),
            (self.place_of(scheme.granularity), fmt.narrow, not scheme.symmetric, not fmt.signed),
            # of a tensor in half precision, calls that compute everything in it are the likeliest
            sum(each != str(v.dtype).removeprefix("torch.") for each in precisions(scheme, v.dtype)),
            _NAMES.index(scheme.convention.name),
        )

    def _candidate(self, group: list[EvaluatedScheme], explained: bool) -> Candidate:
        # a scale that does not depend on the format, such as the least that a library allows
        first, *others = sorted(group, key=lambda v: v.scheme.format.bits not in COMMON_BITS)
        same = tuple(v.scheme for v in others)
        found = Candidate(
            first.scheme,
            first.differing,
            first.corruption,
            notes=first.notes,
            same=same,
            dtype=first.dtype,
            converted=self.changed_in(first.dtype),
            rule=first.rule,
        )
        if not explained:
            return found
        if found.differing:
            return explain_candidate(self.x, self.given, found)
        if first.scheme.range_setting.searches_codes or not isinstance(first.scheme.format, IntFormat):
            return found  # nothing was corrupted: see `evaluate_preset`
        codes = first.corruption.undo(self.given)
        explanations = explain_corruption(
            self.given_as(first.dtype),
            codes,
            first.scheme,
            first.corruption,
            bool(self.scale is not None or first.said),
        )
        return dataclasses.replace(found, explanations=explanations + first.said)


def explain_candidate(x: Any, codes: Tensor, candidate: Candidate) -> Candidate:
    """Return the candidate with the first cells that differ, and the number of cells per kind of reason.

    ``x``, ``codes``: as given.
    """
    if not candidate.differing:
        return candidate
    scheme, corruption, x = candidate.scheme, candidate.corruption, candidate.given(x)
    cells, reasons = explain(x, corruption.undo(codes), reproduce(x, scheme, corruption), scheme, corruption)
    return dataclasses.replace(candidate, cells=cells, reasons=reasons)


def _nearest(groups: list[list[EvaluatedScheme]]) -> list[list[EvaluatedScheme]]:
    """Return the nearest groups; one more step explains nothing, unless it halves the differences."""
    least: dict[int, int] = {}
    for group in groups:
        steps = group[0].steps
        least[steps] = min(group[0].differing, least.get(steps, group[0].differing))
    return [
        g for g in groups if all(g[0].differing < n / 2 for steps, n in least.items() if steps < g[0].steps)
    ][:NEAREST]


def _alternatives(found: list[Candidate]) -> tuple[str, ...]:
    """Return the other explanations, if the scale of the first was derived from the codes."""
    other = found[1]
    if not isinstance(other.scheme.granularity, PerTensor):
        return ()  # a number for each block
    text = f"{other.scheme.format} {other.rule or write_call(other.scheme.range_setting)}"
    more = len(found) - 2
    words = f"also possible: {text}" + (f", {other.corruption}" if other.corruption else "")
    return (words + (f", and {more} more" if more else ""),)
