"""A number as a file stores it: its place, its bits, and what they mean."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from quantcore.checkpoints.ggml import Field as BlockNumber
from quantcore.checkpoints.layouts.gguf.block_field import BlockField
from quantcore.checkpoints.origin.expression import (
    Formula,
    Lines,
    Value,
    constant,
    named,
    power_of_two,
    text_of,
)
from quantcore.checkpoints.origin.rival_layouts import Carried, Unwrapped
from quantcore.checkpoints.origin.words import Word, put_together, words_of
from quantcore.checkpoints.protocol.fields import Numbers, Place
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.views import Reshaped
from quantcore.formats import FLOATS, FloatFormat
from quantcore.tensors import SAFETENSORS_BITS

# dtypes that NumPy or a shift of bits decodes
_NUMPY = {"F16": "float16", "F32": "float32", "F64": "float64"}
_SIGNED = ("I8", "I16", "I32", "I64")
# 8-bit dtypes whose formula is worth a line
SMALL_FLOATS = {
    "F8_E4M3": "e4m3fn", "F8_E5M2": "e5m2", "F8_E4M3FNUZ": "e4m3fnuz", "F8_E5M2FNUZ": "e5m2fnuz",
}  # fmt: skip


@dataclass(frozen=True)
class StoredNumber:
    """One number in a file.

    ``role``: that of its field, such as "scale"; ``symbol``: its name in the arithmetic; ``words``: what holds its bits;
    ``raw``: its bits as an unsigned number; ``value``: what they mean; ``meaning``: the same as text,
    ``F16 0x3c00 = 1``; ``python``: a NumPy expression for the value, with ``{}`` for the unsigned number.
    """

    role: str
    symbol: str
    place: Place
    words: tuple[Word, ...]
    raw: int
    value: Value
    meaning: str
    python: str

    @property
    def bits(self) -> str:
        """Its own bits, the highest first."""
        return f"{self.raw:0{len(self.place.bits)}b}"

    @property
    def data(self) -> bytes:
        """The bytes of its words, in the order of the file."""
        return b"".join(word.data for word in self.words)


def read_number(role: str, symbol: str, field: Any, place: Place) -> StoredNumber:
    """Read a number from the bytes that hold it, and no others.

    Raises:
        QuantError: the file can't be read.
    """
    words = words_of(field, place)
    raw = put_together(words, place)
    dtype = dtype_of(field)
    value, meaning, python = _meaning(raw, dtype, len(place.bits))
    return StoredNumber(role, symbol, place, words, raw, value, meaning, python)


def dtype_of(field: Any) -> str:
    """Return the dtype of a field's numbers; "bits" for codes that have no dtype of their own."""
    base = field.field if isinstance(field, Reshaped) else field
    if isinstance(base, Numbers) and not base.raw:
        return base.piece.dtype
    kept = _kept_in_block(base)
    return {"f": "F16", "i": "I8"}.get(kept.kind, "bits") if kept else "bits"


def _kept_in_block(field: Any) -> BlockNumber | None:
    """Return how a ggml block stores a field; None for codes that are made from several."""
    if not isinstance(field, BlockField):
        return None
    return next((kept for kept in field.tensor.kind.fields if kept.name == field.name), None)


def _meaning(raw: int, dtype: str, bits: int) -> tuple[Value, str, str]:
    digits = f"0x{raw:0{-(-bits // 4)}x}"
    if dtype in _NUMPY:
        width = SAFETENSORS_BITS[dtype]
        with np.errstate(all="ignore"):
            value = np.float32(np.array(raw, f"<u{width // 8}").view(_NUMPY[dtype]))
        return (
            value,
            f"{dtype} {digits} = {text_of(value)}",
            f"np.float32(np.uint{width}({{}}).view(np.{_NUMPY[dtype]}))",
        )
    if dtype == "BF16":
        value = np.float32(np.array(raw << 16, "<u4").view("float32"))
        return value, f"BF16 {digits} = {text_of(value)}", "np.uint32({} << 16).view(np.float32)"
    if dtype in _SIGNED:
        signed = raw - (1 << bits if raw >> (bits - 1) else 0)
        sign = f"({{}} ^ {1 << bits - 1}) - {1 << bits - 1}"  # the highest bit counts as negative
        return signed, f"{dtype} {digits} = {signed}", sign
    if bits % 8 == 0 and dtype != "bits":
        return raw, f"{dtype} {digits} = {raw}", "{}"
    return raw, f"{bits} {'bit' if bits == 1 else 'bits'} {raw:0{bits}b} = {raw}", "{}"


def decoded(number: StoredNumber, field: Any, name: str, lines: Lines) -> Formula:
    """Return a number by its name, after adding the lines that compute it from its bits: offsets, signs, small floats."""
    base = field.field if isinstance(field, Reshaped) else field
    bits, width = named(number.symbol, number.value), len(number.place.bits)
    if isinstance(base, Packed):
        return _of_packed(base, bits, width, name, lines)
    dtype = dtype_of(field)
    if dtype in SMALL_FLOATS:
        return small_float(bits, FLOATS[SMALL_FLOATS[dtype]], name, lines)
    if dtype == "F8_E8M0":
        return e8m0(bits, True, name, lines)
    kept = _kept_in_block(base)
    return (
        lines.let(name, bits - kept.offset, "stored with a constant added") if kept and kept.offset else bits
    )


def _of_packed(field: Packed, bits: Formula, width: int, name: str, lines: Lines) -> Formula:
    """Return a stored code minus its offset, modulo 2^bits; signed codes in two's complement."""
    if isinstance(field, Unwrapped):
        return lines.let(name, bits + 1, "stored with 1 subtracted; 1 is added without wrapping")
    if isinstance(field, Carried):
        shift = width - field.order.bits
        summed = bits + constant(field.addend & (1 << width) - 1)
        note = "1 is added to all codes of the word at once"
        return lines.let(name, (summed >> shift if shift else summed) % (1 << field.order.bits), note)
    offset = field.offset() if callable(field.offset) else field.offset
    half, count = (1 << width - 1) if field.signed else 0, 1 << width
    if half == offset:
        return lines.let(name, bits - half, "stored with the middle of the codes added") if half else bits
    moved = half - offset
    note = "two's complement" if half and not offset else "stored with 1 subtracted" if offset == -1 else ""
    wrapped = (bits + moved) % count
    return lines.let(name, wrapped - half if half else wrapped, note)


def e8m0(bits: Formula, nan: bool, name: str, lines: Lines) -> Formula:
    """2^(bits - 127); 255 is NaN, or infinity for readers that only shift the bits."""
    if int(bits.value) == 255 and nan:
        return lines.let(
            name, Formula("nan", "nan", np.float32("nan")), "E8M0 255 is NaN", "np.float32('nan')"
        )
    value = power_of_two(bits - 127)
    return lines.let(name, value, "E8M0, a power of two", f"np.float32(2.0 ** ({bits.names} - 127))")


def small_float(bits: Formula, fmt: FloatFormat, name: str, lines: Lines) -> Formula:
    """The value of a small float from its sign, exponent and mantissa."""
    parts = fmt.fields(int(bits.value))
    value = np.float32(parts.value)
    if parts.kind in ("nan", "infinity"):
        text = text_of(value)
        return lines.let(name, Formula(text, text, value), f"{fmt} {parts.kind}", f"np.float32('{text}')")
    steps, least = 1 << fmt.mantissa, 1 - fmt.bias
    normal, lowest = parts.kind == "normal", f"2^{least}" if least >= 0 else f"2^({least})"
    fraction = f"{parts.mantissa} / {steps}"
    power = f"2^({parts.exponent} - {fmt.bias})" if normal else lowest
    numbers = f"(1 + {fraction}) · {power}" if normal else f"{fraction} · {power}"
    formula = f"(1 + m / {steps}) · 2^(e - {fmt.bias})" if normal else f"m / {steps} · {lowest}"
    if parts.sign:
        numbers, formula = f"-1 · {numbers}", f"-1 · {formula}"
    fields = "" if parts.sign is None else f"sign {parts.sign}, "
    fields += f"exponent e = {parts.exponent:0{fmt.exponent}b}"
    if fmt.mantissa:
        fields += f", mantissa m = {parts.mantissa:0{fmt.mantissa}b}"
    python = f"small_float({bits.names}, {fmt.exponent}, {fmt.mantissa}, {fmt.bias})"
    note = f"{bits.names} as {fmt}: {fields}"
    return lines.let(name, Formula(formula, numbers, value), note, python)
