"""The quantizers of an evaluation, each with what it shows on several tensors."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from quantcore.pasted.bounds import ARRAYS
from quantcore.pasted.chain import (
    MOST,
    MOST_QUANTIZERS,
    SCALINGS,
    STEPS,
    Chain,
    Ends,
    Flags,
    Place,
    Seen,
    near,
)
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.values import FLOAT, OWN, Val, ancestors

_BENT = ("unary", "pow", "neg")  # what is scaled and rounded after these is another tensor
_MOST_STEPS = 50_000  # of all ways together
_SPANS = ("span", "percentiles")  # the kinds of scales that are the step of an asymmetric range
_SINGLES = ("abs", "max", "percentile", "signed percentile", "power")  # of a symmetric one
# from a maximum to the scale, by what rounds the exponent: the ends of max|x| / scale, in divisors
_ENDS = {"floor": (1.0, 2.0), "frexp": (1.0, 2.0), "ceil": (0.5, 1.0), "round": (0.5**0.5, 2.0**0.5)}
_SHOWN = {"frexp": "floor"}
_POWERS = [2.0**k for k in range(-32, 33)]
_LARGEST = (3.0, 6.0, 7.0, 7.5, 15.0, 28.0, 31.0, 63.0, 127.0, 240.0, 255.0, 448.0, 57344.0)  # of a format
_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close


class Powers(NamedTuple):
    """A scale that is a power of two: its ``formula``, with a place for max|x|; ``divisor``: what that is
    divided by before its exponent is rounded; ``reach``: the most max|x| / scale that there may be."""

    formula: str
    divisor: float
    reach: float


class Quantizer(Chain):
    """A quantizer on the first ordinary tensor, and what it shows on others.

    ``on``: the same one on each probe that shows it, by name; ``ordinary``: on those of both signs;
    ``place``: the lines that tell it from others; ``flags``: the boolean parameters that lead to it;
    ``rule``: how it rounds, a key of `quantcore.pasted.intended.RULES`, "" for another rule; ``ends``: what
    its codes are clamped to, before a cast.

    ``kind``: what its scale is: "abs": max|x|, "span": max - min, "max": max(x), "percentile": of |x| or of a
    tensor without negative values, "signed percentile", "percentiles": their difference, "given": a number,
    "handed": an argument, "power": a power of two from max|x|, "float": one for each element, "table": none,
    because the table of the values is computed from the tensor, "unknown"; divided by ``divisor``, an
    integer, or a half, if it is near one; ``reach``: the most x / scale that there may be; ``percent``: the
    percentile. ``is_span``: it is the step of an asymmetric range, ``is_single``: of a symmetric one;
    ``multiplied``: x is multiplied by it; ``axis``: it is aligned with this axis instead of the last one.
    ``extreme``, ``formula``: it, and what it comes from, as text; ``divided``: the operation that divides by
    the number, or else the one that scales the data; ``reduced``: the last reduction that it comes from.

    ``limits``: of the type that the codes are stored in; ``bounds``: the codes that there are, those of the
    clamp, or else of the type; ``zero_point``: if it is the same number on all tensors; ``one_sided``: what
    is quantized never has negative values; ``signs``: its sign is given back to each code; ``kernel``: the
    letter of the convention's kernel with this order of division, rounding and zero point.
    """

    def __init__(self, on: dict[str, Chain], place: Place, flags: Flags, seen: Seen):
        """Describe it on all tensors; ``seen``: its rule and its ends."""
        super().__init__(*on["positive"].way)
        self.on, self.place, self.flags = on, place, flags
        self.ordinary = [on["positive"], on["negative"]]
        self.rule, self.ends = seen
        tried = [chain for name, chain in on.items() if name in ("positive", "negative", "outlier")]
        self.kind, ratio, self.multiplied, self.axis = _form(tried)
        power = powers_of_two(tried) if self.kind == "unknown" else None
        self.kind, ratio = ("power", power.divisor) if power else (self.kind, ratio)
        self.is_span, self.is_single = self.kind in _SPANS, self.kind in _SINGLES
        half = round(2 * ratio) / 2
        self.divisor = half if abs(half - ratio) <= 2e-3 * ratio else ratio
        self.reach = power.reach if power else self.divisor
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
        self.signs = any(s.op == "signed" for s in (*self.codes, *self.back))
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
            "float": "a power of two for each element, as in a float",
            "power": power.formula.format(self.extreme) if power else "",
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
        low = self.bounds[0] if self.bounds else None
        known["from_low"] = "-" if low == 0 else f"{known['low']} - "
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
    return chain.begin


def scale_of(chain: Chain, multiplied: bool, axis: int, *, exact: bool = False) -> Tensor:
    """Return the scale of each element of a quantizer, without the mistake in its use."""
    scale = chain.exact.broadcast_to(chain.x.shape) if exact else chain.scale
    return (1 / scale if multiplied else scale).transpose(axis, -1)


def number(value: float) -> str:
    """Return a number, without a decimal point if it is an integer."""
    return f"{int(value)}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def between(ends: Ends | None) -> str:
    """Return a range of codes; None means unbounded."""
    return "..".join("open" if end is None else number(end) for end in ends or (None, None))


def _form(chains: list[Chain]) -> tuple[str, float, bool, int]:
    """Return a scale's kind, its divisor, whether x is multiplied by it, and the axis that it lies along."""
    first, nodes = chains[0], [s.other for s in chains[0].scalings]
    if not nodes:
        return "table", 1.0, False, -1
    if any(n.op == "pow" and n.args[-1].data for n in ancestors(*nodes)):
        return "float", 1.0, False, -1
    if any(n.handed for n in nodes) or not any(n.varies and n.op != OWN for n in nodes):
        return "handed" if any(n.handed for n in nodes) else "given", 1.0, False, -1
    # scales along the wrong axis fit where all axes are equally long
    turned = range(first.x.ndim - 1) if len(set(first.x.shape)) == 1 and first.factor.numel() > 1 else ()
    ways = ((False, -1), (True, -1), *((False, axis) for axis in turned))
    # a part of the tensor may have the scale of the whole
    for multiplied, axis, whole in ((*way, whole) for way in ways for whole in (False, True)):
        ratios = [_ratios(c, scale_of(c, multiplied, axis, exact=True), whole) for c in chains]
        for kind in ratios[0]:
            values = torch.cat([r[kind].flatten() for r in ratios if kind in r])
            middle = float(values.median())
            if all(kind in r for r in ratios) and middle > 0 and near(values, middle, _CLOSE * middle):
                return kind, middle, multiplied, axis
    return "unknown", 1.0, False, -1


def powers_of_two(chains: list[Chain]) -> Powers | None:
    """Return how a scale follows from max|x| if it is a power of two on all tensors; else None."""
    ratios = list[Tensor]()
    for chain in chains:
        powers = torch.frexp(chain.scale)[0] == 0.5
        low, high = block_extremes(chain.x, chain.scale if chain.factor.numel() > 1 else chain.factor)
        ratios.append((torch.maximum(low.abs(), high.abs()) / chain.scale).flatten())
        if not bool(powers.all()):
            return None
    least, most = (float(end) for end in torch.cat(ratios).aminmax())
    names = {n.name for n in chains[0].scale_nodes if n.varies} & _ENDS.keys()
    if len(names) != 1 or not 0 < least <= most < 4 * least:
        return None
    name = names.pop()
    below, above = _ENDS[name]  # max|x| / scale is from below times the divisor to above times it
    divisors = _POWERS if above == 2 else (*_POWERS, *_LARGEST)
    fits = [d for d in divisors if most / above <= d * (1 + 1e-6) and d * (1 - 1e-6) <= least / below]
    if len(fits) != 1:
        return Powers(f"2^{name}(log2({{}}) + ...)", least, most)
    inner = "{}" if fits[0] == 1 else f"{{}} / {number(fits[0])}"
    return Powers(f"2^{_SHOWN.get(name, name)}(log2({inner}))", fits[0], fits[0] * above)


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
    found = {key: chain for key, chain in found.items() if not _goes_back(key, chain, found)}
    # codes of a table that a loop refines are those of its last turn
    last: dict[int, int] = {}
    for chain in found.values():
        last[chain.round.line] = max(chain.round.index, last.get(chain.round.line, 0))
    kept: dict[Place, Chain] = {}
    for key, chain in found.items():
        if not chain.round.learned:
            kept[key] = chain
        elif chain.round.index == last[chain.round.line]:
            key = key[:3]
            while key in kept:
                key = (*key, 0)
            kept[key] = chain
    return kept


def _goes_back(key: Place, chain: Chain, found: dict[Place, Chain]) -> bool:
    """Tell whether the same codes, seen a second time without a way back, have one."""
    others = (found[k] for k in found if k[:2] == key[:2] and k[2]) if not key[2] else ()
    return any(c.x.equal(chain.x) and c.codes[-1].numbers.equal(chain.codes[-1].numbers) for c in others)


def _along(way: list[Val]) -> Iterator[Chain]:
    """Yield the quantizers on a way; the first scaling after a rounding belongs to it, others to the next."""
    places, scalings, pending = list[tuple[int, int]](), list[int](), False
    for i, node in enumerate(way):
        if node.op in _BENT or (node.is_flipped and node.op != "sub"):
            scalings = []
        elif node.op in SCALINGS:
            scalings, pending = [] if pending else [*scalings, i], False
        learned = node.op == "level" and node.learned
        if (scalings or learned) and _rounds(node) and not (places and (node.flow or node).is_integral):
            places.append((scalings[0] if scalings else i, i))
            scalings, pending = [], True
    chain = None
    for (first, rounding), end in zip(places, [*(place for place, _ in places[1:]), len(way)], strict=False):
        steps = [s for s in way[first:end] if s.op in STEPS]
        try:
            chain = Chain(way[first].flow or way[first], steps, steps.index(way[rounding]), chain)
        except RuntimeError:
            continue
        yield chain


def _rounds(node: Val) -> bool:
    if node.op == "cast" and node.is_small_float:
        return node.flow is not None and not node.flow.is_small_float
    if node.op == "cast":
        return node.flow is not None and node.bits < FLOAT and not node.flow.is_integral
    return node.op in ("round", "floor_divide", "level")
