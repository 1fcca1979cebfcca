"""One element's way from x to its error, each number as it was really computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.codebook_format import CodebookFormat
from quantcore.coding import ends
from quantcore.errors import QuantError
from quantcore.float_format import FloatFormat
from quantcore.formats import IntFormat
from quantcore.granularity import block_bounds
from quantcore.kernels import KERNELS, Kernel
from quantcore.quantize import Quantized, dequantize
from quantcore.rounding import Rounding, Stochastic, half_even, rounding
from quantcore.scheme import Scheme
from quantcore.trace_text import (
    code_formula,
    number,
    scale_formula,
    signed,
    zero_point_formula,
)


@dataclass(frozen=True)
class Step:
    """One line of arithmetic: what it is called, the formula with its numbers put in, what came out."""

    name: str
    formula: str
    value: str


@dataclass(frozen=True)
class Trace:
    """What happened to one element. Floats are float32 values.

    ``block``: position in the grid of blocks; ``bounds``: (start, stop) of the block along each axis;
    ``low``, ``high``: the block's range, None where scale and zero_point were given; ``replaced``: whether
    the convention put another scale in the place of what the range gave; ``raw_scale``: the scale before it
    was quantized itself, else None; ``factor``: what x was multiplied with where the kernel multiplies, else
    None; ``quotient``: x / s, or x times the factor; ``summed``: that plus z, where z is added before
    rounding, else None; ``shifted``: the code before it is brought into the format (of a float
    format, ``rounded`` and this are the value of the code); ``overflow``: "saturate"
    or "wrap" where that changed it, "cast" where NaN or a number too large became what the library makes of
    it, else None.
    """

    index: tuple[int, ...]
    scheme: Scheme
    block: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]
    low: float | None
    high: float | None
    x: float
    scale: float
    raw_scale: float | None
    zero_point: float
    replaced: bool
    factor: float | None
    quotient: float
    summed: float | None
    rounded: float
    shifted: float
    code: int
    overflow: str | None
    dequantized: float
    error: float

    def steps(self) -> list[Step]:
        """The arithmetic as lines for display; numbers are written so that they read back the same."""
        z, s, q = number(self.zero_point), number(self.scale), number(self.code)
        steps = [Step("x", "", number(self.x)), Step("scale s", scale_formula(self), s)]
        if isinstance(self.scheme.format, IntFormat):
            steps.append(Step("zero point z", zero_point_formula(self), z))
            steps += self._kernel_steps()
            steps.append(Step(*code_formula(self), q))
        else:
            steps += self._value_steps(self.scheme.format)
            q = signed(self.rounded)
        inner = f"({q} - {signed(self.zero_point)}) · {s}" if self.zero_point else f"{q} · {s}"
        steps.append(Step("dequantized x̂", inner, number(self.dequantized)))
        steps.append(
            Step("error x - x̂", f"{number(self.x)} - {signed(self.dequantized)}", number(self.error))
        )
        return steps

    def _kernel_steps(self) -> list[Step]:
        """The steps from x to the rounded code, in the order of the convention's kernel."""
        kernel = kernel_of(self.scheme)
        x, z = number(self.x), signed(self.zero_point)
        steps, product = [], f"{x} / {signed(self.scale)}"
        name = "x / s"
        if self.factor is not None:
            name, product = "x · (1/s)", f"{x} · {signed(self.factor)}"
            kept = self.scheme.convention.asymmetric_scale == "inverse_range" and self.low is not None
            how = "as kept, before s was made of it" if kept else f"1 / {signed(self.scale)}, float32"
            steps.append(Step("1/s", how, number(self.factor)))
        if kernel.fused and isinstance(self.scheme.format, IntFormat):
            steps.append(Step(f"{name} + z", f"{product} + {z}, rounded once", number(self.summed or 0.0)))
        else:
            steps.append(Step(name, product, number(self.quotient)))
        if not isinstance(self.scheme.format, IntFormat):
            return steps
        before = self.quotient
        if self.summed is not None:
            if self.zero_point and not kernel.fused:
                steps.append(Step("+ z", f"{number(self.quotient)} + {z}", number(self.summed)))
            before = self.summed
        steps.append(Step("round", f"round({number(before)}), {_rule(self.scheme)}", number(self.rounded)))
        if self.zero_point and not kernel.shift_first:
            steps.append(Step("+ z", f"{number(self.rounded)} + {z}", number(self.shifted)))
        return steps

    def _value_steps(self, fmt: FloatFormat | CodebookFormat) -> list[Step]:
        """From x / s to the value of a float or a codebook, and its code."""
        if isinstance(fmt, FloatFormat):
            name, rule, code = str(fmt), _rule(self.scheme), _bits(fmt, self.code)
            clipped = f", clipped to the largest, {number(fmt.max)}" if self.overflow else ""
        else:
            name, rule, code = (
                fmt.name or "the codebook",
                f"ties: {fmt.tie}",
                f"place {self.code} of {len(fmt.values)}",
            )
            clipped = f", clipped to the outermost, {number(self.rounded)}" if self.overflow else ""
        return [
            *self._kernel_steps(),
            Step("value v", f"of {number(self.quotient)} in {name}, {rule}{clipped}", number(self.rounded)),
            Step("code q", code, number(self.code)),
        ]


def _bits(fmt: FloatFormat, code: int) -> str:
    parts = fmt.fields(code)
    bits = [
        "" if parts.sign is None else f"sign {parts.sign}",
        f"exponent {parts.exponent:0{fmt.exponent}b}",
        f"mantissa {parts.mantissa:0{fmt.mantissa}b}" if fmt.mantissa else "",
    ]
    return ", ".join(filter(None, bits))


_RULES = {
    "half_even": "half to even",
    "half_away": "half away from zero",
    "half_up": "half up",
    "floor": "down",
    "ceil": "up",
    "toward_zero": "toward zero",
}


def _rule(scheme: Scheme) -> str:
    return _RULES.get(scheme.convention.rounding, "up or down by chance")


def _rounding_of(result: Quantized, code: int, kept: float) -> Rounding:
    """The rule that rounded one element; what chance did is read from its code.

    ``kept``: what is added to the rounded value before it is the code.
    """
    rule = rounding(result.scheme.convention.rounding)
    if not isinstance(rule, Stochastic):
        return rule

    def as_it_fell(values: Tensor) -> Tensor:
        down = float(values.floor()) + kept
        return values.floor_() if down >= code else values.ceil_()

    return as_it_fell


def kernel_of(scheme: Scheme) -> Kernel:
    """The kernel that a scheme's convention runs at its granularity."""
    return KERNELS[scheme.convention.at(scheme.granularity).kernel]


def trace(result: Quantized, index: Sequence[int] | int) -> Trace:
    """Follow one element.

    Raises:
        QuantError: the index is not in the tensor.
    """
    shape, scheme = tuple(result.x.shape), result.scheme
    at = _checked(index, shape)
    laid = result.laid_shape
    inside = at if laid == shape else (int(np.ravel_multi_index(at, shape)) if at else 0,)
    position = tuple(i // b for i, b in zip(inside, result.block, strict=True))
    one = tuple(slice(i, i + 1) for i in at)
    place = tuple(slice(p, p + 1) for p in position)
    x = result.x[one]
    scale, zero_point = (p[place].reshape(x.shape) for p in (result.scale, result.params.zero_point))
    shift = zero_point.to(torch.float32)
    kernel = kernel_of(scheme)
    factor = None
    if kernel.inverse:
        kept = result.params.inverse
        factor = torch.reciprocal(scale) if kept is None else kept[place].reshape(x.shape)
    code = int(result.codes[one])
    s = scale if factor is None else factor
    if isinstance(scheme.format, IntFormat):
        round_ = _rounding_of(result, code, 0.0 if kernel.shift_first else float(shift))
        steps = replay(kernel, x, s, shift, round_)
        overflow = _overflow(steps["shifted"], code, scheme)
    else:
        least, most = ends(scheme.format)
        quotient, value = float(x * s if kernel.inverse else x / s), float(scheme.format.table[code])
        steps = {"quotient": quotient, "summed": None, "rounded": value, "shifted": value}
        overflow = "saturate" if not least <= quotient <= most else None
    single = Scheme(scheme.format, scheme.symmetric)
    x_hat = dequantize(result.codes[one], scale, zero_point, single)
    low, high = (None if p is None else float(p[place]) for p in (result.params.low, result.params.high))
    replaced = result.params.replaced
    return Trace(
        index=at,
        scheme=scheme,
        block=position,
        bounds=block_bounds(laid, result.block, position),
        low=low,
        high=high,
        x=float(x),
        scale=float(scale),
        raw_scale=None if result.params.raw is None else float(result.params.raw[place]),
        zero_point=zero_point.item(),
        replaced=replaced is not None and bool(replaced[place]),
        factor=None if factor is None else float(factor),
        **steps,
        code=code,
        overflow=overflow,
        dequantized=float(x_hat),
        error=float(x - x_hat),
    )


def replay(kernel: Kernel, x: Tensor, s: Tensor, z: Tensor, round_: Rounding = half_even) -> dict[str, Any]:
    """Return quotient, summed, rounded and shifted of single elements; ``s`` as the kernel takes it."""
    quotient = x * s if kernel.inverse else x / s
    unclamped = float(kernel.run(x, s, z, torch.empty_like(x), round_))
    if not kernel.shift_first:
        rounded = float(kernel.run(x, s, None, torch.empty_like(x), round_))
        return {"quotient": float(quotient), "summed": None, "rounded": rounded, "shifted": unclamped}
    summed = torch.add(z.reshape(()), x, alpha=s.item()) if kernel.fused else quotient + z
    return {
        "quotient": float(quotient),
        "summed": float(summed),
        "rounded": unclamped,
        "shifted": unclamped,
    }


def _overflow(shifted: float, code: int, scheme: Scheme) -> str | None:
    if shifted == code:
        return None
    within = scheme.format.qmin <= code <= scheme.format.qmax
    clamped = min(max(shifted, scheme.format.qmin), scheme.format.qmax) == code
    if scheme.convention.overflow == "saturate" and not (within and clamped):
        return "cast"
    return scheme.convention.overflow


def _checked(index: Sequence[int] | int, shape: tuple[int, ...]) -> tuple[int, ...]:
    given: tuple[Any, ...] = tuple(index) if isinstance(index, Sequence) else (index,)
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in given)
    if (
        not whole
        or len(given) != len(shape)
        or any(not -n <= i < n for i, n in zip(given, shape, strict=True))
    ):
        raise QuantError(
            f"There is no element {given} in a tensor of shape {shape}; give one index per axis."
        )
    return tuple(int(i) % n for i, n in zip(given, shape, strict=True))
