"""What a scale is: found by comparing its values, on several tensors, with the extremes of what it scales."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quantcore.pasted.quantizer import Chain, other
from quantcore.pasted.trace import Val, numbers

_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close
_QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")


@dataclass(frozen=True)
class Form:
    """``kind``: "abs": max|x|, "span": max - min, "max": max(x), "percentile": of |x| or of a tensor without negative
    values, "signed percentile", "percentiles": their difference, "given": a number, "handed": an argument,
    "unknown"; divided by ``divisor``. ``p``: the percentile, in percent. Mistakes in its use: ``multiplied``: x is
    multiplied by it; ``axis``: it is aligned with this axis instead of the last one."""

    kind: str = "unknown"
    divisor: float = 1.0
    p: float | None = None
    multiplied: bool = False
    axis: int = -1

    @property
    def is_span(self) -> bool:
        """Whether it is the step of an asymmetric range."""
        return self.kind in ("span", "percentiles")

    @property
    def is_single(self) -> bool:
        """Whether it is the step of a symmetric range."""
        return self.kind in ("abs", "max", "percentile", "signed percentile")

    def scale_of(self, chain: Chain) -> Tensor:
        """The scale of each element of a quantizer, without the mistake in its use."""
        return (1 / chain.scale if self.multiplied else chain.scale).transpose(self.axis, -1)


def form_of(found: list[Chain]) -> Form:
    """What the scale of a quantizer is, given the same quantizer on several tensors."""
    first = found[0]
    if first.handed or not first.varies:
        return Form("handed" if first.handed else "given")
    # scales along the wrong axis fit where all axes are equally long
    turned = range(first.x.ndim - 1) if len(set(first.x.shape)) == 1 and first.factor.numel() > 1 else ()
    uses = [Form(), Form(multiplied=True), *(Form(axis=axis) for axis in turned)]
    return next((form for use in uses if (form := _identified(found, use))), Form())


def _identified(found: list[Chain], use: Form) -> Form | None:
    """The form of the scales, if they are used like this."""
    ratios: dict[str, list[Tensor]] = {}
    for chain in found:
        if not bool((chain.factor.isfinite() & chain.factor.ne(0)).all()):
            return None
        try:
            scale = use.scale_of(chain)
        except RuntimeError:
            return None
        for kind, value in _extremes(chain, scale).items():
            ratios.setdefault(kind, []).append((value / scale).flatten())
    for kind, each in ratios.items():
        values = torch.cat(each)
        middle = float(values.median())
        if len(each) == len(found) and middle > 0 and near(values, middle, _CLOSE * middle):
            p = _percent(found[0]) if "percentile" in kind else None
            return replace(use, kind=kind, divisor=middle, p=p)
    return None


def _extremes(chain: Chain, scale: Tensor) -> dict[str, Tensor]:
    """What the scale may have been computed from, by kind."""
    if chain.factor.numel() == 1:  # also of a part of the tensor, with the scale of the whole
        low, high = block_extremes(numbers(chain.origin.value), chain.factor)
    else:
        low, high = block_extremes(chain.x, scale)
    found = {"abs": torch.maximum(low.abs(), high.abs()), "span": high - low, "max": high}
    quantiles = _quantiles(chain)
    if len(quantiles) == 1:
        (node,) = quantiles
        negative = any(bool((numbers(a.value) < 0).any()) for a in node.args[:1] if a.is_array)
        found["signed percentile" if negative else "percentile"] = numbers(node.value).abs().max()
    elif len(quantiles) == 2:
        a, b = (numbers(q.value).max() for q in quantiles)
        found["percentiles"] = (a - b).abs()
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


def near(a: Tensor, b: Tensor | float, within: float = 1.01) -> bool:
    """Whether all values are closer than ``within``."""
    return bool(((a - b).abs() <= within).all())


def _quantiles(chain: Chain) -> list[Val]:
    nodes = [n for n in chain.scale_nodes if n.op == "reduce" and n.name in _QUANTILES]
    return sorted(nodes, key=lambda n: n.index)


def _percent(chain: Chain) -> float | None:
    """The percentile that the code asks for, in percent; the higher of two."""
    given = [(n, a.value) for n in _quantiles(chain) for a in n.args[1:2] if isinstance(a.value, int | float)]
    return max((float(p) * (100 if "quantile" in node.name else 1) for node, p in given), default=None)


def reduction(chain: Chain) -> Val | None:
    """The last reduction that the scale comes from."""
    nodes = [n for n in chain.scale_nodes if n.op == "reduce" and n.varies]
    return max(nodes, key=lambda n: n.index, default=None)


def divided(chain: Chain) -> Val:
    """The operation that divides the scale's extreme by a number, or else the one that scales the data."""
    for scaling in chain.scalings:
        val: Val | None = other(scaling)
        while val is not None and val.varies and val.op not in ("reduce", "input"):
            if val.op in ("div", "mul") and sum(a.varies for a in val.args) == 1:
                return val
            val = next((a for a in reversed(val.args) if a.varies), None)
    return chain.scalings[0]


def written_divisor(chain: Chain) -> float:
    """The number that the scale's extreme is divided by, as the code has it; a factor besides it narrows the range."""
    node = divided(chain)
    constant = next((a for a in node.args if not a.varies), None)
    if constant is None or node in chain.scalings or numbers(constant.value).numel() != 1:
        return math.inf
    value = abs(float(numbers(constant.value)))
    return value if node.op == "div" else 1 / value if value else math.inf


def closest(value: float) -> float:
    """A divisor as the code has it: an integer, or a half, if it is near one."""
    half = round(2 * value) / 2
    return half if abs(half - value) <= 2e-3 * value else value
