"""The words of a file that hold a number: bytes, its bits, what they mean, whose the others are."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, singledispatch
from typing import Any

import numpy as np

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.files.sources import DerivedSource
from quantcore.checkpoints.ggml import BLOCK_TYPES, BlockType
from quantcore.checkpoints.layouts.block_tensor import BlockField
from quantcore.checkpoints.protocol.fields import DOUBLE, Field, Numbers, Place
from quantcore.checkpoints.protocol.kinds import FieldView, Packed, Reshaped
from quantcore.checkpoints.protocol.record import CODES
from quantcore.expressions import Value, text_of
from quantcore.tensors import SAFETENSORS_BITS

Index = tuple[int, ...]
# dtypes that NumPy or a shift of bits decodes
_NUMPY = {"F16": "float16", "F32": "float32", "F64": "float64"}
_SIGNED = ("I8", "I16", "I32", "I64")


@dataclass(frozen=True)
class Bit:
    """What one bit of a word belongs to.

    ``owner``: the element or number, empty if there is none; ``at``: its position in that number, 0 for the
    lowest bit; ``own``: whether it belongs to the number that the word was read for.
    """

    owner: str = ""
    at: int = 0
    own: bool = False


@dataclass(frozen=True)
class Word:
    """One word of a stored tensor; for ggml's types, a word is a block.

    ``index``: in the stored tensor, as it lies in the file;
    ``offset``: of its first byte;
    ``dtype``: as the file names it;
    ``data``: its bytes, the lowest first;
    ``bits``: what each bit belongs to, bit 0 of byte 0 first;
    ``in_file``: whether ``offset`` is an offset in the file, not in what was unpacked from it.
    """

    file: str
    tensor: str
    index: Index
    offset: int
    dtype: str
    data: bytes
    bits: tuple[Bit, ...]
    in_file: bool = True

    @property
    def number(self) -> int:
        """The word as one unsigned number: files are little-endian."""
        return int.from_bytes(self.data, "little")

    @property
    def hex(self) -> str:
        """``0x77b30f12``, the highest digit first."""
        return f"0x{self.number:0{2 * len(self.data)}x}"

    @property
    def binary(self) -> str:
        """All bits, the highest first."""
        return f"{self.number:0{8 * len(self.data)}b}"

    @property
    def own(self) -> tuple[int, ...]:
        """The positions in the word of the number's own bits, its lowest first."""
        mine = [position for position, bit in enumerate(self.bits) if bit.own]
        return tuple(sorted(mine, key=lambda position: self.bits[position].at))

    @property
    def name(self) -> str:
        """``q_proj.qweight[4, 17]``."""
        inside = ", ".join(map(str, self.index))
        return f"{self.tensor}[{inside}]"


def words_of(field: Any, place: Place) -> tuple[Word, ...]:
    """Return the words that hold a number of a field, in the order of its bits; only their bytes are read."""
    piece = field.piece
    size = BLOCK_TYPES[piece.dtype].num_bytes if piece.dtype in BLOCK_TYPES else int(piece.itemsize)
    mine = {spot: at for at, spot in enumerate(place.bits)}
    numbers = dict.fromkeys((byte - piece.offset) // size for byte, _ in place.bits)
    return tuple(_word(field, piece, size, number, mine) for number in numbers)


def _word(field: Any, piece: StoredTensor, size: int, number: int, mine: dict[tuple[int, int], int]) -> Word:
    start = piece.offset + number * size
    bits = list(owners(field, number))
    for position, bit in enumerate(bits):
        at = mine.get((start + position // 8, position % 8))
        if at is not None:
            bits[position] = Bit(bit.owner, at, own=True)
    block = piece.dtype in BLOCK_TYPES
    shape = (piece.num_bytes // size,) if block else piece.shape
    return Word(
        piece.source.name,
        piece.name,
        tuple(int(i) for i in np.unravel_index(number, shape)) if shape else (),
        start,
        f"{piece.dtype} block" if block else piece.dtype,
        bytes(piece.source.read(start, size)),
        tuple(bits),
        not isinstance(piece.source, DerivedSource),
    )


@singledispatch
def owners(field: Any, word: int) -> Sequence[Bit]:
    """Return what each bit of a word belongs to; ``word``: its index in the stored tensor."""
    raise NotImplementedError(type(field).__name__)


@owners.register
def _(field: Numbers, word: int) -> Sequence[Bit]:
    stored = np.unravel_index(word, field.piece.shape) if field.piece.shape else ()
    owner = index_text(stored[::-1] if field.transposed else stored)
    return [Bit(owner, at) for at in range(8 * field.piece.itemsize)]


@owners.register
def _(field: FieldView, word: int) -> Sequence[Bit]:
    return owners(field.field, word)


@owners.register
def _(field: Reshaped, word: int) -> Sequence[Bit]:
    inner = field.field
    return _codes_in(inner, word, field.shape) if isinstance(inner, Packed) else owners(inner, word)


@owners.register
def _(field: Packed, word: int) -> Sequence[Bit]:
    return _codes_in(field, word, field.shape)


def _codes_in(field: Packed, word: int, shape: Index) -> list[Bit]:
    """Return the code that each bit of a word belongs to, by its index in ``shape``."""
    order, axis = field.order, field.axis % len(field.shape)
    stored = [int(i) for i in np.unravel_index(word, field.piece.shape)]
    at = stored[::-1] if field.transposed else stored
    n = field.shape[axis]
    period, inside = divmod(at[axis], order.words)
    found = [Bit()] * order.word_bits
    for number, fragments in enumerate(order.codes):
        element = number * order.periods(n) + period if order.in_parts else period * order.count + number
        if element >= n:
            continue
        index = tuple(element if i == axis else k for i, k in enumerate(at))
        owner = index_text(np.unravel_index(np.ravel_multi_index(index, field.shape), shape))
        for part in fragments:
            if part.word == inside:
                for i in range(part.width):
                    found[part.shift + i] = Bit(owner, part.low + i)
    return found


@owners.register
def _(field: BlockField, word: int) -> Sequence[Bit]:
    kind = field.tensor.kind
    *outer, start = (int(i) for i in np.unravel_index(word * kind.elements, field.piece.shape))
    return _labeled(kind, tuple(outer), start)


@lru_cache(maxsize=8)  # an element's code and all of its parameters lie in one block
def _labeled(kind: BlockType, outer: Index, start: int) -> tuple[Bit, ...]:
    """Return what each bit of a block belongs to; ``outer``, ``start``: the index of its first element."""
    lead = "".join(f"{i}, " for i in outer)

    def label(name: str, entry: int) -> str:
        if name == CODES:
            return f"({lead}{start + entry})"
        return f"{name} {entry}" if name and kind.field(name).count > 1 else name

    spots = _block_owners(kind)
    labels = {(name, entry): label(name, entry) for name, entry, _ in spots}
    return tuple(Bit(labels[name, entry], at) for name, entry, at in spots)


@cache
def _block_owners(kind: BlockType) -> tuple[tuple[str, int, int], ...]:
    """Return field, entry and position for each bit of a block."""
    found = [("", 0, 0)] * (8 * kind.num_bytes)
    for field in kind.fields:
        for entry in range(field.count):
            for bits in field.locate(entry):
                for i in range(bits.count):
                    found[8 * bits.byte + bits.low + i] = (field.name, entry, bits.at + i)
    return tuple(found)


def index_text(index: Sequence[Any]) -> str:
    """Write an index: ``(3, 17)``."""
    return f"({', '.join(str(int(i)) for i in index)})"


@dataclass(frozen=True)
class StoredNumber:
    """One number in a file.

    ``role``: that of its field, such as "scale";
    ``symbol``: its name in the arithmetic;
    ``words``: what holds its bits;
    ``raw``: its bits as an unsigned number;
    ``value``: what they mean;
    ``meaning``: the same as text, ``F16 0x3c00 = 1``;
    ``python``: a NumPy expression for the value, with ``{}`` for the unsigned number.
    """

    role: str
    symbol: str
    place: Place
    words: tuple[Word, ...]
    raw: int
    value: Value
    meaning: str
    python: str


def read_number(role: str, symbol: str, field: Field, place: Place) -> StoredNumber:
    """Read a number from the bytes that hold it, and no others.

    Raises:
        QuantError: the file can't be read.
    """
    words = words_of(field, place)
    data = {word.offset + i: byte for word in words for i, byte in enumerate(word.data)}
    raw = sum((data[byte] >> bit & 1) << at for at, (byte, bit) in enumerate(place.bits))
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
    if dtype == DOUBLE:
        wide = np.float64(np.array(raw, "<u8").view("float64"))
        return wide, f"F64 {digits} = {float(wide)!r}", "np.uint64({}).view(np.float64)"
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
