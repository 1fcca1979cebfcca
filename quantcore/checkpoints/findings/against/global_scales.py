"""One scale for a whole weight (NVFP4's second, FP8's per tensor), computed again from the original.

Libraries divide the original's max |w| by a constant, such as 6 · 448; q, k and v, or gate and up, may share
the largest of theirs. If all other weights of a release keep to this, one that does not is wrong, however
little: rounding the codes to nearest shows only a change that moves one of them past a tie.
"""

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from quantcore.checkpoints.comparison.pairing import FUSED
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.record import CheckpointFinding, error
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import SCALE
from quantcore.checkpoints.statement import Fact

_SIBLINGS = 4  # other weights that must keep to the constant
_AGREE = 2.0**-20  # the largest relative difference of a scale computed in float32


@dataclass(frozen=True)
class _One:
    """A weight's single scale.

    ``divides``: whether values are divided by it; ``peaks``: max |w| of what may share it.
    """

    value: float
    divides: bool
    peaks: tuple[float, ...]

    def constants(self) -> list[float]:
        """Return the constant, by each max |w|."""
        return [self.value * peak if self.divides else peak / self.value for peak in self.peaks]

    def away(self, constant: float) -> tuple[float, float]:
        """Return the relative difference from the scale that the constant gives, and that scale."""
        nearest = min(self._computed(constant), key=lambda c: abs(self.value - c))
        return self._difference(nearest), nearest

    def flipped(self, constant: float) -> tuple[int, float, float] | None:
        """Return the bit by which this float32 differs from a scale of the constant, how far, and that."""
        for computed in self._computed(constant):
            changed = int(np.float32(self.value).view(np.uint32)) ^ int(np.float32(computed).view(np.uint32))
            if changed and not changed & (changed - 1):
                return changed.bit_length() - 1, self._difference(computed), computed
        return None

    def _computed(self, constant: float) -> list[float]:
        own = np.float32(constant)
        return [float(own / np.float32(p) if self.divides else np.float32(p) / own) for p in self.peaks]

    def _difference(self, computed: float) -> float:
        return abs(self.value / computed - 1) if computed else math.inf


def has_one(layout: Layout) -> bool:
    """Tell whether a weight has one scale that its max |w| decides."""
    if GLOBAL_SCALE in layout.fields:
        return True
    field = layout.fields.get(SCALE)
    return field is not None and math.prod(field.shape) == 1 and layout.symmetric and layout.element.bits == 8


class GlobalScales:
    """The single scales of all weights that are stored in the same way."""

    def __init__(self, measures: Mapping[str, Measure]) -> None:
        self.scales: dict[str, dict[str, _One]] = {}
        for measure in measures.values():
            if measure.peak and has_one(measure.layout):
                one = _one_of(measure, measures)
                if one is not None:
                    self.scales.setdefault(measure.layout.storage, {})[measure.name] = one
        self.constants = {storage: self._constant(ones) for storage, ones in self.scales.items()}

    @staticmethod
    def _constant(ones: Mapping[str, _One]) -> float:
        middle = statistics.median(min(one.constants()) for one in ones.values())
        near = [min(one.constants(), key=lambda c: abs(c - middle)) for one in ones.values()]
        found = statistics.median(near)
        return float(round(found)) if abs(round(found) / found - 1) < _AGREE else found

    def of(self, measure: Measure) -> CheckpointFinding | None:
        """Return the finding on a scale that differs from the computed one, where those of others don't."""
        ones = self.scales.get(measure.layout.storage, {})
        one = ones.get(measure.name)
        if one is None or len(ones) <= _SIBLINGS:
            return None
        constant = self.constants[measure.layout.storage]
        others = [o.away(constant)[0] for name, o in ones.items() if name != measure.name]
        agree = [away for away in others if away <= _AGREE]
        own, computed = one.away(constant)
        room = 2 * max(agree, default=0.0)
        if len(agree) < max(_SIBLINGS, 0.9 * len(others)) or own <= room:
            return None
        flipped = one.flipped(constant)
        if flipped is not None:
            bit, own, computed = flipped
        facts: dict[str, Fact] = {
            "scale": one.value, "computed": computed, "by": own, "constant": constant,
            "siblings": len(agree), "room": room,
        }  # fmt: skip
        rule = "{constant} / max |w|" if one.divides else "max |w| / {constant}"
        words = (
            f"{{has}} a global scale of {{scale}}, but {rule} of the original is {{computed}}: a relative "
            f"difference of {{by}}"
        )
        if flipped is not None:
            facts["bit"] = bit
            words += " (bit {bit} of the stored number is flipped)"
        words += ". Those of {siblings:other weight} agree " + ("within {room}." if room else "exactly.")
        return error(measure.layout, "global_scale_wrong", words, **facts)


def _one_of(measure: Measure, measures: Mapping[str, Measure]) -> _One | None:
    layout = measure.layout
    role = GLOBAL_SCALE if GLOBAL_SCALE in layout.fields else SCALE
    value = float(layout.fields[role].read())
    if not (math.isfinite(value) and value > 0):
        return None
    peaks = dict.fromkeys((measure.peak, *_shared(measure.name, measures)))
    return _One(value, layout.divides_by == role, tuple(peaks))


def _shared(name: str, measures: Mapping[str, Measure]) -> Iterator[float]:
    """Yield max |w| of the weights that are fused with one, if any."""
    parent, _, last = name.removesuffix(".weight").rpartition(".")
    for fused in (*FUSED.values(), ("w1", "w3")):
        if last in fused:
            names = [f"{parent}.{other}.weight" for other in fused]
            yield max(measures[n].peak for n in names if n in measures)
