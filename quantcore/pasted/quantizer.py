"""The quantizers of an evaluation: the way of a tensor's elements to codes and back.

Every operation on the way is affine, or rounds, clamps or casts. But for what these three change, each value
is x / factor + offset; at the codes that are stored, the factor is the scale and the offset the zero point.
"""

import math
from collections.abc import Iterator
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from quantcore.pasted.bounds import ARRAYS, is_mask
from quantcore.pasted.evaluation import FLOAT, OWN, Val, ancestors
from quantcore.pasted.kinds import CodeFinding, finding

MOST = 1 << 16  # elements that a quantizer is followed on
MOST_QUANTIZERS = 24  # that are checked; a loop has one for each turn
SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate
SCALINGS, SHIFTS, _CLAMPS = ("mul", "div", "floor_divide"), ("add", "sub"), ("clamp", "mask", "where")
_STEPS = (*SCALINGS, *SHIFTS, *_CLAMPS, "signed", "round", "cast", "level", "decode")
_BENT = ("unary", "pow", "neg")  # what is scaled and rounded after these is another tensor
_QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")
_MOST_STEPS = 50_000  # of all ways together
Place = tuple[int, ...]
Flags = tuple[tuple[str, bool], ...]
Ends = tuple[float | None, float | None]
Seen = tuple[str, Ends]
_SPANS = ("span", "percentiles")  # the kinds of scales that are the step of an asymmetric range
_SINGLES = ("abs", "max", "percentile", "signed percentile")  # of a symmetric one
_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close


class Chain:
    """A quantizer on one tensor.

    ``data``: what is scaled, with its values ``x``; ``shift``: what was added to the tensor to give it;
    ``codes``: the steps from its scaling to the codes that are stored: ``scalings`` scale it, ``round``
    rounds, ``casts`` cast to small integers, and ``cast`` to those that are stored, ``zeros`` are added,
    ``early`` ones before the rounding; ``clamp`` clamps last, to numbers, before the cast, ``clamps_after``
    after the first one, and ``late`` adds what is no number after it; ``back``: the steps from there to the
    dequantized values ``end``; ``factor``: what one step of the codes is worth, shaped to broadcast to the
    data; ``scale``: the same of each element; ``zero``: what is added, in codes; ``earlier``: the quantizer
    whose dequantized values the data is; ``has_levels``: whether codes are places in a ``table``, or 8-bit
    floats; ``decode``: what looks them up.
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
        self.has_levels = self.round.op == "level" or self.round.is_float8
        self.casts = [] if self.has_levels else narrowing(self.codes)
        self.cast = self.casts[-1] if self.casts else None
        self.scalings = [s for s in self.codes if s.op in SCALINGS]
        shifts = () if self.has_levels else SHIFTS
        self.zeros = [s for s in self.codes if s.op in shifts and not _is_half(s, self.round)]
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
        clamps = [s for s in self.codes if s.op in _CLAMPS and not _puts_in_values(s)]
        clamps = [s for s in clamps if not self.has_levels or s.index < self.round.index]
        self.decode = self.back[0] if self.has_levels and self.back and self.back[0].op == "decode" else None
        self.clamps_after = [s for s in clamps if self.casts and s.index > self.casts[0].index]
        self.clamp = next((s for s in reversed(clamps) if not self.cast or s.index < self.cast.index), None)
        late = [s for s in self.zeros if self.clamp and s.index > self.clamp.index]
        self.late = next((s for s in late if s.is_open or s.added.numel() > 1), None)
        ends = [s for s in self.back if s.op in (*SCALINGS, *SHIFTS)]
        self.end = ends[-1] if any(s.op in SCALINGS for s in ends) else None

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
        return floats_of(self.round.dtype) if self.round.is_float8 else self.table

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
        return [n for n in self.scale_nodes if n.op == "reduce" and n.name in _QUANTILES]


@lru_cache(4)
def floats_of(dtype: str) -> Tensor:
    """Return the finite values of an 8-bit float type, in order."""
    values = torch.arange(256, dtype=torch.uint8).view(getattr(torch, dtype)).double()
    found: Tensor = torch.unique(values[values.isfinite()])
    return found


def _puts_in_values(step: Val) -> bool:
    """Tell whether a clamp or a choice puts in values that depend on the tensor."""
    return any(a.varies and a is not step.flow and not is_mask(a.value) for a in step.args)


def _is_half(step: Val, rounding: Val) -> bool:
    """Tell whether a sum is part of the rounding: a half toward that side, or something random below 1."""
    by = step.added.abs()
    each = by.numel() > 1 and by.shape == step.value.shape
    return step.index < rounding.index and bool((by <= 1).all() if each else (by == 0.5).all())


def origin(val: Val) -> Val:
    """Return the value whose elements these are in the end: the tensor, or one that the code makes itself."""
    while val.flow is not None:
        val = val.flow
    return val


class Quantizer(Chain):
    """A quantizer on the first ordinary tensor, and what it shows on others.

    ``on``: the same one on each probe that shows it, by name; ``ordinary``: on those of both signs;
    ``place``: the lines that tell it from others; ``flags``: the boolean parameters that lead to it;
    ``rule``: how it rounds, a key of `quantcore.pasted.intended.RULES`, "" for another rule; ``ends``: what
    its codes are clamped to, before a cast.

    ``kind``: what its scale is: "abs": max|x|, "span": max - min, "max": max(x), "percentile": of |x| or of a
    tensor without negative values, "signed percentile", "percentiles": their difference, "given": a number,
    "handed": an argument, "unknown"; divided by ``divisor``, an integer, or a half, if it is near one;
    ``percent``: the percentile. ``is_span``: it is the step of an asymmetric range, ``is_single``: of a
    symmetric one; ``multiplied``: x is multiplied by it; ``axis``: it is aligned with this axis instead of
    the last one. ``extreme``, ``formula``: it, and what it comes from, as text; ``divided``: the operation
    that divides by the number, or else the one that scales the data; ``reduced``: the last reduction that it
    comes from.

    ``limits``: of the type that the codes are stored in; ``bounds``: the codes that there are, those of the
    clamp, or else of the type; ``zero_point``: if it is the same number on all tensors; ``one_sided``: what
    is quantized never has negative values; ``kernel``: the letter of the convention's kernel with this order
    of division, rounding and zero point.
    """

    def __init__(self, on: dict[str, Chain], place: Place, flags: Flags, seen: Seen):
        """Describe it on all tensors; ``seen``: its rule and its ends."""
        super().__init__(*on["positive"].way)
        self.on, self.place, self.flags = on, place, flags
        self.ordinary = [on["positive"], on["negative"]]
        self.rule, self.ends = seen
        tried = [chain for name, chain in on.items() if name in ("positive", "negative", "outlier")]
        self.kind, ratio, self.multiplied, self.axis = _form(tried)
        self.is_span, self.is_single = self.kind in _SPANS, self.kind in _SINGLES
        half = round(2 * ratio) / 2
        self.divisor = half if abs(half - ratio) <= 2e-3 * ratio else ratio
        percents = [p for n in self.quantiles if (p := _percent(n)) is not None]
        self.percent = max(percents, default=None) if "percentile" in self.kind else None
        self.limits = self.cast.limits if self.cast else None
        low, high = self.ends
        self.bounds = self.limits if low is None or high is None else (low, high)
        if self.levels is not None and None in self.ends:
            self.bounds = float(self.levels.min()), float(self.levels.max())
        self.zero_point = _constant(tried)
        self.one_sided = all(bool((c.x >= 0).all()) for c in self.ordinary)
        inverse = not self.multiplied and any(s.op == "mul" for s in self.scalings)
        self.kernel = ("BD" if inverse else "AC")[bool(self.early)]
        self.divided = _divided(self)
        reductions = (n for n in reversed(self.scale_nodes) if n.op == "reduce" and n.varies)
        self.reduced = next(reductions, self.divided)
        name = self.data.name if self.data.op == "input" and len(self.data.name) < 20 else "x"
        plain = self.kind in ("max", "signed percentile") or self.one_sided
        self.extreme = f"max({name})" if plain else f"max|{name}|"
        # what is left once the minimum is taken off
        self.is_rest = self.kind in ("abs", "max") and all(map(_begins_at_zero, self.ordinary))
        self.extreme = f"(max({name}) - min({name}))" if self.is_rest else self.extreme
        if "percentile" in self.kind:
            percentile = "a" if self.percent is None else f"{self.percent:g}th"
            self.extreme = f"{percentile} percentile of {name if plain else f'|{name}|'}"
        by, span = "" if self.divisor == 1 else f" / {number(self.divisor)}", f"max({name}) - min({name})"
        formulas = {
            "given": f"{float(self.factor):.6g}" if self.factor.numel() == 1 else "given numbers",
            "handed": "an argument",
            "unknown": "not recognized",
            "span": f"({span}){by}" if by else span,
            "percentiles": f"the difference of two percentiles{by}",
        }
        self.formula = formulas.get(self.kind) or self.extreme + by

    def found(self, kind: str, line: int, certain: bool = True, /, **facts: str) -> CodeFinding:
        """Return a finding in a line: what there is to say of the quantizer, and ``facts`` besides."""
        nodes = {"clamp": self.clamp, "cast": self.cast}
        known = {n: "" if v is None or v.line == line else f" in line {v.line}" for n, v in nodes.items()}
        known |= {"scale": self.formula, "extreme": self.extreme, "limits": between(self.limits)}
        known |= {"codes": between(self.bounds), "low": number(self.bounds[0]) if self.bounds else "qmin"}
        known |= {"zero": number(self.zero_point or 0), "dtype": self.cast.dtype if self.cast else ""}
        return finding(kind, line, certain, **(known | facts))


def _percent(quantile: Val) -> float | None:
    """Return which percentile this is, if that is a number."""
    level = quantile.args[1].number if quantile.args[1:] else None
    if level is None or quantile.name != "kthvalue":
        return level if level is None or "quantile" not in quantile.name else 100 * level
    return 100 * (level - 1) / max(quantile.args[0].numbers.numel() - 1, 1)


def _constant(chains: list[Chain]) -> float | None:
    """Return the zero point if it is the same number on all tensors and not handed in."""
    values = torch.cat([chain.zero.flatten() for chain in chains])
    first = float(values[0])
    handed = any(s.other.handed for s in chains[0].zeros)
    return None if handed or not math.isfinite(first) or not bool(values.eq(first).all()) else first


def _begins_at_zero(chain: Chain) -> bool:
    """Tell whether something was taken off the tensor so that 0 is the lowest value of each block."""
    return bool(chain.shift.any()) and near(block_extremes(chain.x, chain.scale)[0], 0.0, 1e-9)


def _divided(chain: Chain) -> Val:
    for scaling in chain.scalings:
        val: Val | None = scaling.other
        while val is not None and val.varies and val.op not in ("reduce", "input"):
            inverse = val.op == "div" and val.args[0].number == 1
            if val.op in ("div", "mul") and sum(a.varies for a in val.args) == 1 and not inverse:
                return val
            val = next((a for a in reversed(val.args) if a.varies), None)
    return chain.scalings[0]


def scale_of(chain: Chain, multiplied: bool, axis: int) -> Tensor:
    """Return the scale of each element of a quantizer, without the mistake in its use."""
    return (1 / chain.scale if multiplied else chain.scale).transpose(axis, -1)


def number(value: float) -> str:
    """Return a number, without a decimal point if it is an integer."""
    return f"{int(value)}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def between(ends: Ends | None) -> str:
    """Return a range of codes; None means unbounded."""
    return "..".join("open" if end is None else number(end) for end in ends or (None, None))


def near(a: Tensor, b: Tensor | float, within: float = 1.01) -> bool:
    """Tell whether all values are closer than ``within``."""
    return bool(((a - b).abs() <= within).all())


def _form(chains: list[Chain]) -> tuple[str, float, bool, int]:
    """Return a scale's kind, its divisor, whether x is multiplied by it, and the axis that it lies along."""
    first, nodes = chains[0], [s.other for s in chains[0].scalings]
    if any(n.handed for n in nodes) or not any(n.varies and n.op != OWN for n in nodes):
        return "handed" if any(n.handed for n in nodes) else "given", 1.0, False, -1
    # scales along the wrong axis fit where all axes are equally long
    turned = range(first.x.ndim - 1) if len(set(first.x.shape)) == 1 and first.factor.numel() > 1 else ()
    ways = ((False, -1), (True, -1), *((False, axis) for axis in turned))
    # a part of the tensor may have the scale of the whole
    for multiplied, axis, whole in ((*way, whole) for way in ways for whole in (False, True)):
        ratios = [_ratios(c, scale_of(c, multiplied, axis), whole) for c in chains]
        for kind in ratios[0]:
            values = torch.cat([r[kind].flatten() for r in ratios if kind in r])
            middle = float(values.median())
            if all(kind in r for r in ratios) and middle > 0 and near(values, middle, _CLOSE * middle):
                return kind, middle, multiplied, axis
    return "unknown", 1.0, False, -1


def _ratios(chain: Chain, scale: Tensor, whole: bool) -> dict[str, Tensor]:
    """Return what a scale may have been computed from, by kind, divided by it."""
    data, quantiles = chain.data, [node.numbers for node in chain.quantiles]
    while whole and data.flow is not None and data.op in ("getitem", "shape"):
        data = data.flow
    single = chain.factor.numel() == 1
    low, high = block_extremes(*((data.numbers, chain.factor) if single else (chain.x, scale)))
    found = {"abs": torch.maximum(low.abs(), high.abs()), "span": high - low, "max": high}
    if len(quantiles) == 1:
        signed = bool((chain.quantiles[0].args[0].numbers < 0).any())
        found["signed percentile" if signed else "percentile"] = quantiles[0].abs().max()
    elif len(quantiles) == 2:
        found["percentiles"] = (quantiles[0].max() - quantiles[1].max()).abs()
    free = scale > scale.min()  # a floor may have taken the place of the smallest ones
    if single or not bool(free.any()):
        return {kind: value / scale for kind, value in found.items()}
    return {kind: value.broadcast_to(scale.shape)[free] / scale[free] for kind, value in found.items()}


def block_extremes(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest value among the elements that have the same scale, for each element."""
    if scale.numel() == 1:
        return x.min(), x.max()
    keys, places = torch.unique(scale, return_inverse=True)
    places, flat, start = places.flatten(), x.flatten(), torch.zeros(keys.numel(), dtype=x.dtype)
    ends = (start.scatter_reduce(0, places, flat, how, include_self=False) for how in ("amin", "amax"))
    low, high = (end[places].reshape(x.shape) for end in ends)
    return low, high


def by_place(vals: list[Val]) -> dict[Place, Chain]:
    """Return the quantizers on the tensor's ways through an evaluation, one or more for each end of a way, by
    the lines of their rounding, stored codes and dequantized values."""
    found: dict[Place, Chain] = {}
    room, goes_on = _MOST_STEPS, {id(a) for v in vals if v.data for a in (*v.args, *v.lanes)}
    for val in vals:
        if not val.data or id(val) in goes_on or not isinstance(val.value, ARRAYS):
            continue
        way = [val]
        while way[-1].flow is not None:
            way.append(way[-1].flow)
        room -= len(way)
        if room < 0:
            break
        for chain in _along(way[::-1]):
            key: Place = (chain.round.line, chain.codes[-1].line, chain.end.line if chain.end else 0)
            while key in found:
                key = (*key, 0)
            if 1 < chain.x.numel() <= MOST and len(key) < MOST_QUANTIZERS:
                found[key] = chain
    return found


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
    if node.op == "cast" and node.is_float8:
        return node.flow is not None and not node.flow.is_float8
    if node.op == "cast":
        return node.flow is not None and node.bits < FLOAT and not node.flow.is_integral
    return node.op in ("round", "floor_divide", "level")


def _last(steps: list[Val], rounding: int) -> int:
    """Return the place of the last step of the codes that are stored."""
    until = next((i for i, s in enumerate(steps) if i > rounding and s.op in SCALINGS), len(steps))
    decoded = next((i for i, s in enumerate(steps[:until]) if i > rounding and s.op == "decode"), 0)
    if steps[rounding].op == "level" or steps[rounding].is_float8:
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
