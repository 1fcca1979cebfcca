"""The quantizers of an evaluation: the way of a tensor's elements to codes and back.

Every operation on the way is affine, or rounds, clamps or casts. But for what these three change, each value
is x / factor + offset; at the codes that are stored, the factor is the scale and the offset the zero point.
"""

from functools import cached_property, lru_cache

import torch
from torch import Tensor

from quantcore.pasted.bounds import is_mask
from quantcore.pasted.narrow import float_format
from quantcore.pasted.values import FLOAT, Val, ancestors

MOST = 1 << 16  # elements that a quantizer is followed on
MOST_QUANTIZERS = 24  # that are checked; a loop has one for each turn
SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate
SCALINGS, SHIFTS, _CLAMPS = ("mul", "div", "floor_divide"), ("add", "sub"), ("clamp", "mask", "where")
STEPS = (*SCALINGS, *SHIFTS, *_CLAMPS, "signed", "round", "cast", "level", "decode")
QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")
Place = tuple[int, ...]
Flags = tuple[tuple[str, bool], ...]
Ends = tuple[float | None, float | None]
Seen = tuple[str, Ends]


class Chain:
    """A quantizer on one tensor.

    ``data``: what is scaled, with its values ``x``; ``shift``: what was added to the tensor to give it;
    ``codes``: the steps from its scaling to the codes that are stored: ``scalings`` scale it, ``round``
    rounds, ``casts`` cast to small integers, and ``cast`` to those that are stored, ``zeros`` are added,
    ``early`` ones before the rounding; ``clamp`` clamps last, to numbers, before the cast, ``clamps_after``
    after the first one, and ``late`` adds what is no number after it; ``back``: the steps from there to the
    dequantized values ``end``; ``factor``: what one step of the codes is worth, shaped to broadcast to the
    data; ``exact``: the same, before it is stored in half precision; ``scale``: the factor of each element;
    ``zero``: what is added, in codes; ``earlier``: the quantizer whose dequantized values the data is;
    ``has_levels``: whether codes are places in a ``table``, or 8-bit floats; ``decode``: what looks them up.
    """

    def __init__(self, data: Val, steps: list[Val], rounding: int, earlier: "Chain | None"):
        """Follow these steps on the way of ``data``.

        Raises:
            RuntimeError: the shapes of scale or zero point do not fit it.
        """
        self.way = data, steps, rounding, earlier
        last = _last(steps, rounding)
        self.codes, self.back = steps[: last + 1], steps[last + 1 :]
        self.round, self.earlier = steps[rounding], earlier
        while data.op == "abs" and data.flow and any(s.op == "signed" for s in self.codes):
            data = data.flow  # whose signs come back
        self.data, self.x = data, data.numbers
        self.has_levels = self.round.op == "level" or self.round.is_small_float
        self.casts = [] if self.has_levels else narrowing(self.codes)
        self.cast = self.casts[-1] if self.casts else None
        self.scalings = [s for s in self.codes if s.op in SCALINGS]
        shifts = () if self.has_levels else SHIFTS
        self.zeros = [s for s in self.codes if s.op in shifts and not self._is_half(s)]
        self.early = [s for s in self.zeros if s.index < self.round.index]
        nothing = torch.tensor(0.0, dtype=torch.float64)
        self.factor, self.zero, self.shift, self.exact = nothing + 1, nothing, nothing, nothing + 1
        for step in self.codes:
            if step.op in SCALINGS:
                by, inverse = step.other.numbers, step.op == "mul"
                self.factor = self.factor / by if inverse else self.factor * by
                by_exact = _uncast(step.other).numbers
                self.exact = self.exact / by_exact if inverse else self.exact * by_exact
                if bool(self.zero.any()):
                    self.zero = self.zero * by if inverse else self.zero / by
            elif step in self.zeros:
                self.zero = self.zero + self.added(step)
        self.scale = self.factor.broadcast_to(self.x.shape)
        while data.flow is not None and data.op in (*SHIFTS, "clamp", "copy") and not data.is_flipped:
            self.shift = self.shift + data.added if data.op in SHIFTS else self.shift
            data = data.flow
        clamps = [s for s in self.codes if s.op in _CLAMPS and not _puts_in_values(s)]
        clamps = [s for s in clamps if not self.has_levels or s.index < self.round.index]
        self.decode = self.back[0] if self.has_levels and self.back and self.back[0].op == "decode" else None
        self.clamps_after = [s for s in clamps if self.casts and s.index > self.casts[0].index]
        self.clamp = next((s for s in reversed(clamps) if not self.cast or s.index < self.cast.index), None)
        late = [s for s in self.zeros if self.clamp and s.index > self.clamp.index]
        self.late = next((s for s in late if s.is_open or s.added.numel() > 1), None)
        ends = [s for s in self.back if s.op in (*SCALINGS, *SHIFTS)]
        self.end = ends[-1] if any(s.op in SCALINGS for s in ends) else None

    @property
    def begin(self) -> Val:
        """The first step: what scales the data, or else finds it in a table."""
        return (self.scalings or [self.round])[0]

    def added(self, step: Val) -> Tensor:
        """Return what a step adds to the codes, without the half that rounds them: 8 of 8.5, then a floor."""
        number, cuts = step.other.number, self.round.op == "cast" or self.round.name in ("floor", "trunc")
        half = number is not None and not step.is_open and number % 1 == 0.5 and step.index < self.round.index
        return step.added - 0.5 * (1 if step.op == "add" else -1) if cuts and half else step.added

    def _is_half(self, step: Val) -> bool:
        """Tell whether a sum is part of the rounding: a half to that side, or something random below 1."""
        by = step.added.abs()
        each = by.numel() > 1 and by.shape == step.value.shape
        scaled = any(step.index < s.index < self.round.index for s in self.scalings)
        before = step.index < self.round.index and not scaled
        return before and bool((by <= 1).all() if each else (by == 0.5).all())

    def cast_at(self, place: int) -> tuple[Tensor, Tensor]:
        """Return the integers that one of the ``casts`` is given, and which its type does not hold."""
        cast = self.casts[place]
        given, (low, high) = (cast.flow or cast).numbers.trunc().nan_to_num(0.0), cast.limits or (0, 0)
        return given, (given < low) | (given > high)

    @cached_property
    def table(self) -> Tensor | None:
        """The value of each code, in their order; None where that is unknown or the code itself."""
        return (self.decode or self.round).levels

    @cached_property
    def levels(self) -> Tensor | None:
        """The values that there are, if codes are no integers; None where that is unknown."""
        return floats_of(self.round.dtype) if self.round.is_small_float else self.table

    @cached_property
    def values(self) -> Tensor:
        """The number that each code stands for, shaped like the data."""
        codes = self.codes[-1].numbers.reshape(self.x.shape)
        if self.table is None:
            return codes
        return self.table[codes.long().clamp(-len(self.table), len(self.table) - 1)]

    @cached_property
    def scale_nodes(self) -> list[Val]:
        """All values that the scale was computed from, and the scale, each once."""
        return ancestors(*(s.other for s in self.scalings))

    @cached_property
    def quantiles(self) -> list[Val]:
        """The quantiles among these."""
        return [n for n in self.scale_nodes if n.op == "reduce" and n.name in QUANTILES]


@lru_cache(4)
def floats_of(dtype: str) -> Tensor:
    """Return the finite values of a small float type, in order."""
    return float_format(dtype).values.double()


def _uncast(val: Val) -> Val:
    """Return a scale before it is stored in fewer bits."""
    shape = val.numbers.shape
    while val.op in ("cast", "copy") and val.args and val.is_float and val.args[0].numbers.shape == shape:
        val = val.args[0]
    return val


def _puts_in_values(step: Val) -> bool:
    """Tell whether a clamp or a choice puts in values that depend on the tensor."""
    return any(a.varies and a is not step.flow and not is_mask(a.value) for a in step.args)


def origin(val: Val) -> Val:
    """Return the value whose elements these are in the end: the tensor, or one that the code makes itself."""
    while val.flow is not None:
        val = val.flow
    return val


def _last(steps: list[Val], rounding: int) -> int:
    """Return the place of the last step of the codes that are stored."""
    until = next((i for i, s in enumerate(steps) if i > rounding and s.op in SCALINGS), len(steps))
    decoded = next((i for i, s in enumerate(steps[:until]) if i > rounding and s.op == "decode"), 0)
    if steps[rounding].op == "level" or steps[rounding].is_small_float:
        return max(decoded - 1, rounding)
    stores = (*_CLAMPS, "signed", "round")
    casts = [s.op == "cast" and s.bits < FLOAT for s in steps]
    last = max(i for i in range(rounding, until) if i == rounding or steps[i].op in stores or casts[i])
    later = [i for i in range(last + 1, until) if steps[i].op in SHIFTS]
    added = [s.added for s in steps[:last] if s.op in SHIFTS]
    if later and any(near(steps[later[0]].added + one, 0.0, 1e-6) for one in added if bool(one.any())):
        later = []  # what was added before is taken off again
    # without a cast, a zero point may be added last; a single shift before a scaling is that of dequantizing
    return later[0] if len(later) > (until < len(steps)) and not narrowing(steps[: last + 1]) else last


def narrowing(steps: list[Val]) -> list[Val]:
    """Return the casts to small integers that may lose codes: wider types lose none, and the same number of
    bits is another reading of them, unless they were shifted in between."""
    found: list[Val] = []
    for i, step in enumerate(steps):
        before = step.flow or step
        shifted = bool(found) and any(s.op in SHIFTS for s in steps[steps.index(found[-1]) : i])
        other = step.bits == before.bits and step.dtype != before.dtype and shifted
        if step.op == "cast" and step.bits <= SMALL and (step.bits < before.bits or other):
            found.append(step)
    return found


def near(a: Tensor, b: Tensor | float, within: float = 1.01) -> bool:
    """Tell whether all values are closer than ``within``."""
    return bool(((a - b).abs() <= within).all())
