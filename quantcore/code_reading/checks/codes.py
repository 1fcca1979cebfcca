"""Checks of the codes: rounding, clamp, cast, and whether the scale keeps them in range."""

from collections.abc import Iterator

from quantcore.code_reading.checks.scale import check_axes, check_scale
from quantcore.code_reading.checks.words import bound, number
from quantcore.code_reading.checks.zero_point import check_zero_point
from quantcore.code_reading.quantizer import Cast, Quantizer
from quantcore.code_reading.record import Found
from quantcore.code_reading.values.python import DType, Num, Param, Unknown
from quantcore.code_reading.values.quantities import Op, Stat, Steps


def check_codes(quantizer: Quantizer) -> Iterator[Found]:
    """Yield what is wrong with a quantizer up to its stored codes."""
    if not quantizer.stored.of("round"):
        return
    yield from _rounding(quantizer)
    yield from _cast(quantizer)
    yield from check_scale(quantizer)
    yield from check_zero_point(quantizer)
    yield from check_axes(quantizer)
    if (
        quantizer.codes.data.twice is not None
        and quantizer.codes.data.twice.codes.scale != quantizer.codes.scale
    ):
        yield Found(
            "quantized-twice", quantizer.codes.ops[0].line,
            f"This tensor was already quantized and dequantized (line {quantizer.codes.data.twice.line}): rounding twice can move "
            "a value by more than half a step.",
            "Quantize the original tensor once.",
        )  # fmt: skip


def _rounding(quantizer: Quantizer) -> Iterator[Found]:
    if quantizer.stored.obscured:
        return
    first = quantizer.stored.of("round")[0]
    if first.sign < 0:
        dtype = next((op.value for op in quantizer.stored.of("cast") if op.line == first.line), "an integer")
        yield Found(
            "truncated", first.line,
            f"x / scale is cast to {dtype} without rounding: the cast drops the fraction, so the error is up to one step "
            "instead of half a step.",
            "Round before the cast: torch.round(…) or np.rint(…).",
            not (quantizer.codes.inverse and isinstance(quantizer.codes.scale, Num)),  # an image times 255 may need no rounding
        )  # fmt: skip
    elif first.value in ("floor", "ceil", "toward_zero"):
        name = {
            "floor": "floor rounds down",
            "ceil": "ceil rounds up",
            "toward_zero": "trunc rounds toward zero",
        }[first.value]
        yield Found(
            "truncated", first.line,
            f"{name}, so the error is up to one step instead of half a step.",
            "Round to nearest: torch.round(…) or np.rint(…).",
        )  # fmt: skip


def _cast(quantizer: Quantizer) -> Iterator[Found]:
    cast = quantizer.cast
    if cast is None or quantizer.stored.obscured:
        return
    low, high = cast.bounds
    line, dtype = cast.op.line, cast.dtype
    outside = [b for b in (low, high) if isinstance(b, int | float) and not dtype.low <= b <= dtype.high]
    if cast.late is not None:
        if isinstance(cast.late.value, Steps):
            yield Found(
                "zero-point-after-clamp", cast.late.line,
                f"The zero point is added after the clamp in line {cast.clamp.line if cast.clamp else line}, and the "
                f"sum is cast to {dtype} without a clamp: codes outside {dtype.low}..{dtype.high} wrap around.",
                "Add the zero point first, then clamp, then cast.",
            )  # fmt: skip
        return
    if outside:
        assert cast.clamp is not None
        bounds = f"{bound(low)}..{bound(high)}"
        other = _fitting(low, high, dtype.bits)
        where = line if other else cast.clamp.line
        yield Found(
            "clamp-bounds", where,
            f"The clamp{_in_line(cast.clamp, where)} keeps {bounds}, but {dtype} holds {dtype.low}..{dtype.high}: codes "
            f"outside that range wrap around in the cast{_in_line(cast.op, where)}.",
            f"Cast to {other}, or clamp to {dtype.low}..{dtype.high}." if other else f"Clamp to {dtype.low}..{dtype.high}.",
        )  # fmt: skip
    elif low is None or high is None:
        yield from _unclamped(quantizer, cast)


def _in_line(op: Op, line: int) -> str:
    return "" if op.line == line else f" in line {op.line}"


def _fitting(low: float | str | None, high: float | str | None, bits: int) -> str:
    """The integer type of this width that holds the bounds; empty if there is none."""
    if isinstance(low, int | float) and isinstance(high, int | float):
        if low >= 0 and high < 1 << bits:
            return f"uint{bits}"
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return f"int{bits}"
    return ""


def _unclamped(quantizer: Quantizer, cast: Cast) -> Iterator[Found]:
    """A cast without a clamp: does the scale keep the codes within the type?"""
    dtype, scale = cast.dtype, quantizer.codes.scale
    why, certain = _reason(quantizer, cast)
    if not why:
        return
    yield Found(
        "cast-without-clamp",
        cast.op.line,
        f"Nothing clamps the codes before the cast to {dtype}: {why}.",
        f"Clamp to {dtype.low}..{dtype.high} before the cast."
        if not isinstance(scale, Unknown)
        else "Clamp first.",
        certain,
    )


def _reason(quantizer: Quantizer, cast: Cast) -> tuple[str, bool]:
    """Why a code might not fit the type, and whether that is certain; "" if all codes fit, or nothing is known."""
    data, single, span = quantizer.codes.data, quantizer.single, quantizer.span
    if quantizer.codes.multiplied:
        return "", False
    if isinstance(quantizer.codes.scale, Num):
        return _reason_of_number(quantizer, cast.dtype, float(quantizer.codes.scale.value))
    if isinstance(quantizer.codes.scale, Param):
        return "codes wrap around where the scale does not cover x, and the scale is unknown here", False
    if single is not None and _is_number(quantizer) and single[0].data.root == data.root:
        return _reason_of_extreme(quantizer, cast.dtype, *single)
    if span is not None and span[0].data.root == data.root:
        return _reason_of_span(quantizer, cast.dtype, *span)
    return "", False


def _is_number(quantizer: Quantizer) -> bool:
    """Whether the zero point is a known number."""
    return quantizer.zero_is_known and not any(isinstance(k, Stat) for k in quantizer.zero)


def _reason_of_number(quantizer: Quantizer, dtype: DType, s: float) -> tuple[str, bool]:
    """The reason for a scale that is a number."""
    data, z = quantizer.codes.data, quantizer.zero.get("scale", 0.0)
    low, high = (None if b is None else round(b / s) + z for b in (data.low, data.high))
    if data.absolute or data.one_sided:
        low = z
    if low is not None and high is not None and dtype.low <= low and high <= dtype.high:
        return "", False
    if not _is_number(quantizer):
        return f"a value whose code lies outside {dtype.low}..{dtype.high} wraps around", not quantizer.names
    why = (
        f"with the scale {s:.4g}, values outside {(dtype.low - z) * s:.4g}..{(dtype.high - z) * s:.4g} need codes outside "
        f"{dtype.low}..{dtype.high} and wrap around"
    )
    return why, not quantizer.codes.inverse


def _reason_of_extreme(quantizer: Quantizer, dtype: DType, stat: Stat, divisor: float) -> tuple[str, bool]:
    """The reason for a symmetric scale, ``stat`` over ``divisor``."""
    data, z = quantizer.codes.data, quantizer.zero.get("scale", 0.0)
    codes = f"{dtype.low}..{dtype.high}"
    if stat.p is not None:
        return f"values beyond the {stat.p:g}th percentile need codes outside {codes} and wrap around", True
    if not stat.absolute and not data.one_sided:
        below = f"a value below -max(x) can need a code below {dtype.low} and wrap around"
        return f"the scale covers only max(x), so {below}", False
    low, high = z if data.one_sided else z - divisor, z + divisor
    if low >= dtype.low - 0.5 and high < dtype.high + 0.5:
        return "", False
    return (
        f"codes reach {number(round(low))}..{number(round(high))}, and those outside {codes} wrap around",
        True,
    )


def _reason_of_span(
    quantizer: Quantizer, dtype: DType, high: Stat, low: Stat, divisor: float
) -> tuple[str, bool]:
    """The reason for an asymmetric scale, ``high`` - ``low`` over ``divisor``."""
    if high.p is not None or low.p is not None:
        return "values beyond the percentiles need codes outside the type and wrap around", True
    if _is_number(quantizer) and not quantizer.zero:
        steps = f"{dtype.high} steps of (max - min) / {number(round(divisor, 3))}"
        return f"without a zero point, a value beyond {steps} wraps around", True
    if quantizer.zero_is_known and not _is_number(quantizer):
        return "rounding can take the largest value one code too far, where it wraps around", False
    return "", False
