"""The quantizers of an evaluation: the way of a tensor's elements to codes and back.

Every operation on the way is affine, or rounds, clamps or casts. But for what these three change, each value is
x / factor + offset; at the codes that are stored, the factor is the scale and the offset the zero point.
"""

from collections.abc import Iterator
from functools import cached_property

import torch

from quantcore.pasted.bounds import ARRAYS, is_mask
from quantcore.pasted.evaluation import FLOAT, Val

MOST = 1 << 16  # elements that a quantizer is followed on
MOST_QUANTIZERS = 24  # that are checked; a loop has one for each turn
SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate
SCALINGS, SHIFTS, _CLAMPS = ("mul", "div", "floor_divide"), ("add", "sub"), ("clamp", "mask", "where")
_STEPS = (*SCALINGS, *SHIFTS, *_CLAMPS, "signed", "round", "cast")
_BENT = ("unary", "pow", "neg")  # what is scaled and rounded after these is another tensor
_QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")
_MOST_STEPS = 50_000  # of all ways together


class Chain:
    """A quantizer on one tensor.

    ``data``: what is scaled, with its values ``x``; ``shift``: what was added to the tensor to give it; ``codes``: the
    steps from its scaling to the codes that are stored: ``scalings`` scale it, ``round`` rounds, ``cast`` casts to a
    small integer, ``zeros`` are added, ``early`` ones before the rounding; ``clamp`` clamps last, to numbers, and
    ``late`` adds what is no number after it; ``back``: the steps from there to the dequantized values ``end``;
    ``factor``: what one step of the codes is worth, shaped to broadcast to the data; ``scale``: the same of each
    element; ``zero``: what is added, in codes; ``earlier``: the quantizer whose dequantized values the data is.
    """

    def __init__(self, data: Val, steps: list[Val], rounding: int, earlier: "Chain | None"):
        """Follow these steps on the way of ``data``.

        Raises:
            RuntimeError: the shapes of scale or zero point do not fit it.
        """
        last = _last(steps, rounding)
        self.codes, self.back = steps[: last + 1], steps[last + 1 :]
        self.round, self.earlier = steps[rounding], earlier
        while data.op == "abs" and data.flow and any(s.op == "signed" for s in self.codes):
            data = data.flow  # whose signs come back
        self.data, self.x = data, data.numbers
        self.cast = _cast(self.codes)
        self.scalings = [s for s in self.codes if s.op in SCALINGS]
        self.zeros = [s for s in self.codes if s.op in SHIFTS and not _is_half(s, self.round)]
        self.early = [s for s in self.zeros if s.index < self.round.index]
        nothing = torch.tensor(0.0, dtype=torch.float64)
        self.factor, self.zero, self.shift = nothing + 1, nothing, nothing
        for step in self.codes:
            if step.op in SCALINGS:
                by, inverse = step.other.numbers, step.op == "mul"
                self.factor = self.factor / by if inverse else self.factor * by
                if bool(self.zero.any()):
                    self.zero = self.zero * by if inverse else self.zero / by
            elif step in self.zeros:
                self.zero = self.zero + step.added
        self.scale = self.factor.broadcast_to(self.x.shape)
        while data.flow is not None and data.op in (*SHIFTS, "clamp", "copy") and not data.is_flipped:
            self.shift = self.shift + data.added if data.op in SHIFTS else self.shift
            data = data.flow
        clamps = [s for s in self.codes if s.op in _CLAMPS and (not self.cast or s.index < self.cast.index)]
        self.clamp = next((s for s in reversed(clamps) if not _depends(s)), None)
        late = [s for s in self.zeros if self.clamp and s.index > self.clamp.index]
        self.late = next((s for s in late if s.is_open or s.added.numel() > 1), None)
        ends = [s for s in self.back if s.op in (*SCALINGS, *SHIFTS)]
        self.end = ends[-1] if any(s.op in SCALINGS for s in ends) else None

    @cached_property
    def scale_nodes(self) -> list[Val]:
        """All values that the scale was computed from, and the scale, each once."""
        nodes = {node.index: node for s in self.scalings for node in s.other.ancestors()}
        return [nodes[i] for i in sorted(nodes)]

    @cached_property
    def quantiles(self) -> list[Val]:
        """The quantiles among these."""
        return [n for n in self.scale_nodes if n.op == "reduce" and n.name in _QUANTILES]


def _is_half(step: Val, rounding: Val) -> bool:
    """Tell whether a sum is part of the rounding: a half toward that side, or something random below 1."""
    by = step.added.abs()
    each = by.numel() > 1 and by.shape == step.value.shape
    return step.index < rounding.index and bool((by <= 1).all() if each else (by == 0.5).all())


def _depends(clamp: Val) -> bool:
    """Tell whether what a clamp puts in the place of elements depends on the tensor."""
    return any(a.varies and a is not clamp.flow and not is_mask(a.value) for a in clamp.args)


def by_place(vals: list[Val]) -> dict[tuple[int, ...], Chain]:
    """Return an evaluation's quantizers by the lines of their rounding, stored codes and dequantized values."""
    found: dict[tuple[int, ...], Chain] = {}
    for chain in _chains(vals):
        if 1 < chain.x.numel() <= MOST:
            end = chain.end.line if chain.end else 0
            key: tuple[int, ...] = (chain.round.line, chain.codes[-1].line, end)
            while key in found:
                key = (*key, 0)
            if len(key) < MOST_QUANTIZERS:
                found[key] = chain
    return found


def _chains(vals: list[Val]) -> Iterator[Chain]:
    """Yield one or more quantizers for each end of the tensor's ways through an evaluation."""
    room = _MOST_STEPS
    goes_on = {id(a) for v in vals if v.data for a in v.args}
    for val in vals:
        if val.data and id(val) not in goes_on and isinstance(val.value, ARRAYS):
            way, one = list[Val](), val
            while one is not None:
                way.append(one)
                one = one.flow  # type: ignore[assignment]
            room -= len(way)
            if room < 0:
                return
            yield from _along(way[::-1])


def _along(way: list[Val]) -> Iterator[Chain]:
    """Yield the quantizers on a way; the first scaling after a rounding belongs to it, others to the next."""
    places, scalings, pending = list[tuple[int, int]](), list[int](), False
    for i, node in enumerate(way):
        if node.op in _BENT or (node.is_flipped and node.op != "sub"):
            scalings = []
        elif node.op in SCALINGS:
            scalings, pending = [] if pending else [*scalings, i], False
        if scalings and _rounds(node) and not (places and (node.flow or node).is_integral):
            places.append((scalings[0], i))
            scalings, pending = [], True
    chain = None
    for (first, rounding), end in zip(places, [*(place for place, _ in places[1:]), len(way)], strict=False):
        steps = [s for s in way[first:end] if s.op in _STEPS]
        try:
            chain = Chain(way[first].flow or way[first], steps, steps.index(way[rounding]), chain)
        except RuntimeError:
            continue
        yield chain


def _rounds(node: Val) -> bool:
    if node.op == "cast":
        return node.flow is not None and node.bits < FLOAT and not node.flow.is_integral
    return node.op in ("round", "floor_divide")


def _last(steps: list[Val], rounding: int) -> int:
    """Return the place of the last step of the codes that are stored."""
    until = next((i for i, s in enumerate(steps) if i > rounding and s.op in SCALINGS), len(steps))
    stores = (*_CLAMPS, "signed", "round")
    casts = [s.op == "cast" and s.bits < FLOAT for s in steps]
    last = max(i for i in range(rounding, until) if i == rounding or steps[i].op in stores or casts[i])
    later = [i for i in range(last + 1, until) if steps[i].op in SHIFTS]
    # without a cast, a zero point may be added last; a single shift before a scaling is that of dequantizing
    return later[0] if len(later) > (until < len(steps)) and _cast(steps[: last + 1]) is None else last


def _cast(steps: list[Val]) -> Val | None:
    """Return the first cast to a small integer."""
    return next((s for s in steps if s.op == "cast" and s.bits <= SMALL < (s.flow or s).bits), None)
