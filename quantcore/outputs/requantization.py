"""From an int32 accumulator to the codes of the output: by a float, or by an int32 multiplier and a shift.

Runtimes without fast floats multiply by M = s_x·s_w / s_y as m·2^(shift − 31), and round in one of two ways,
which differ by at most 1: once, or as gemmlowp does, after the multiplication and again after the shift.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import Format, IntFormat, parse_format
from quantcore.outputs.matrices import MethodStep

FLOAT, SINGLE, DOUBLE = "float", "single", "double"
REQUANTIZATIONS = {
    FLOAT: "float32 multiplication, rounded half to even (onnxruntime)",
    SINGLE: "int32 multiplier and shift, rounded once, half up (TFLite with single rounding)",
    DOUBLE: "int32 multiplier and shift, rounded after each (gemmlowp, TFLite by default)",
}
_INT32 = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, eq=False)
class Requantized:
    """The codes of an output.

    ``codes``: of the format's dtype; ``unclamped``: before the format's bounds, int64; ``factor`` and
    ``shift``: the multiplier as factor·2^(shift − 31), int64, None for ``float``; ``high``: with ``double``,
    the product rounded for the first time, int64, which a shift to the right rounds again.
    """

    codes: Tensor
    unclamped: Tensor
    multiplier: Tensor
    factor: Tensor | None
    shift: Tensor | None
    steps: tuple[MethodStep, ...]
    high: Tensor | None = None

    def lines(self, token: int, channel: int, zero_point: int) -> list[str]:
        """Return the arithmetic of one code, line by line, with each rounding.

        >>> for line in requantize([[50]], 0.0888412, 122, "uint8", DOUBLE).lines(0, 0, 122):
        ...     print(line)
        s_x·s_w / s_y = 1526280194·2^-34
        round(1526280194·2^-31·50 = 35.53648) = 36
        round(36·2^-3 = 4.5) + 122 = 127, clamped to 127
        """

        def of(values: Tensor) -> int:
            return int(values.expand(self.codes.shape)[token, channel])

        kept, right = of(self.steps[0].value), 0
        multiplier = float(self.multiplier.expand(self.codes.shape)[token, channel])
        written, scaled = f"{multiplier:.6g}", float(torch.tensor([float(kept), multiplier]).prod())
        if self.factor is not None and self.shift is not None:
            factor, shift = of(self.factor), of(self.shift)
            written, scaled = f"{factor}·2^{shift - 31}", factor * kept * 2.0 ** (shift - 31)
            right = -shift
        found = [f"s_x·s_w / s_y = {written}"]
        rounded = f"{written}·{kept} = {scaled:.9g}"
        if self.high is not None and right > 0:
            high = of(self.high)
            found.append(f"round({factor}·2^-31·{kept} = {factor * kept * 2.0**-31:.9g}) = {high}")
            rounded = f"{high}·2^-{right} = {high * 2.0**-right:.9g}"
        code = f"{of(self.unclamped)}, clamped to {of(self.codes)}"
        return [*found, f"round({rounded}) + {zero_point} = {code}"]


def fixed_point(multiplier: float) -> tuple[int, int]:
    """Return (factor, shift) with multiplier ≈ factor·2^(shift − 31), 2^30 ≤ factor < 2^31, as TFLite does.

    tensorflow/lite/kernels/internal/quantization_util.cc, QuantizeMultiplier: rounds half away from 0, and
    multipliers below 2^-32 become 0.

    >>> fixed_point(0.3), fixed_point(1.0)
    ((1288490189, -1), (1073741824, 1))

    Raises:
        QuantError: the multiplier is not positive and finite, or is 2^30 or more.
    """
    factor, shift = _fixed_points(torch.tensor(multiplier, dtype=torch.float64))
    return int(factor), int(shift)


def _fixed_points(multipliers: Tensor) -> tuple[Tensor, Tensor]:
    """Return `fixed_point` of each multiplier, int64."""
    bad = ~((multipliers > 0) & torch.isfinite(multipliers))
    if bool(bad.any()):
        raise QuantError(f"The multiplier must be positive and finite, not {float(multipliers[bad][0]):g}.")
    fraction, exponent = torch.frexp(multipliers)
    factor = torch.floor(fraction * (1 << 31) + 0.5).to(torch.int64)
    carried = factor == 1 << 31
    factor, shift = torch.where(carried, factor // 2, factor), exponent.to(torch.int64) + carried
    if bool((shift > 30).any()):
        large = float(multipliers[shift > 30][0])
        raise QuantError(f"The multiplier {large:g} is 2^30 or more; choose a larger output scale.")
    return factor * (shift >= -31), shift * (shift >= -31)


def requantize(
    accumulator: Any, multiplier: Any, zero_point: int, fmt: Format | str, how: str = FLOAT
) -> Requantized:
    """Return clamp(round(multiplier·accumulator) + zero_point), rounded as a runtime does.

    Args:
        accumulator: int32 [tokens, out].
        multiplier: s_x·s_w / s_y: one number, or one per output or token, to broadcast.
        fmt: an integer format of the output.
        how: one of `REQUANTIZATIONS`.

    >>> [requantize([[-5]], 0.25, 0, "int8", how).codes.item() for how in REQUANTIZATIONS]
    [-1, -1, -1]
    >>> [requantize([[10]], 0.25, 0, "int8", how).codes.item() for how in REQUANTIZATIONS]  # a tie
    [2, 3, 3]

    Raises:
        QuantError: the format is not an integer format, ``how`` is unknown, the accumulator does not fit in
            32 bits, or a multiplier can't be represented.
    """
    fmt = parse_format(fmt) if isinstance(fmt, str) else fmt
    if not isinstance(fmt, IntFormat):
        raise QuantError(f"Accumulators are requantized to integers, not to {fmt}; choose int8 or uint8.")
    if how not in REQUANTIZATIONS:
        raise QuantError(f"There is no requantization {how!r}; choose one of {', '.join(REQUANTIZATIONS)}.")
    sums = torch.as_tensor(accumulator).to(torch.int64)
    if sums.numel() and not _INT32[0] <= int(sums.min()) <= int(sums.max()) <= _INT32[1]:
        raise QuantError("An accumulator does not fit in 32 bits; give them as they are after the overflow.")
    real = torch.as_tensor(multiplier, dtype=torch.float64)
    factor = shift = high = None
    if how == FLOAT:
        narrow = real.to(torch.float32)
        scaled = sums.to(torch.float32) * narrow
        # the bounds of int32 in float32: a larger number has no int64 and is clamped anyway
        rounded = scaled.round().clamp(-(2.0**40), 2.0**40).to(torch.int64)
    else:
        factor, shift = _fixed_points(real)
        if how == SINGLE:
            rounded = _once(sums, factor, shift)
        else:
            rounded, high = _twice(sums, factor, shift)
    unclamped = rounded + zero_point
    codes = unclamped.clamp(fmt.qmin, fmt.qmax).to(fmt.dtype)
    steps = (
        MethodStep("accumulator", "Σ (q_x − z_x)·(q_w − z_w) + bias", sums),
        MethodStep("scaled", REQUANTIZATIONS[how], rounded),
        MethodStep("codes", f"+ {zero_point}, clamped to {fmt.qmin}..{fmt.qmax}", codes),
    )
    return Requantized(codes, unclamped, real, factor, shift, steps, high)


def _once(sums: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Return sums·factor·2^(shift − 31), rounded half up."""
    right = 31 - shift
    return (sums * factor + (torch.ones_like(right) << (right - 1))) >> right


def _twice(sums: Tensor, factor: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same, rounded half up to units of 2^-shift, and half away from 0 by the shift; and
    what it was before the shift.

    gemmlowp, fixedpoint/fixedpoint.h: SaturatingRoundingDoublingHighMul and RoundingDivideByPOT.
    """
    shifted = sums << shift.clamp(min=0)
    if shifted.numel() and not _INT32[0] <= int(shifted.min()) <= int(shifted.max()) <= _INT32[1]:
        raise QuantError(
            "The accumulator times a multiplier above 1 leaves 32 bits before it is rounded; choose a larger "
            "output scale."
        )
    # a nudge of 2^30, one less for negative products, and division that truncates
    product = shifted * factor
    nudge = torch.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = torch.div(product + nudge, 1 << 31, rounding_mode="trunc")
    right = (-shift).clamp(min=0)
    mask = (torch.ones_like(right) << right) - 1
    up = (high & mask) > (mask >> 1) + (high < 0).to(torch.int64)
    return (high >> right) + up.to(torch.int64), high
