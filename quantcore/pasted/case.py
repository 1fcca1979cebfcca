"""One quantizer of the code on several tensors: what its scale is, its zero point, its codes, and how it rounds."""

import torch
from torch import Tensor

from quantcore.pasted.evaluation import Val
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.quantizer import Chain

Place = tuple[int, ...]
Flags = tuple[tuple[str, bool], ...]
Ends = tuple[float | None, float | None]
Seen = tuple[str, Ends]
SPANS = ("span", "percentiles")  # the kinds of scales that are the step of an asymmetric range
SINGLES = ("abs", "max", "percentile", "signed percentile")  # of a symmetric one
_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close


class Quantizer:
    """A quantizer.

    ``chains``: the same one on each ordinary tensor, first ``chain``; ``place``: the lines that tell it from others;
    ``flags``: the boolean parameters that lead to it; ``special``: it on the special tensors that it can be found on;
    ``rule``: how it rounds, a key of `quantcore.pasted.intended.RULES`, "" for another rule; ``ends``: what its codes
    are clamped to, before a cast.

    ``kind``: what its scale is: "abs": max|x|, "span": max - min, "max": max(x), "percentile": of |x| or of a tensor
    without negative values, "signed percentile", "percentiles": their difference, "given": a number, "handed": an
    argument, "unknown"; divided by ``divisor``, an integer, or a half, if it is near one; ``percent``: the percentile.
    ``multiplied``: x is multiplied by it; ``axis``: it is aligned with this axis instead of the last one. ``extreme``,
    ``formula``: it, and what it comes from, as text; ``divided``: the operation that divides by the number, or else the
    one that scales the data; ``reduced``: the last reduction that it comes from.

    ``limits``: of the type that the codes are stored in; ``bounds``: the codes that there are, those of the clamp, or
    else of the type; ``zero``: the zero point, if it is a number that the code has; ``one_sided``: what is quantized
    never has negative values; ``kernel``: the letter of the convention's kernel that has the code's order of division,
    rounding and zero point.
    """

    def __init__(
        self, chains: list[Chain], place: Place, flags: Flags, special: dict[str, Chain], seen: Seen
    ):
        """Describe it on all tensors; ``seen``: its rule and its ends."""
        self.chains, self.place, self.flags, self.special = chains, place, flags, special
        self.rule, self.ends = seen
        chain = self.chain = chains[0]
        tried = [*chains, *(c for n, c in special.items() if n == "outlier")]
        self.kind, ratio, self.multiplied, self.axis = _form(tried)
        half = round(2 * ratio) / 2
        self.divisor = half if abs(half - ratio) <= 2e-3 * ratio else ratio
        percents = [
            float(a.value) * (100 if "quantile" in n.name else 1)
            for n in chain.quantiles
            for a in n.args[1:2]
            if "percentile" in self.kind and isinstance(a.value, int | float)
        ]
        self.percent = max(percents, default=None)
        self.limits = chain.cast.limits if chain.cast else None
        low, high = self.ends
        self.bounds = self.limits if low is None or high is None else (low, high)
        known = not any(s.is_open for s in chain.zeros) and chain.zero.numel() == 1 and bool(chain.zero.isfinite())
        self.zero = float(chain.zero) if known else None
        self.one_sided = all(bool((c.x >= 0).all()) for c in chains)
        inverse = not self.multiplied and any(s.op == "mul" for s in chain.scalings)
        self.kernel = ("BD" if inverse else "AC")[bool(chain.early)]
        self.divided = _divided(chain)
        reductions = [n for n in chain.scale_nodes if n.op == "reduce" and n.varies]
        self.reduced = reductions[-1] if reductions else self.divided
        name = chain.data.name if chain.data.op == "input" and len(chain.data.name) < 20 else "x"
        plain = self.kind in ("max", "signed percentile") or self.one_sided
        self.extreme = f"max({name})" if plain else f"max|{name}|"
        if "percentile" in self.kind:
            percentile = "a" if self.percent is None else f"{self.percent:g}th"
            self.extreme = f"{percentile} percentile of {name if plain else f'|{name}|'}"
        by, span = "" if self.divisor == 1 else f" / {number(self.divisor)}", f"max({name}) - min({name})"
        formulas = {
            "given": f"{float(chain.factor):.6g}" if chain.factor.numel() == 1 else "given numbers",
            "handed": "an argument",
            "unknown": "not recognized",
            "span": f"({span}){by}" if by else span,
            "percentiles": f"the difference of two percentiles{by}",
        }
        self.formula = formulas.get(self.kind) or self.extreme + by

    def found(self, kind: str, line: int, certain: bool = True, /, **facts: str) -> CodeFinding:
        """Return a finding in a line: what there is to say of the quantizer, and ``facts`` besides."""
        nodes = {"clamp": self.chain.clamp, "cast": self.chain.cast}
        known = {n: "" if v is None or v.line == line else f" in line {v.line}" for n, v in nodes.items()}
        known |= {"scale": self.formula, "extreme": self.extreme, "dtype": self.chain.cast.dtype if self.chain.cast else ""}
        known |= {"limits": between(self.limits), "codes": between(self.bounds)}
        known |= {"low": number(self.bounds[0]) if self.bounds else "qmin", "zero": number(self.zero or 0)}
        return finding(kind, line, certain, **(known | facts))


def _divided(chain: Chain) -> Val:
    for scaling in chain.scalings:
        val: Val | None = scaling.other
        while val is not None and val.varies and val.op not in ("reduce", "input"):
            if val.op in ("div", "mul") and sum(a.varies for a in val.args) == 1:
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
    if any(n.handed for n in nodes) or not any(n.varies for n in nodes):
        return "handed" if any(n.handed for n in nodes) else "given", 1.0, False, -1
    # scales along the wrong axis fit where all axes are equally long
    turned = range(first.x.ndim - 1) if len(set(first.x.shape)) == 1 and first.factor.numel() > 1 else ()
    for multiplied, axis in ((False, -1), (True, -1), *((False, axis) for axis in turned)):
        for whole in (False, True):  # a part of the tensor may have the scale of the whole
            ratios = [_ratios(c, scale_of(c, multiplied, axis), whole) for c in chains]
            for kind in ratios[0]:
                values = torch.cat([r[kind].flatten() for r in ratios if kind in r])
                middle = float(values.median())
                if all(kind in r for r in ratios) and middle > 0 and near(values, middle, _CLOSE * middle):
                    return kind, middle, multiplied, axis
    return "unknown", 1.0, False, -1


def _ratios(chain: Chain, scale: Tensor, whole: bool) -> dict[str, Tensor]:
    """Return what a scale may have been computed from, by kind, divided by it."""
    origin, quantiles = chain.data, [node.numbers for node in chain.quantiles]
    while whole and origin.flow is not None and origin.op in ("getitem", "shape"):
        origin = origin.flow
    single = chain.factor.numel() == 1
    low, high = block_extremes(*((origin.numbers, chain.factor) if single else (chain.x, scale)))
    found = {"abs": torch.maximum(low.abs(), high.abs()), "span": high - low, "max": high}
    if len(quantiles) == 1:
        signed = bool((chain.quantiles[0].args[0].numbers < 0).any())
        found["signed percentile" if signed else "percentile"] = quantiles[0].abs().max()
    elif len(quantiles) == 2:
        found["percentiles"] = (quantiles[0].max() - quantiles[1].max()).abs()
    return {kind: value / scale for kind, value in found.items()}


def block_extremes(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest value among the elements that have the same scale, for each element."""
    if scale.numel() == 1:
        return x.min(), x.max()
    keys, places = torch.unique(scale, return_inverse=True)
    places, flat, start = places.flatten(), x.flatten(), torch.zeros(keys.numel(), dtype=x.dtype)
    ends = (start.scatter_reduce(0, places, flat, how, include_self=False) for how in ("amin", "amax"))
    low, high = (end[places].reshape(x.shape) for end in ends)
    return low, high
