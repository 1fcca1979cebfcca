"""The arithmetic of ggml's block types: level · scale, plus or minus a min, as their records specify."""

from typing import Protocol

import numpy as np

from quantcore.checkpoints.ggml import BlockType, grid
from quantcore.checkpoints.ggml.block_type import Parameter
from quantcore.checkpoints.ggml.block_types.ternary_fp4_types import Digits, HalfE4m3, HalfE8m0
from quantcore.checkpoints.ggml.grids import STEPS, ShiftedGrid, SignedGrid
from quantcore.checkpoints.ggml.levels import FloatOf, Offset, Product, Stepped, Table
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.origin.expression import Formula, constant, entry, ones, power_of_two
from quantcore.checkpoints.origin.rival_layouts import Unleaked
from quantcore.checkpoints.protocol.layout import CODES

_RUN = 8  # elements that share one byte of signs


class Reading(Protocol):
    """Reads the numbers of an element and adds lines."""

    index: tuple[int, ...]

    def read(self, role: str) -> Formula:
        """Read a number from the file."""

    def let(self, name: str, formula: Formula, note: str = "", python: str = "") -> Formula:
        """Add a line."""


def code_symbol(kind: BlockType) -> str:
    """Return the name in formulas of what a block stores for an element: its code, or what that is made from."""
    if isinstance(kind.levels, Digits):
        return "byte"
    if isinstance(kind.levels, ShiftedGrid):
        return "row"
    return "bits" if isinstance(kind.levels, SignedGrid) else "q"


def block_value(reading: Reading, layout: Gguf) -> Formula:
    """Write the lines of one element, as ggml's ``dequantize_row_*`` compute it."""
    kind = layout.kind
    level = _level(reading, kind, reading.index[-1] % kind.elements)
    scale = _parameter(reading, kind.scale_of, "s")
    if kind.min_of is None:
        return reading.let("w", level * scale)
    minimum = _parameter(reading, kind.min_of, "m")
    product = level * scale
    return reading.let("w", product - minimum if kind.min_sign < 0 else product + minimum)


def _parameter(reading: Reading, how: Parameter, name: str) -> Formula:
    if isinstance(how, FloatOf):
        return reading.read(how.name)
    if isinstance(how, Product):
        return reading.let(name, reading.read(how.name) * reading.read(how.code), "of the sub-block")
    if isinstance(how, Stepped):
        code, d = reading.read("scale_code"), reading.read("d")
        steps = code if how.step == 1 else constant(how.step) * code
        product = d * (steps + constant(how.first))
        return reading.let(name, product if how.factor == 1 else product * constant(how.factor))
    code = reading.read("scale_code")
    if isinstance(how, HalfE8m0):
        python = f"np.float32(2.0 ** ({code.names} - 128))"
        return reading.let(name, power_of_two(code - 128), "E8M0, halved: levels are doubled", python)
    assert isinstance(how, HalfE4m3)
    return _half_e4m3(reading, code, name)


def _half_e4m3(reading: Reading, code: Formula, name: str) -> Formula:
    """Half of an unsigned E4M3; 0x7F is 0."""
    bits = int(code.value)
    exponent, mantissa = bits >> 3 & 15, bits & 7
    if bits == 0x7F:
        return reading.let(name, constant(0), "ggml reads 0x7F as 0")
    if exponent:
        numbers, formula = f"(1 + {mantissa} / 8) · 2^({exponent} - 8)", "(1 + m / 8) · 2^(e - 8)"
        value = np.ldexp(1 + mantissa / 8, exponent - 8)
    else:
        numbers, formula = f"{mantissa} / 8 · 2^(-7)", "m / 8 · 2^(-7)"
        value = np.ldexp(mantissa / 8, -7)
    note = f"e4m3 without its sign, halved: exponent e = {exponent:04b}, mantissa m = {mantissa:03b}"
    python = f"small_float({code.names} & 127, 4, 3, 7) / 2"
    return reading.let(name, Formula(formula, numbers, np.float32(value)), note, python)


def _level(reading: Reading, kind: BlockType, element: int) -> Formula:
    """The level that the code stands for."""
    levels = kind.levels
    if isinstance(levels, Unleaked) and element // 32 % 2:
        bits = reading.read(CODES)
        note = "bit 0 is cleared where bit 4 of the other code in the byte is 1"
        return reading.let("q", bits % 32 - (bits % 2) * (bits >> 5), note)
    if isinstance(levels, Offset):
        code = reading.read(CODES)
        return code - levels.constant if levels.constant else code
    if isinstance(levels, Table):
        return reading.let("level", entry(levels.table, reading.read(CODES)), "ggml's table")
    if isinstance(levels, Digits):
        return _digit(reading, levels, element) - 1
    bits = reading.read(CODES)
    if isinstance(levels, ShiftedGrid):
        shift = reading.read("shift_sign")
        row = grid(levels.grid)[int(bits.value)]
        note = f"row {int(bits.value)} of ggml's grid {levels.grid}, in {STEPS}ths, shifted by one"
        place = Formula(str(element % _RUN), str(element % _RUN), element % _RUN)
        shifted = constant(STEPS) * entry(tuple(row.tolist()), place) + 1
        return reading.let("level", shifted - constant(2) * shift, note)
    assert isinstance(levels, SignedGrid)
    return _signed(reading, kind, levels, bits, element)


def _signed(reading: Reading, kind: BlockType, levels: SignedGrid, bits: Formula, element: int) -> Formula:
    """An entry of a row of the grid, with the element's sign: a bit of its own, or the parity of seven signs."""
    width = kind.field("grid_index").bits
    row = int(bits.value) % (1 << width)
    table = grid(levels.grid)[row]
    inside = element % len(table)
    index = reading.let("i", bits % (1 << width), f"row of ggml's grid {levels.grid}")
    signs = bits >> width
    parity = levels.signs == "sign_index" and element % _RUN == _RUN - 1
    negative = reading.let(
        "n", ones(signs) % 2 if parity else signs, "1: negative" + (", the parity of seven signs" * parity)
    )
    place = Formula(str(inside), str(inside), inside)
    magnitude = entry(tuple(int(n) for n in table), place)
    note = f"row i = {int(index.value)} of the grid"
    return reading.let("level", (constant(1) - constant(2) * negative) * magnitude, note)


def _digit(reading: Reading, levels: Digits, element: int) -> Formula:
    """A base-3 digit of a byte: TQ1_0."""
    byte, digit = reading.read(CODES), levels.digit(element)
    fraction = (byte * constant(3**digit)) % 256
    note = f"base-3 digit {digit} of the byte, as a fraction of 256"
    return reading.let("q", (fraction * 3) >> 8, note)
