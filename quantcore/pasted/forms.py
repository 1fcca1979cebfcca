"""What a scale is: found by comparing its values, on several tensors, with the extremes of what it scales."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.pasted.quantizer import Chain, other
from quantcore.pasted.trace import Val, ancestors, numbers

_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close
_QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")


@dataclass(frozen=True)
class Form:
    """``kind``: "abs": max|x|, "span": max - min, "max": max(x), "percentile": of |x| or of a tensor without negative
    values, "signed percentile", "percentiles": their difference, "given": a number, "handed": an argument,
    "unknown"; divided by ``divisor``. ``p``: the percentile, in percent."""

    kind: str
    divisor: float = 1.0
    p: float | None = None

    @property
    def is_span(self) -> bool:
        """Whether it is the step of an asymmetric range."""
        return self.kind in ("span", "percentiles")

    @property
    def is_single(self) -> bool:
        """Whether it is the step of a symmetric range."""
        return self.kind in ("abs", "max", "percentile", "signed percentile")


def form_of(found: list[Chain]) -> Form:
    """What the scale of a quantizer is, given the same quantizer on several tensors."""
    first = found[0]
    if first.handed:
        return Form("handed")
    if not first.varies:
        return Form("given")
    return _identified([(c, numbers(c.data.value), c.factor) for c in found]) or Form("unknown")


def inverse_form(found: list[Chain]) -> Form | None:
    """What 1 / scale is: a form if the data was multiplied by a scale."""
    return _identified([(c, numbers(c.data.value), 1 / c.factor) for c in found]) if found[0].varies and not found[0].handed else None


def transposed_form(found: list[Chain]) -> tuple[Form, int] | None:
    """What the scales would be along another axis of a tensor whose axes are equally long, and which axis."""
    first = numbers(found[0].data.value)
    if len(set(first.shape)) != 1 or not found[0].varies or found[0].factor.numel() == 1:
        return None
    for axis in range(first.ndim - 1):
        form = _identified([(c, x := numbers(c.data.value), spread(c.factor, x).transpose(axis, -1)) for c in found])
        if form is not None:
            return form, axis
    return None


def spread(scale: Tensor, x: Tensor) -> Tensor:
    """Scales, one for each element."""
    return scale.broadcast_to(x.shape)


def block_extremes(x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and highest value among the elements that have the same scale, for each element."""
    if scale.numel() == 1:
        return x.min().expand_as(x), x.max().expand_as(x)
    keys, places = torch.unique(scale, return_inverse=True)
    places, flat = places.flatten(), x.flatten()
    ends = (torch.zeros(keys.numel(), dtype=x.dtype).scatter_reduce(0, places, flat, how, include_self=False) for how in ("amin", "amax"))
    low, high = (end[places].reshape(x.shape) for end in ends)
    return low, high


def _identified(parts: list[tuple[Chain, Tensor, Tensor]]) -> Form | None:
    ratios: dict[str, list[Tensor]] = {}
    for chain, x, scale in parts:
        if not bool(scale.isfinite().all() and (scale != 0).all()) or not x.numel():
            return None
        try:
            each = scale if scale.numel() == 1 else spread(scale, x)
        except RuntimeError:
            return None
        for kind, value in _candidates(chain, x, each).items():
            ratios.setdefault(kind, []).append((value / each).flatten())
    for kind, found in ratios.items():
        if len(found) != len(parts):
            continue
        values = torch.cat(found)
        middle = float(values.median())
        if middle > 0 and bool(((values - middle).abs() <= _CLOSE * middle).all()):
            return Form(kind, middle, _percent(parts[0][0]) if "percentile" in kind else None)
    return None


def _candidates(chain: Chain, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
    low, high = block_extremes(x, scale)
    quantiles, whole = _quantiles(chain), numbers(chain.origin.value)
    if whole.numel() != x.numel() and scale.numel() == 1:  # a part of the tensor, with the scale of the whole
        low, high = whole.min().expand(1), whole.max().expand(1)
    found = {"abs": torch.maximum(low.abs(), high.abs()), "span": high - low, "max": high}
    if len(quantiles) == 1:
        node = quantiles[0]
        negative = any(bool((numbers(a.value) < 0).any()) for a in node.args[:1] if a.is_array)
        found["signed percentile" if negative else "percentile"] = numbers(node.value).abs().max().expand(1)
    elif len(quantiles) == 2:
        a, b = (numbers(q.value).max() for q in quantiles)
        found["percentiles"] = (a - b).abs().expand(1)
    return found


def _quantiles(chain: Chain) -> list[Val]:
    nodes = [n for s in chain.scalings for n in ancestors(other(s)) if n.op == "reduce" and n.name in _QUANTILES]
    return sorted(nodes, key=lambda n: n.index)


def _percent(chain: Chain) -> float | None:
    """The percentile that the code asks for, in percent; the higher of two."""
    found = []
    for node in _quantiles(chain):
        given = [float(numbers(a.value)) for a in node.args[1:2] if isinstance(a.value, int | float)]
        found += [g * 100 if "quantile" in node.name else g for g in given]
    return max(found, default=None)


def reduction(chain: Chain) -> Val | None:
    """The last reduction that the scale comes from."""
    nodes = [n for s in chain.scalings for n in ancestors(other(s)) if n.op == "reduce" and n.varies]
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
