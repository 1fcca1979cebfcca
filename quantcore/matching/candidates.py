"""Hypotheses on the whole tensor, and candidates out of them."""

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import INTEGER_CONVENTIONS
from quantcore.errors import QuantError
from quantcore.granularity import Granularity, block_shape
from quantcore.matching.explanations import tell
from quantcore.matching.hypotheses.corruption import COMPUTED, Damage
from quantcore.matching.hypotheses.reproduce import produced
from quantcore.matching.hypotheses.scoring import Hypothesis
from quantcore.matching.inputs import scale_note, zero_point_note
from quantcore.matching.reasons import explain
from quantcore.matching.record import Candidate
from quantcore.notation import write_call
from quantcore.qparams import QParams, choose_qparams
from quantcore.range_setting import MinMax
from quantcore.scheme import Scheme

NEAREST = 8  # candidates shown where nothing fits
LARGE, EXPLAINED_OF_LARGE = 1 << 20, 2  # elements from which on few candidates are explained at once
_KINDS = list(COMPUTED)
_NAMES = list(INTEGER_CONVENTIONS)


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a hypothesis gave on the whole tensor. ``codes``, ``parameters``: equal for equal ones."""

    scheme: Scheme
    damage: Damage
    differing: int
    codes: bytes
    parameters: tuple[bytes, ...]
    notes: tuple[str, ...]
    scale_agrees: bool
    doubt: int = 0


@dataclass(eq=False)
class Judge:
    """Compares hypotheses with the given codes. ``searched``: the granularities, simplest first."""

    x: Tensor
    given: Tensor
    scale: Tensor | None
    zero_point: Tensor | None
    searched: list[Granularity]
    verdicts: list[Verdict] = field(default_factory=list)
    _seen: set[tuple[str, Damage]] = field(default_factory=set)
    _known: dict[Any, tuple[int, bytes]] = field(default_factory=dict)
    _shown: tuple[Any, tuple[Candidate, ...]] = (None, ())

    def hear(self, hypothesis: Hypothesis) -> None:
        """Compare one hypothesis; what its library refuses is left out."""
        scheme, damage = hypothesis.scheme, hypothesis.damage
        name = (str(scheme), damage)
        if name in self._seen:
            return
        self._seen.add(name)
        try:
            params = choose_qparams(self.x, scheme)
            differing, codes = self._compared(scheme, damage, params)
        except QuantError:
            return
        numbers = (params.scale.numpy().tobytes(), params.zero_point.to(torch.float32).numpy().tobytes())
        notes = self._notes(params)
        told = tuple(note for note in notes if note)
        agrees = self.scale is None or not notes[0]
        self.verdicts.append(
            Verdict(scheme, damage, differing, codes, numbers, told, agrees, hypothesis.doubt)
        )

    def exact(self) -> list[Verdict]:
        """Those that give every code."""
        return [v for v in self.verdicts if not v.differing]

    def explains(self) -> bool:
        """Whether something gives every code, and the scale given, if one was."""
        return any(v.scale_agrees for v in self.exact())

    def candidates(self, explained: bool = False) -> tuple[Candidate, ...]:
        """Return what is exact, or else what is nearest; ``explained`` with the cells that differ."""
        state = len(self.verdicts), explained
        if self._shown[0] != state:
            self._shown = state, self._candidates(explained)
        return self._shown[1]

    def _candidates(self, explained: bool) -> tuple[Candidate, ...]:
        groups: dict[Any, list[Verdict]] = {}
        for v in sorted(self.exact() or self.verdicts, key=self._order):
            groups.setdefault((v.differing, v.codes, v.damage, v.parameters), []).append(v)
        shown = list(groups.values()) if self.exact() else _nearest(list(groups.values()))
        few = len(shown) if self.x.numel() <= LARGE else EXPLAINED_OF_LARGE
        found = [self._candidate(group, explained and i < few) for i, group in enumerate(shown)]
        if explained and len(found) > 1 and not found[0].differing and shown[0][0].doubt:
            found[0] = dataclasses.replace(found[0], told=found[0].told + _as_well(found))
        return tuple(found)

    def _compared(self, scheme: Scheme, damage: Damage, params: QParams) -> tuple[int, bytes]:
        """How many codes differ, and what stands for the codes; equal arithmetic is run once."""
        c, fmt = scheme.rules, scheme.format
        tame = isinstance(scheme.range_setting, MinMax) and bool(params.scale.isfinite().all())
        arithmetic = (
            block_shape(scheme.granularity, tuple(self.x.shape)),
            *(
                None if p is None else p.numpy().tobytes()
                for p in (params.scale, params.zero_point, params.inverse)
            ),
            (
                c.coding.kernel,
                c.coding.rounding,
                c.coding.overflow,
                None if tame else (c.nonfinite.nan, c.nonfinite.cast),
            ),
            (fmt.qmin, fmt.qmax, damage),
        )
        if arithmetic not in self._known:
            expected = produced(self.x, scheme, damage)
            differing = int((damage.undo(self.given) != expected).sum())
            # of those that fit all codes are the same
            shown = expected.contiguous().numpy().tobytes() if differing else b""
            self._known[arithmetic] = differing, hashlib.blake2b(shown, digest_size=16).digest()
        return self._known[arithmetic]

    def _notes(self, params: QParams) -> list[str]:
        notes = [] if self.scale is None else [scale_note(self.scale, params.scale)]
        notes += [] if self.zero_point is None else [zero_point_note(self.zero_point, params.zero_point)]
        return notes

    def _order(self, v: Verdict) -> tuple[Any, ...]:
        """Fewest differences, then what agrees with scale and zero_point given, then the simplest.

        A scale that was worked out from the codes explains less than one that follows from x.
        """
        scheme, fmt = v.scheme, v.scheme.format
        mistakes = [_KINDS.index(kind) for kind in v.damage.computed]
        return (
            (
                v.differing,
                v.doubt,
                _steps(v.damage),
                len(v.notes),
                not isinstance(scheme.range_setting, MinMax),
                mistakes,
                fmt.bits,
            ),
            (self.searched.index(scheme.granularity), fmt.narrow, not scheme.symmetric, not fmt.signed),
            _NAMES.index(scheme.convention.name),
        )

    def _candidate(self, group: list[Verdict], explained: bool) -> Candidate:
        first = group[0]
        same = tuple(v.scheme for v in group[1:])
        found = Candidate(first.scheme, first.differing, first.damage, notes=first.notes, same=same)
        if not explained:
            return found
        if found.differing:
            return explain_candidate(self.x, self.given, found)
        codes = first.damage.undo(self.given)
        told = tell(self.x, codes, first.scheme, first.damage, self.scale is not None)
        return dataclasses.replace(found, told=told)


def explain_candidate(x: Tensor, codes: Tensor, candidate: Candidate) -> Candidate:
    """Return the candidate with the first cells that differ, and how many there are of each reason.

    ``x`` float32; ``codes`` as they were given.
    """
    if not candidate.differing:
        return candidate
    scheme, damage = candidate.scheme, candidate.damage
    cells, reasons = explain(x, damage.undo(codes), produced(x, scheme, damage), scheme, damage)
    return dataclasses.replace(candidate, cells=cells, reasons=reasons)


def _nearest(groups: list[list[Verdict]]) -> list[list[Verdict]]:
    """The nearest groups; a mistake more that does not halve what differs explains nothing and is left out."""
    least: dict[int, int] = {}
    for group in groups:
        steps = _steps(group[0].damage)
        least[steps] = min(group[0].differing, least.get(steps, group[0].differing))
    return [
        g
        for g in groups
        if all(g[0].differing < n / 2 for steps, n in least.items() if steps < _steps(g[0].damage))
    ][:NEAREST]


def _as_well(found: list[Candidate]) -> tuple[str, ...]:
    """What else gives the codes, where the first was worked out from them."""
    other = found[1]
    text = f"{other.scheme.format} {write_call(other.scheme.range_setting)}"
    more = len(found) - 2
    words = f"the same codes: {text}" + (f", {other.damage}" if other.damage else "")
    return (words + (f", and {more} more" if more else ""),)


def _steps(damage: Damage) -> int:
    return len(damage.stored) + len(damage.computed)
