"""What codes stand for, and how scales are computed: the building blocks of block types.

The IQ types store one code for four or eight elements: a row of a grid (data/grids.npz).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.expressions import (
    ONES,
    POWER_OF_TWO,
    Explained,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Term,
    Where,
    entry,
)

Fields = Mapping[str, npt.NDArray[Any]]  # [blocks, entries] each
D, CODED = Name("d"), Name("scale_code")
CODE = Name("codes")  # what a block stores for an element: its code, or what that is made from
# runs of bytes of TQ1_0: (bytes in a run, digits per byte); the first digits of a run are consecutive
# elements
_RUNS = ((32, 5), (16, 5), (4, 4))
_DIGITS = 5
_RUN = 8  # elements that share one byte of signs, or one shift of IQ1
STEPS = 8  # IQ1 shifts its grid up or down by an eighth


@dataclass(frozen=True)
class CodePart:
    """Bits of one entry of a field: all, or those of the range ``bits`` (0 is the lowest)."""

    field: str
    entry: int
    bits: range | None = None


class Levels:
    """How the fields give each element its code and its level; usually it has a code of its own.

    ``symbol``: what is stored for an element: its code "q", or what that is made from.
    """

    symbol: ClassVar[str] = "q"

    def codes(self, fields: Fields) -> npt.NDArray[Any]:
        """Return the codes, [blocks, elements], integers of one byte: as stored, minus the field's offset."""
        return fields["codes"]

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """Return the levels, [blocks, elements], as int8."""
        raise NotImplementedError

    def zero_point(self, fields: Fields) -> npt.NDArray[Any] | None:
        """Return what is subtracted from codes, [blocks, runs of elements sharing it]; None: nothing is."""
        return None

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """Return the bits that determine an element's code."""
        return (CodePart("codes", element),)

    def expression(self, element: int) -> Expression:
        """Return the level of an element, from what is stored for it, which formulas name ``symbol``."""
        raise NotImplementedError


@dataclass(frozen=True)
class Offset(Levels):
    """level = code - constant; the codes are the field of that name."""

    constant: int = 0

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """Return code - constant."""
        codes = fields["codes"].view(np.int8)  # at most 7 bits, or signed already
        return codes - np.int8(self.constant) if self.constant else codes

    def zero_point(self, fields: Fields) -> npt.NDArray[np.uint8] | None:
        """Return the constant, one for the block; None if it is 0."""
        return np.full((len(fields["codes"]), 1), self.constant, np.uint8) if self.constant else None

    def expression(self, element: int) -> Expression:
        """Return code - constant."""
        return CODE - self.constant if self.constant else CODE


@dataclass(frozen=True)
class LevelTable(Levels):
    """level = table[code]."""

    table: tuple[int, ...]

    def levels(self, fields: Fields) -> npt.NDArray[Any]:
        """Return the entries of the table."""
        codes = fields["codes"]
        if len(self.table) < 16:
            return np.take(np.array(self.table, np.int8), codes, mode="clip")
        return np.take(self._pairs, codes.view("<u2"), mode="clip").view(np.int8)

    @cached_property
    def _pairs(self) -> npt.NDArray[Any]:
        """The levels of two codes of 4 bits, by both bytes as one number: half as many look-ups."""
        numbers, levels = np.arange(1 << 12), np.array(self.table, np.int8).view(np.uint8)
        pairs = np.stack([levels[numbers & 15], levels[numbers >> 8]], axis=1)
        return pairs.view("<u2").ravel()

    def expression(self, element: int) -> Expression:
        """Return the entry of the table."""
        return Let("level", entry(self.table)(CODE), "ggml's table")


def product(name: str, code: str, of: str) -> Expression:
    """Return the float16 field ``name`` times the integers of ``code``: one number per sub-block."""
    return Let(of, Name(name) * Name(code), "of the sub-block")


def stepped(first: float, step: int, factor: float = 1.0) -> Expression:
    """Return d * (first + step * scale code) * factor, multiplied in this order: one number per sub-block."""
    found = D * ((CODED if step == 1 else Number(step) * CODED) + first)
    return Let("s", found if factor == 1 else found * factor, after=(CODED,))


@dataclass(frozen=True)
class TernaryDigits(Levels):
    """level = code - 1, where the code is a digit in base 3, five to a byte.

    A byte b holds the fraction b/256; its digits are those of b/256 in base 3, the first element's first. One
    or two bytes stand for each of the 243 numbers, so codes alone do not determine the byte.
    """

    symbol: ClassVar[str] = "byte"

    def codes(self, fields: Fields) -> npt.NDArray[np.uint8]:
        """Return the digits, 0 to 2."""
        stored, found, start, end = fields["digits"], [], 0, 0
        for run, digits in _RUNS:
            end = start + run
            for digit in range(digits):
                # the fraction that is left after the first digits, in 256ths; its thirds give the next digit
                rest = stored[:, start:end] * np.uint8(3**digit)
                found.append((rest > 85).view(np.uint8) + (rest > 170).view(np.uint8))
            start = end
        return np.concatenate(found, axis=1)

    def levels(self, fields: Fields) -> npt.NDArray[np.int8]:
        """Return the digits minus 1."""
        codes = self.codes(fields).view(np.int8)
        codes -= np.int8(1)
        return codes

    def zero_point(self, fields: Fields) -> npt.NDArray[np.uint8]:
        """Return 1, once per block."""
        return np.ones((len(fields["digits"]), 1), np.uint8)

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """Return the byte that holds the digit."""
        return (CodePart("digits", _digit_of(element)[0]),)

    def expression(self, element: int) -> Expression:
        """Return the digit minus 1."""
        _, digit = _digit_of(element)
        fraction = (CODE * 3**digit) % 256
        return Let("q", (fraction * 3) >> 8, f"base-3 digit {digit} of the byte, as a fraction of 256") - 1


def _digit_of(element: int) -> tuple[int, int]:
    """Return the byte that holds an element's digit, and which of its digits that is, 0 the first."""
    start = 0
    for run, digits in _RUNS:
        if element < run * digits:
            return start + element % run, element // run
        element, start = element - run * digits, start + run
    raise IndexError(element)


def digits_of(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes, [blocks, 52], that ggml writes for codes 0 to 2, [blocks, 256], of TQ1_0."""
    found, start = [], 0
    for run, digits in _RUNS:
        part = codes[:, start : start + run * digits].reshape(len(codes), digits, run).astype(np.uint16)
        weights = 3 ** np.arange(_DIGITS - 1, _DIGITS - 1 - digits, -1, dtype=np.uint16)
        number = (part * weights[:, None]).sum(axis=1, dtype=np.uint16)
        found.append((number * 256 + 242) // 243)  # rounded up, so that truncating gives the digits back
        start += run * digits
    return np.concatenate(found, axis=1).astype(np.uint8)


@cache
def grid(name: str) -> npt.NDArray[np.int8]:
    """Return the grid of a type, int8 [entries, elements of one entry]."""
    path = files("quantcore.checkpoints.ggml") / "data" / "grids.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        found: npt.NDArray[np.int8] = stored[name]
    return found


def _words(rows: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
    """Return rows of four or eight bytes as one integer each, so that one look-up fetches a row."""
    return np.ascontiguousarray(rows).view(f"<u{rows.shape[1]}").ravel()


@cache
def _grid_words(name: str) -> npt.NDArray[Any]:
    return _words(grid(name))


@cache
def _shifted_words(name: str) -> npt.NDArray[Any]:
    """Return the grid in eighths, shifted up by one, then (from half the table on) shifted down by one."""
    eighths = STEPS * grid(name)
    return _words(np.concatenate([eighths + np.int8(1), eighths - np.int8(1)]))


@cache
def _sign_words(bits: int) -> npt.NDArray[Any]:
    """Return the signs of eight elements for each code, bytes of 0 or -1: bit i is the sign of element i.

    With ``bits`` 7 the eighth sign makes the number of negative elements even (ggml-common.h,
    `ksigns_iq2xs`).
    """
    codes = np.arange(1 << bits)
    signs = codes[:, None] >> np.arange(_RUN) & 1
    if bits < _RUN:
        signs[:, -1] = signs.sum(axis=1) & 1
    return _words(-signs.astype(np.int8))


def _rows(words: npt.NDArray[Any], index: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """Look up rows for an index [blocks, entries]; int8 [blocks, elements]."""
    found: npt.NDArray[np.int8] = np.take(words, index, mode="clip").view(np.int8)
    return found


@cache
def in_row(name: str, place: int, note: str) -> Operation:
    """Return the element at ``place`` of a row of a grid; the note may show its number as ``{row}``."""

    def explain(row: Term) -> Explained:
        number = int(row.value)
        text = f"({', '.join(map(str, grid(name)[number].tolist()))})[{place}]"
        return Explained(text, text, note.format(row=number), text)

    def tensors(row: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.from_numpy(grid(name)[:, place])[row.long()]

    def entry(row: Any) -> int:
        return int(grid(name)[int(row)][place])

    written = f"grid[{{0}}][{place}]"
    return Operation(written, written, written, tensors, entry, explain=explain)


@dataclass(frozen=True)
class SignedGrid(Levels):
    """level = an element of row ``grid_index`` of the grid, with its sign; the level is also the code.

    ``signs``: the field with the signs of eight elements, in eight bits, or in seven ("sign_index").
    """

    grid: str
    signs: str
    symbol: ClassVar[str] = "bits"

    def codes(self, fields: Fields) -> npt.NDArray[np.int8]:
        """Return the signed elements of the grid."""
        return self.levels(fields)

    def levels(self, fields: Fields) -> npt.NDArray[np.int8]:
        """Return the signed elements of the grid."""
        found = _rows(_grid_words(self.grid), fields["grid_index"])
        negative = _rows(_sign_words(_RUN if self.signs == "signs" else _RUN - 1), fields[self.signs])
        found ^= negative
        found -= negative
        return found

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """Return the row of the grid, and the element's sign: its own bit, or the parity of seven."""
        sign = range(element % _RUN, element % _RUN + 1)
        if self.signs == "sign_index" and element % _RUN == _RUN - 1:
            sign = range(_RUN - 1)
        index = CodePart("grid_index", element // grid(self.grid).shape[1])
        return (index, CodePart(self.signs, element // _RUN, sign))

    def expression(self, element: int) -> Expression:
        """Return an entry of a row of the grid with its sign: a bit of its own, or the parity of seven."""
        rows, width = grid(self.grid).shape
        bits = (rows - 1).bit_length()
        index = Let("i", CODE % (1 << bits), f"row of ggml's grid {self.grid}")
        signs = CODE >> bits
        parity = self.signs == "sign_index" and element % _RUN == _RUN - 1
        note = "1: negative" + (", the parity of seven signs" * parity)
        negative = Let("n", ONES(signs) % 2 if parity else signs, note)
        magnitude = in_row(self.grid, element % width, "row i = {row} of the grid")(index)
        return Let("level", (Number(1) - Number(2) * negative) * magnitude, after=(index,))


@dataclass(frozen=True)
class ShiftedGrid(Levels):
    """level = 8 * element of row ``grid_index`` of the grid, plus 1, or minus 1 where ``shift_sign`` is set.

    The codes are the elements -1, 0, 1 without the shift. ``run``: elements that share a shift.
    """

    grid: str
    run: int
    symbol: ClassVar[str] = "row"

    def codes(self, fields: Fields) -> npt.NDArray[np.int8]:
        """Return the elements of the grid: -1, 0 or 1."""
        return _rows(_grid_words(self.grid), fields["grid_index"])

    def levels(self, fields: Fields) -> npt.NDArray[np.int8]:
        """Return the elements with their shift, in eighths."""
        negative = np.repeat(fields["shift_sign"], self.run // _RUN, axis=1)
        index = fields["grid_index"] | negative.astype(np.uint16) << np.uint16(11)
        return _rows(_shifted_words(self.grid), index)

    def zero_point(self, fields: Fields) -> npt.NDArray[np.float32]:
        """Return minus the shift, since value = scale * (code - zero_point); one per run of elements."""
        return np.where(fields["shift_sign"], np.float32(1 / STEPS), np.float32(-1 / STEPS))

    def parts(self, element: int) -> tuple[CodePart, ...]:
        """Return the row of the grid."""
        return (CodePart("grid_index", element // _RUN),)

    def expression(self, element: int) -> Expression:
        """Return the element of the grid in eighths, shifted by one."""
        note = f"row {{row}} of ggml's grid {self.grid}, in {STEPS}ths, shifted by one"
        shifted = Number(STEPS) * in_row(self.grid, element % _RUN, note)(CODE) + 1
        return Let("level", shifted - Number(2) * Name("shift_sign"))


HALF_E8M0 = Let("s", POWER_OF_TWO(CODED - 128), "E8M0, halved: levels are doubled")


def e8m0_as_nan(scale: Expression) -> Expression:
    """Return an E8M0 scale of which 255 is NaN, which ggml does not know."""
    return Where(CODED, 255, Let("s", Number(math.nan), "E8M0 255 is NaN"), scale)


def _half_e4m3(code: int) -> np.float32:
    """Return half of an E4M3 without its sign; 0x7F is 0 (ggml-impl.h, `ggml_ue4m3_to_fp32`)."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:
        return np.float32(0)
    return np.float32(np.ldexp(1 + mantissa / 8, exponent - 8) if exponent else np.ldexp(mantissa / 8, -7))


def _explained(bits: Term) -> Explained:
    code = int(bits.value)
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:
        return Explained("0", "0", "ggml reads 0x7F as 0", "0")
    numbers, formula = f"{mantissa} / 8 · 2^(-7)", "m / 8 · 2^(-7)"
    if exponent:
        numbers, formula = f"(1 + {mantissa} / 8) · 2^({exponent} - 8)", "(1 + m / 8) · 2^(e - 8)"
    note = f"e4m3 without its sign, halved: exponent e = {exponent:04b}, mantissa m = {mantissa:03b}"
    return Explained(formula, numbers, note)


@cache
def _all_e4m3() -> Tensor:
    return torch.tensor([float(_half_e4m3(code)) for code in range(256)])


E4M3 = Operation(
    "e4m3({0}) / 2", "e4m3({0}) / 2", "small_float({0} & 127, 4, 3, 7) / 2",
    lambda code, out=None: _all_e4m3()[code.long()], lambda code: _half_e4m3(int(code)), explain=_explained,
)  # fmt: skip
