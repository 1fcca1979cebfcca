"""One element's way from x to its error, each number as it was really computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantcore.errors import QuantError
from quantcore.formats import Format
from quantcore.granularity import block_bounds
from quantcore.quantize import Quantized, dequantize, fit, unclamped
from quantcore.range_setting import Given, MinMax
from quantcore.scheme import Scheme


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
    ``low``, ``high``: the block's range, None where scale and zero_point were given; ``shifted``: the code
    before it is brought into the format; ``overflow``: "saturate" or "wrap" where that changed it, else None.
    """

    index: tuple[int, ...]
    scheme: Scheme
    block: tuple[int, ...]
    bounds: tuple[tuple[int, int], ...]
    low: float | None
    high: float | None
    x: float
    scale: float
    zero_point: int
    quotient: float
    rounded: float
    shifted: float
    code: int
    overflow: str | None
    dequantized: float
    error: float

    def steps(self) -> list[Step]:
        """The arithmetic as lines for display; numbers are written so that they read back the same."""
        fmt = self.scheme.format
        z, s, q = _text(self.zero_point), _text(self.scale), _text(self.code)
        steps = [Step("x", "", _text(self.x)), Step("scale s", _scale_formula(self), s)]
        steps.append(Step("zero point z", _zero_point_formula(self), z))
        steps.append(Step("x / s", f"{_text(self.x)} / {s}", _text(self.quotient)))
        steps.append(Step("round", f"round({_text(self.quotient)}), half to even", _text(self.rounded)))
        if self.zero_point:
            steps.append(
                Step("+ z", f"{_text(self.rounded)} + {_signed(self.zero_point)}", _text(self.shifted))
            )
        if self.scheme.convention.overflow == "saturate":
            what, how = "clamp", f"clamp({_text(self.shifted)}, {fmt.qmin}, {fmt.qmax})"
        else:
            what, how = "wrap", f"{_text(self.shifted)} modulo 2^{fmt.bits}, in {_wrapped_span(fmt)}"
        steps.append(Step(f"code q ({what})", how + (", since it does not fit" if self.overflow else ""), q))
        inner = f"({q} - {_signed(self.zero_point)}) · {s}" if self.zero_point else f"{q} · {s}"
        steps.append(Step("dequantized x̂", inner, _text(self.dequantized)))
        steps.append(Step("error x - x̂", f"{_text(self.x)} - {_signed(self.dequantized)}", _text(self.error)))
        return steps


def trace(result: Quantized, index: Sequence[int] | int) -> Trace:
    """Follow one element.

    Raises:
        QuantError: the index is not in the tensor.
    """
    shape, scheme = tuple(result.x.shape), result.scheme
    at = _checked(index, shape)
    position = tuple(i // b for i, b in zip(at, result.block, strict=True))
    one = tuple(slice(i, i + 1) for i in at)
    place = tuple(slice(p, p + 1) for p in position)
    x, scale, zero_point = result.x[one], result.scale[place], result.zero_point[place]
    # A box of one element runs through the arithmetic of `quantize` itself, once without z and once with it.
    single = Scheme(scheme.format, scheme.symmetric, convention=scheme.convention)
    rounded = next(unclamped(x, scale, 0, single))[1].clone()
    shifted = next(unclamped(x, scale, zero_point, single))[1].clone()
    code = fit(shifted.clone(), single).to(result.codes.dtype)
    x_hat = dequantize(code.view(x.shape), scale, zero_point, single)
    low, high = (None if p is None else float(p[place]) for p in (result.params.low, result.params.high))
    return Trace(
        index=at,
        scheme=scheme,
        block=position,
        bounds=block_bounds(shape, result.block, position),
        low=low,
        high=high,
        x=float(x),
        scale=float(scale),
        zero_point=int(zero_point),
        quotient=float(x / scale),
        rounded=float(rounded),
        shifted=float(shifted),
        code=int(code),
        overflow=scheme.convention.overflow if float(shifted) != int(code) else None,
        dequantized=float(x_hat),
        error=float(x - x_hat),
    )


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


def _scale_formula(t: Trace) -> str:
    fmt = t.scheme.format
    if t.low is None or t.high is None:
        return "given by hand"
    if t.low == t.high == 0:
        return "1, since the range is 0"
    low, high = _signed(t.low), _text(t.high)
    steps = (1 << (fmt.bits - 1)) - 1 if t.scheme.symmetric else fmt.qmax - fmt.qmin
    if t.scheme.symmetric:
        name = "max|x|" if isinstance(t.scheme.range_setting, MinMax) else "max(|low|, |high|)"
        formula = f"{name} / {steps} = {high} / {steps}"
    elif t.high - t.low > float(np.finfo(np.float32).max):
        formula = f"high / {steps} - low / {steps} = {high} / {steps} - {low} / {steps}"
    else:
        formula = f"(high - low) / {steps} = ({high} - {low}) / {steps}"
    tiny = t.high - t.low < t.scale  # never so in a range that a scale was divided from
    return formula + (" = 0 in float32; 1 instead" if tiny else "")


def _zero_point_formula(t: Trace) -> str:
    fmt = t.scheme.format
    if isinstance(t.scheme.range_setting, Given) or t.low is None:
        return "given by hand"
    if t.scheme.symmetric:
        return "0, symmetric and signed" if fmt.signed else f"2^{fmt.bits - 1}, symmetric and unsigned"
    return f"clamp(qmin - round(low / s)) = clamp({fmt.qmin} - round({_text(t.low)} / {_text(t.scale)}))"


def _wrapped_span(fmt: Format) -> str:
    lowest = fmt.qmin - fmt.narrow
    return f"{lowest}..{fmt.qmax}"


def _text(value: float) -> str:
    """The shortest decimal that reads back as the same float32."""
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(np.float32(value))


def _signed(value: float) -> str:
    return f"({_text(value)})" if value < 0 else _text(value)
