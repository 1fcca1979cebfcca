"""Checks of dequantization: (codes - zero point) · scale, in a type that holds the difference."""

from collections.abc import Iterator

from quantcore.code_reading.quantizer import SMALL, Quantizer
from quantcore.code_reading.record import Found
from quantcore.code_reading.values.python import DType, Num, Value
from quantcore.code_reading.values.quantities import Op, Steps


def check_dequantize(quantizer: Quantizer) -> Iterator[Found]:
    """Yield what is wrong after the codes were stored."""
    yield from _overflow(quantizer)
    for op in quantizer.codes.of("unscaled"):
        yield Found(
            "multiplied", op.line,
            "The codes are scaled in the same direction as x was, which does not dequantize them.",
            "Where x was divided by the scale, multiply the codes by it.",
        )  # fmt: skip
    if quantizer.dequantized is None or quantizer.codes.obscured:
        return
    added, left = quantizer.zero, dict(quantizer.dequantized.left)
    if quantizer.dequantized.loose:
        value, _, line = quantizer.dequantized.loose[0]
        if added and _same(left, added, 1) and _is_zero_point(value, quantizer):
            yield Found(
                "zero-point-after-scale", line,
                "The zero point is in units of codes, but is subtracted after scaling, in units of x.",
                "Subtract the zero point first: (codes - zero_point) * scale.",
            )  # fmt: skip
        return
    if left:
        yield from _zero_point(left, added, quantizer.dequantized.line)


def _zero_point(left: dict[object, float], added: dict[object, float], line: int) -> Iterator[Found]:
    """Yield what is wrong if part of the zero point is ``left`` in the dequantized values."""
    if added and _same(left, added, 1):
        yield Found(
            "zero-point-forgotten", line,
            "The codes include the zero point, but dequantizing does not subtract it: every value is too large by "
            "zero_point · scale.",
            "Dequantize with (codes - zero_point) * scale.",
        )  # fmt: skip
    elif added and _same(left, added, 2):
        yield Found(
            "zero-point-added", line,
            "The codes already include the zero point, and dequantizing adds it again: every value is too large by "
            "2 · zero_point · scale.",
            "Dequantize with (codes - zero_point) * scale.",
        )  # fmt: skip
    elif not added and not any(isinstance(k, str) and k != "scale" for k in left):
        yield Found(
            "zero-point-not-added", line,
            "Dequantizing subtracts a zero point that was never added to the codes.",
            "Add the zero point after rounding: round(x / scale) + zero_point.",
        )  # fmt: skip


def _same(left: dict[object, float], added: dict[object, float], times: int) -> bool:
    return left.keys() == added.keys() and all(
        abs(left[k] - times * added[k]) < 1e-6 * abs(added[k]) for k in added
    )


def _is_zero_point(value: Value, quantizer: Quantizer) -> bool:
    return any(op.value == value for op in quantizer.stored.of("add"))


def _overflow(quantizer: Quantizer) -> Iterator[Found]:
    dtype: DType | None = quantizer.stored.dtype
    for op in quantizer.after:
        if op.name == "cast":
            dtype = op.value if not op.value.floating else None
        if op.name == "add" and dtype is not None and dtype.bits <= SMALL and _stays(op, dtype):
            yield Found(
                "dequantize-overflow", op.line,
                f"codes - zero_point is computed in {dtype}, which holds {dtype.low}..{dtype.high}: differences outside "
                "that range wrap around.",
                "Convert first: (codes.float() - zero_point) * scale.",
            )  # fmt: skip


def _stays(op: Op, dtype: DType) -> bool:
    """Whether the sum keeps the codes' type."""
    if isinstance(op.value, Num):
        return isinstance(op.value.value, int) and op.value.value != 0
    if isinstance(op.value, Steps):
        return op.value.python or (op.value.dtype is not None and op.value.dtype.bits <= dtype.bits)
    return False
