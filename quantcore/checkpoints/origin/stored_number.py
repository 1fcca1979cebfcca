"""A number as a file stores it: its place, its bits, and what they mean."""

from dataclasses import dataclass

import numpy as np

from quantcore.checkpoints.origin.words import Word, put_together, words_of
from quantcore.checkpoints.protocol.fields import Field, Place
from quantcore.expressions import Value, text_of
from quantcore.tensors import SAFETENSORS_BITS

# dtypes that NumPy or a shift of bits decodes
_NUMPY = {"F16": "float16", "F32": "float32", "F64": "float64"}
_SIGNED = ("I8", "I16", "I32", "I64")


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


def read_number(role: str, symbol: str, field: Field, place: Place) -> StoredNumber:
    """Read a number from the bytes that hold it, and no others.

    Raises:
        QuantError: the file can't be read.
    """
    words = words_of(field, place)
    raw = put_together(words, place)
    value, meaning, python = _meaning(raw, field.kept_as, len(place.bits))
    return StoredNumber(role, symbol, place, words, raw, value, meaning, python)


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
