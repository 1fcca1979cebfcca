"""One quantizer of the code on several tensors: what its scale is, its zero point, its codes, and how it rounds."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.pasted.evaluation import Val, numbers
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.quantizer import Chain, Ends, dtype_of, other, type_limits

SPANS = ("span", "percentiles")  # the kinds of scales that are the step of an asymmetric range
SINGLES = ("abs", "max", "percentile", "signed percentile")  # of a symmetric one
_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close
_QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")


@dataclass(frozen=True, eq=False)
class Case:
    """A quantizer.

    ``chains``: the same one on each ordinary tensor, first ``chain``; ``place``: the lines that tell it from others;
    ``flags``: the boolean parameters that lead to it; ``special``: it on the special tensors that it can be found on;
    ``rule``: how it rounds, a key of `quantcore.pasted.intended.RULES`, "" for another rule.

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

    chains: list[Chain]
    chain: Chain
    place: tuple[int, ...]
    flags: tuple[tuple[str, bool], ...]
    special: dict[str, Chain]
    rule: str
    kind: str
    divisor: float
    percent: float | None
    multiplied: bool
    axis: int
    extreme: str
    formula: str
    divided: Val
    reduced: Val
    limits: tuple[int, int] | None
    bounds: tuple[float, float] | None
    zero: float | None
    one_sided: bool
    kernel: str

    def found(self, kind: str, line: int, certain: bool = True, /, **facts: str) -> CodeFinding:
        """A finding in a line: what there is to say of the quantizer, and ``facts`` besides."""
        nodes = {"clamp": self.chain.clamp, "cast": self.chain.cast}
        known = {n: "" if v is None or v.line == line else f" in line {v.line}" for n, v in nodes.items()}
        known |= {"scale": self.formula, "extreme": self.extreme, "dtype": dtype_of(self.chain.cast)}
        known |= {"limits": between(self.limits), "codes": between(self.bounds)}
        known |= {"low": number(self.bounds[0]) if self.bounds else "qmin", "zero": number(self.zero or 0)}
        return finding(kind, line, certain, **(known | facts))


def case_of(
    chains: list[Chain],
    place: tuple[int, ...],
    flags: tuple[tuple[str, bool], ...],
    special: dict[str, Chain],
    rule: str,
) -> Case:
    """What there is to know of a quantizer, from it on all tensors."""
    chain, limits = chains[0], type_limits(chains[0].cast)
    kind, ratio, multiplied, axis = _form(chains)
    half, percent = round(2 * ratio) / 2, _percent(chain) if "percentile" in kind else None
    divisor = half if abs(half - ratio) <= 2e-3 * ratio else ratio
    low, high = chain.ends
    depends = any(other(s).varies or other(s).handed for s in chain.zeros)
    known = not depends and chain.zero.numel() == 1 and bool(chain.zero.isfinite())
    one_sided = all(bool((c.x >= 0).all()) for c in chains)
    inverse = not multiplied and any(s.op == "mul" for s in chain.scalings)
    divided = _divided(chain)
    reductions = [n for n in chain.scale_nodes if n.op == "reduce" and n.varies]
    extreme, formula = _words(chain, kind, divisor, percent, one_sided)
    return Case(
        chains=chains, chain=chain, place=place, flags=flags, special=special, rule=rule, kind=kind, divisor=divisor,
        percent=percent, multiplied=multiplied, axis=axis, extreme=extreme, formula=formula, divided=divided,
        reduced=max(reductions, key=lambda n: n.index, default=divided), limits=limits,
        bounds=limits if low is None or high is None else (low, high), zero=float(chain.zero) if known else None,
        one_sided=one_sided, kernel=("BD" if inverse else "AC")[bool(chain.early)],
    )  # fmt: skip


def _divided(chain: Chain) -> Val:
    for scaling in chain.scalings:
        val: Val | None = other(scaling)
        while val is not None and val.varies and val.op not in ("reduce", "input"):
            if val.op in ("div", "mul") and sum(a.varies for a in val.args) == 1:
                return val
            val = next((a for a in reversed(val.args) if a.varies), None)
    return chain.scalings[0]


def _words(
    chain: Chain, kind: str, divisor: float, percent: float | None, one_sided: bool
) -> tuple[str, str]:
    """The extreme that a symmetric scale comes from, ``max|x|`` or ``99.9th percentile of x``, and the scale."""
    name, value = chain.data.name, chain.factor
    name = name if chain.data.op == "input" and len(name) < 20 else "x"
    plain = kind in ("max", "signed percentile") or one_sided
    extreme = f"max({name})" if plain else f"max|{name}|"
    if "percentile" in kind:
        extreme = (
            f"{'a' if percent is None else f'{percent:g}th'} percentile of {name if plain else f'|{name}|'}"
        )
    by, span = f" / {number(divisor)}" if divisor != 1 else "", f"max({name}) - min({name})"
    known = {
        "given": f"{float(value):.6g}" if value.numel() == 1 else "given numbers",
        "handed": "an argument",
        "unknown": "not recognized",
        "span": f"({span}){by}" if by else span,
        "percentiles": f"the difference of two percentiles{by}",
    }
    return extreme, known.get(kind) or extreme + by


def scale_of(chain: Chain, multiplied: bool, axis: int) -> Tensor:
    """The scale of each element of a quantizer, without the mistake in its use."""
    return (1 / chain.scale if multiplied else chain.scale).transpose(axis, -1)


def number(value: float) -> str:
    """A number, without a decimal point if it is an integer."""
    return f"{int(value)}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def between(ends: Ends | None) -> str:
    """A range of codes; None means unbounded."""
    return "..".join("open" if end is None else number(end) for end in ends or (None, None))


def near(a: Tensor, b: Tensor | float, within: float = 1.01) -> bool:
    """Whether all values are closer than ``within``."""
    return bool(((a - b).abs() <= within).all())


def _form(chains: list[Chain]) -> tuple[str, float, bool, int]:
    """What a scale is, by which number it is divided, whether x is multiplied by it, and along which axis it lies."""
    first, nodes = chains[0], [other(s) for s in chains[0].scalings]
    if any(n.handed for n in nodes) or not any(n.varies for n in nodes):
        return "handed" if any(n.handed for n in nodes) else "given", 1.0, False, -1
    # scales along the wrong axis fit where all axes are equally long
    turned = range(first.x.ndim - 1) if len(set(first.x.shape)) == 1 and first.factor.numel() > 1 else ()
    for multiplied, axis in ((False, -1), (True, -1), *((False, axis) for axis in turned)):
        scales = [scale_of(c, multiplied, axis) for c in chains]
        if not all(bool((scale.isfinite() & scale.ne(0)).all()) for scale in scales):
            continue
        extremes = [_extremes(chain, scale) for chain, scale in zip(chains, scales, strict=True)]
        for kind in extremes[0]:
            ratios = [
                (e[kind] / scale).flatten() for e, scale in zip(extremes, scales, strict=True) if kind in e
            ]
            values = torch.cat(ratios)
            middle = float(values.median())
            if len(ratios) == len(chains) and middle > 0 and near(values, middle, _CLOSE * middle):
                return kind, middle, multiplied, axis
    return "unknown", 1.0, False, -1


def _extremes(chain: Chain, scale: Tensor) -> dict[str, Tensor]:
    """What the scale may have been computed from, by kind."""
    origin = chain.data
    while origin.flow is not None and origin.op in (
        "getitem",
        "shape",
    ):  # a part, with the scale of the whole
        origin = origin.flow
    single = chain.factor.numel() == 1
    low, high = block_extremes(*((numbers(origin.value), chain.factor) if single else (chain.x, scale)))
    found = {"abs": torch.maximum(low.abs(), high.abs()), "span": high - low, "max": high}
    quantiles = _quantiles(chain)
    values = [numbers(node.value) for node in quantiles]
    if len(quantiles) == 1:
        signed = bool((numbers(quantiles[0].args[0].value) < 0).any())
        found["signed percentile" if signed else "percentile"] = values[0].abs().max()
    elif len(quantiles) == 2:
        found["percentiles"] = (values[0].max() - values[1].max()).abs()
    return found


def block_extremes(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and highest value among the elements that have the same scale, for each element."""
    if scale.numel() == 1:
        return x.min(), x.max()
    keys, places = torch.unique(scale, return_inverse=True)
    places, flat, start = places.flatten(), x.flatten(), torch.zeros(keys.numel(), dtype=x.dtype)
    ends = (start.scatter_reduce(0, places, flat, how, include_self=False) for how in ("amin", "amax"))
    low, high = (end[places].reshape(x.shape) for end in ends)
    return low, high


def _quantiles(chain: Chain) -> list[Val]:
    nodes = {n.index: n for n in chain.scale_nodes if n.op == "reduce" and n.name in _QUANTILES}
    return [nodes[i] for i in sorted(nodes)]


def _percent(chain: Chain) -> float | None:
    """The percentile that the code asks for, in percent; the higher of two."""
    given = [(n, a.value) for n in _quantiles(chain) for a in n.args[1:2] if isinstance(a.value, int | float)]
    return max((float(p) * (100 if "quantile" in node.name else 1) for node, p in given), default=None)
