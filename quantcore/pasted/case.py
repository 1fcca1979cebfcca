"""One quantizer of the code on several tensors: what its scale is, its zero point, its codes, and how it rounds."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.quantizer import Chain, dtype_of, is_half, number_of, other, type_limits
from quantcore.pasted.trace import Val, numbers

TO_NEAREST = ("round", "rint", "around")
_CLOSE = 2e-3  # relative; a scale in float16 is that close, and an eps that is added leaves it that close
_QUANTILES = ("quantile", "nanquantile", "percentile", "nanpercentile", "kthvalue")


@dataclass(frozen=True)
class Form:
    """What a scale is. ``kind``: "abs": max|x|, "span": max - min, "max": max(x), "percentile": of |x| or of a tensor
    without negative values, "signed percentile", "percentiles": their difference, "given": a number, "handed": an
    argument, "unknown"; divided by ``divisor``. ``p``: the percentile, in percent. Mistakes in its use: ``multiplied``:
    x is multiplied by it; ``axis``: it is aligned with this axis instead of the last one."""

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


@dataclass(frozen=True, eq=False)
class Case:
    """A quantizer. ``chains``: the same one on each ordinary tensor; ``place``: the lines that tell it from others;
    ``flags``: the boolean parameters that lead to it; ``special``: it on the special tensors that it can be found on."""

    chains: list[Chain]
    place: tuple[int, ...] = ()
    flags: tuple[tuple[str, bool], ...] = ()
    special: dict[str, Chain] = field(default_factory=dict)

    @property
    def chain(self) -> Chain:
        """It on the first tensor."""
        return self.chains[0]

    @cached_property
    def form(self) -> Form:
        """What its scale is."""
        nodes, first = [other(s) for s in self.chain.scalings], self.chain
        if any(n.handed for n in nodes) or not any(n.varies for n in nodes):
            return Form("handed" if any(n.handed for n in nodes) else "given")
        # scales along the wrong axis fit where all axes are equally long
        turned = range(first.x.ndim - 1) if len(set(first.x.shape)) == 1 and first.factor.numel() > 1 else ()
        uses = [Form(), Form(multiplied=True), *(Form(axis=axis) for axis in turned)]
        return next((form for use in uses for form in _identified(self.chains, use)), Form())

    @property
    def divisor(self) -> float:
        """What the scale's extreme is divided by: an integer, or a half, if it is near one."""
        half = round(2 * self.form.divisor) / 2
        return half if abs(half - self.form.divisor) <= 2e-3 * self.form.divisor else self.form.divisor

    @property
    def limits(self) -> tuple[int, int] | None:
        """The limits of the type that the codes are stored in."""
        return type_limits(self.chain.cast)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The codes that there are: those of the clamp, or else of the type."""
        low, high = self.chain.ends
        return (low, high) if low is not None and high is not None else self.limits

    @property
    def zero(self) -> float | None:
        """The zero point, if it is a number that the code has."""
        given = any(other(step).varies or other(step).handed for step in self.chain.zeros)
        known = not given and self.chain.zero.numel() == 1 and bool(self.chain.zero.isfinite())
        return float(self.chain.zero) - (0.5 if self.is_raised else 0.0) if known else None

    @property
    def random(self) -> bool:
        """Whether something random is added before rounding."""
        return any(one.op == "random" for s in self.chain.zeros for one in (other(s), *other(s).args))

    @property
    def early(self) -> list[Val]:
        """What is added before the rounding."""
        return [s for s in self.chain.zeros if s.index < self.chain.round.index]

    @property
    def is_raised(self) -> bool:
        """Whether a half is added and the sum rounded down."""
        added = any(number_of(other(s)) == 0.5 and s.op == "add" for s in self.early)
        return added and self.chain.round.name == "floor"

    @property
    def rule(self) -> str:
        """How it rounds: "round", "half up", "half away", "floor", "ceil" or "truncate"."""
        name, steps = self.chain.round.name, self.chain.codes
        signed = any(s.op == "signed" for s in steps)  # what is rounded is a magnitude
        if any(is_half(s, self.chain.round) for s in steps):
            return "half away"
        if self.is_raised:
            return "half away" if signed else "half up"
        found = "round" if name in TO_NEAREST else name if name in ("floor", "ceil") else "truncate"
        return "truncate" if signed and found == "floor" else found

    @property
    def zero_line(self) -> int:
        """The line where a zero point of 0 was written or added; 0 if there is none."""
        constants = (s for s in self.chain.zeros if not other(s).varies and number_of(other(s)) == 0)
        return next((other(s).line or s.line for s in constants), 0)

    @cached_property
    def one_sided(self) -> bool:
        """Whether what is quantized never has negative values."""
        return all(bool((c.x >= 0).all()) for c in self.chains)

    @property
    def kernel(self) -> str:
        """The letter of the convention's kernel that has the code's order of division, rounding and zero point."""
        inverse = not self.form.multiplied and any(s.op == "mul" for s in self.chain.scalings)
        return ("BD" if inverse else "AC")[bool(self.early) and not self.is_raised]

    @cached_property
    def divided(self) -> Val:
        """The operation that divides the scale's extreme by a number, or else the one that scales the data."""
        for scaling in self.chain.scalings:
            val: Val | None = other(scaling)
            while val is not None and val.varies and val.op not in ("reduce", "input"):
                if val.op in ("div", "mul") and sum(a.varies for a in val.args) == 1:
                    return val
                val = next((a for a in reversed(val.args) if a.varies), None)
        return self.chain.scalings[0]

    @property
    def written_divisor(self) -> float:
        """The number that the scale's extreme is divided by, as the code has it; a factor besides it narrows the range."""
        constant = next((a for a in self.divided.args if not a.varies), None)
        value = (
            abs(number_of(constant) or 0.0) if constant and self.divided not in self.chain.scalings else 0.0
        )
        return math.inf if not value else value if self.divided.op == "div" else 1 / value

    @property
    def reduced(self) -> Val:
        """The last reduction that the scale comes from."""
        nodes = [n for n in self.chain.scale_nodes if n.op == "reduce" and n.varies]
        return max(nodes, key=lambda n: n.index, default=self.divided)

    @property
    def extreme(self) -> str:
        """The extreme that a symmetric scale comes from: ``max|x|``, ``99.9th percentile of x``."""
        form, name = self.form, self._name
        shown = name if form.kind in ("max", "signed percentile") or self.one_sided else f"|{name}|"
        if "percentile" in form.kind:
            return f"{'a' if form.p is None else f'{form.p:g}th'} percentile of {shown}"
        return f"max({shown})" if shown == name else f"max{shown}"

    @property
    def _name(self) -> str:
        data = self.chain.data
        return data.name if data.op == "input" and len(data.name) < 20 else "x"

    @property
    def formula(self) -> str:
        """The scale, as a formula."""
        kind, name, value = self.form.kind, self._name, self.chain.factor
        if kind == "given":
            return f"{float(value):.6g}" if value.numel() == 1 else "given numbers"
        if kind in ("handed", "unknown"):
            return "an argument" if kind == "handed" else "not recognized"
        above = {
            "span": f"max({name}) - min({name})",
            "percentiles": "the difference of two percentiles",
        }.get(kind)
        if self.divisor == 1 or above is None:
            return (above or self.extreme) + ("" if self.divisor == 1 else f" / {number(self.divisor)}")
        return f"{f'({above})' if kind == 'span' else above} / {number(self.divisor)}"

    def found(self, kind: str, line: int, certain: bool = True, /, **facts: str) -> CodeFinding:
        """A finding in a line: what there is to say of the quantizer, and ``facts`` besides."""

        def elsewhere(node: Val | None) -> str:
            return "" if node is None or node.line == line else f" in line {node.line}"

        bounds, unknown = self.bounds, (None, None)
        known = {"scale": self.formula, "extreme": self.extreme, "dtype": dtype_of(self.chain.cast)}
        known |= {"clamp": elsewhere(self.chain.clamp), "cast": elsewhere(self.chain.cast)}
        known |= {"limits": between(*(self.limits or unknown)), "codes": between(*(bounds or unknown))}
        known |= {"low": number(bounds[0]) if bounds else "qmin", "zero": number(self.zero or 0)}
        return finding(kind, line, certain, **(known | facts))


def number(value: float) -> str:
    """A number, without a decimal point if it is an integer."""
    return f"{int(value)}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def between(low: float | None, high: float | None) -> str:
    """A range of codes; None means unbounded."""
    return "..".join("open" if end is None else number(end) for end in (low, high))


def _identified(found: list[Chain], use: Form) -> Iterator[Form]:
    """The forms that the scales may have, if they are used like this."""
    ratios = defaultdict[str, list[Tensor]](list)
    for chain in found:
        scale = use.scale_of(chain)
        if not bool((scale.isfinite() & scale.ne(0)).all()):
            return
        for kind, value in _extremes(chain, scale).items():
            ratios[kind].append((value / scale).flatten())
    for kind, each in ratios.items():
        values = torch.cat(each)
        middle = float(values.median())
        if len(each) == len(found) and middle > 0 and near(values, middle, _CLOSE * middle):
            yield replace(
                use, kind=kind, divisor=middle, p=_percent(found[0]) if "percentile" in kind else None
            )


def _extremes(chain: Chain, scale: Tensor) -> dict[str, Tensor]:
    """What the scale may have been computed from, by kind."""
    origin = chain.data
    while origin.flow is not None and origin.op in (
        "getitem",
        "shape",
    ):  # a part of a tensor, with the scale of the whole
        origin = origin.flow
    single = chain.factor.numel() == 1
    low, high = block_extremes(
        numbers(origin.value) if single else chain.x, chain.factor if single else scale
    )
    found = {"abs": torch.maximum(low.abs(), high.abs()), "span": high - low, "max": high}
    quantiles = [numbers(node.value) for node in _quantiles(chain)]
    if len(quantiles) == 1:
        signed = bool((numbers(_quantiles(chain)[0].args[0].value) < 0).any())
        found["signed percentile" if signed else "percentile"] = quantiles[0].abs().max()
    elif len(quantiles) == 2:
        found["percentiles"] = (quantiles[0].max() - quantiles[1].max()).abs()
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
    nodes = {n.index: n for n in chain.scale_nodes if n.op == "reduce" and n.name in _QUANTILES}
    return [nodes[i] for i in sorted(nodes)]


def _percent(chain: Chain) -> float | None:
    """The percentile that the code asks for, in percent; the higher of two."""
    given = [(n, a.value) for n in _quantiles(chain) for a in n.args[1:2] if isinstance(a.value, int | float)]
    return max((float(p) * (100 if "quantile" in node.name else 1) for node, p in given), default=None)
