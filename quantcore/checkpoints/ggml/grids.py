"""Levels from rows of a grid: the IQ types store one code for four or eight elements. Grids: data/grids.txt."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.ggml.levels import CODE, CodePart, Fields, Levels
from quantcore.expressions import ONES, Explained, Expression, Let, Name, Number, Operation, Term

_RUN = 8  # elements that share one byte of signs, or one shift of IQ1
STEPS = 8  # IQ1 shifts its grid up or down by an eighth


@cache
def _stored() -> dict[str, npt.NDArray[np.int8]]:
    path = files("quantcore.checkpoints.ggml") / "data" / "grids.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def grid(name: str) -> npt.NDArray[np.int8]:
    """Return the grid of a type, int8 [entries, elements of one entry]."""
    return _stored()[name]


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

    With ``bits`` 7 the eighth sign makes the number of negative elements even (ggml-common.h, `ksigns_iq2xs`).
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
    """Return the element at ``place`` of a row of a grid, by the row's number, which the note may show as ``{row}``."""

    def explain(row: Term) -> Explained:
        number = int(row.value)
        text = f"({', '.join(map(str, grid(name)[number].tolist()))})[{place}]"
        return Explained(text, text, note.format(row=number), text)

    def tensors(row: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.from_numpy(grid(name)[:, place])[row.long()]

    written = f"grid[{{0}}][{place}]"
    return Operation(written, written, written, tensors, lambda row: int(grid(name)[int(row)][place]), explain=explain)


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
