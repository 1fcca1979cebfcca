"""From stored numbers to the value of one element, line by line, in the library's order and with its roundings.

The lines are built from the same records as `Layout.values`: fields, decoding, block types.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatchmethod

import numpy as np
import torch

from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.gguf.imatrix import COUNTS, Imatrix
from quantcore.checkpoints.layouts.in_parts.bitnet import BitNet
from quantcore.checkpoints.layouts.in_parts.quanto import QuantoBits
from quantcore.checkpoints.layouts.libraries.bitsandbytes_4bit import TABLE, FourBits
from quantcore.checkpoints.layouts.libraries.mlx import MlxAffine
from quantcore.checkpoints.layouts.libraries.torchao import TorchaoInt4
from quantcore.checkpoints.layouts.plain import Plain
from quantcore.checkpoints.origin.blocks import block_value, code_symbol
from quantcore.checkpoints.origin.expression import (
    Formula,
    Line,
    Lines,
    Value,
    constant,
    power_of_two,
    rounded,
)
from quantcore.checkpoints.origin.rival_layouts import PowerScales, Rearranged
from quantcore.checkpoints.origin.stored_number import StoredNumber, decoded, e8m0, read_number, small_float
from quantcore.checkpoints.protocol.layout import CODES, GROUP_INDEX, SCALE, ZERO_POINT, Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.formats import FLOATS, FloatFormat

# the names of fields in formulas
SYMBOLS = {
    CODES: "q", SCALE: "s", ZERO_POINT: "z", GROUP_INDEX: "g", SCALE_CODE: "sc", GLOBAL_SCALE: "s_global",
    TABLE: "v", "nested_absmax": "outer", "nested_quant_map": "inner", "min_code": "mc",
    "grid_index": "i", "sign_index": "signs", "shift_sign": "shift",
}  # fmt: skip
VALUE = "w"


def symbol(layout: Layout, role: str) -> str:
    """Return the name of one of a layout's numbers in formulas."""
    if role == ZERO_POINT and isinstance(layout, MlxAffine):
        return "bias"
    if role == ZERO_POINT and isinstance(layout, QuantoBits):
        return "shift"
    if role == CODES and isinstance(layout, Gguf):
        return code_symbol(layout.kind)
    if role == CODES and isinstance(layout, Plain | Imatrix):
        return "x"
    if role == SCALE and layout.decoding == "of_largest":
        return "amax"
    return SYMBOLS.get(role, role)


class Arithmetic:
    """Reads the numbers of one element, and records what is computed from them."""

    def __init__(self, layout: Layout, index: tuple[int, ...], location: Location) -> None:
        self.layout, self.index, self.location = layout, index, location
        self._lines = Lines()
        self.numbers: dict[str, StoredNumber] = {}
        self.value: Value = self._rounded(self.compute(layout)).value

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines, in the order in which they are computed."""
        return tuple(self._lines.found)

    def read(self, role: str) -> Formula:
        """Read a number from the file, and return what it means."""
        field, name = self.layout.fields[role], symbol(self.layout, role)
        place = self.location.code if role == CODES else self.location.parameters[role]
        number = read_number(role, name, field, place)
        probe = Lines()
        decoded(number, field, name, probe)
        if probe.found:  # the number is computed from its bits
            number = replace(number, symbol=f"{name}_bits")
        self.numbers[role] = number
        return decoded(number, field, name, self._lines)

    def let(self, name: str, formula: Formula, note: str = "", python: str = "") -> Formula:
        """Add a line."""
        return self._lines.let(name, formula, note, python)

    def _rounded(self, found: Formula) -> Formula:
        """Round to the output dtype, where the library rounds once."""
        layout = self.layout
        if isinstance(layout, Plain) or layout.rounds_each or layout.dtype == torch.float32:
            return found
        return self.let(VALUE, rounded(found, layout.dtype), "the library's output dtype")

    @singledispatchmethod
    def compute(self, layout: Layout) -> Formula:
        """(q - z) · s, or what the layout computes instead."""
        q = self.read(CODES)
        fmt = layout.element
        if isinstance(fmt, FloatFormat):
            q = small_float(q, fmt, "v", self._lines)
        s = self.read(SCALE) if SCALE in layout.fields else None
        if isinstance(layout, PowerScales) and s is not None and s.value:
            mantissa, exponent = math.frexp(float(s.value))
            power = constant(exponent - (mantissa == 0.5))
            python = f"np.float32(2.0 ** ({power.numbers}))"
            s = self.let("s", power_of_two(power), f"the power of two at or above {s.numbers}", python)
        if GROUP_INDEX in self.location.parameters:
            self.read(GROUP_INDEX)
        if ZERO_POINT in layout.fields:
            return self._affine(layout, q, s, self.read(ZERO_POINT))
        return self._scaled(layout, q, s)

    def _affine(self, layout: Layout, q: Formula, s: Formula | None, z: Formula) -> Formula:
        assert s is not None
        if isinstance(layout, MlxAffine | TorchaoInt4):
            return self._step(layout, self._step(layout, q * s, "product") + z, VALUE)
        if isinstance(layout, QuantoBits) and not isinstance(z.value, int):
            return self._step(layout, self._step(layout, q * s, "product") - z, VALUE)
        return self._scaled(layout, self._step(layout, q - z, "difference"), s)

    def _scaled(self, layout: Layout, q: Formula, s: Formula | None) -> Formula:
        if s is None:
            return self.let(VALUE, q)
        if layout.decoding == "divided":
            return self._step(layout, q / s, VALUE)
        if layout.decoding == "of_largest":
            largest = torch.tensor(1.0) / layout.element.symmetric_max
            return self._step(layout, (q * s) * constant(float(largest)), VALUE)
        return self._step(layout, q * s, VALUE)

    def _step(self, layout: Layout, formula: Formula, name: str) -> Formula:
        """One operation: a line of its own where the library rounds it to its dtype."""
        if layout.rounds_each and layout.dtype != torch.float32:
            return self.let(name, rounded(formula, layout.dtype), "rounded after each operation")
        return self.let(name, formula) if name == VALUE else formula

    @compute.register
    def _(self, layout: BitNet) -> Formula:
        q = self.read(CODES)
        if self.numbers[CODES].raw == 3:
            q = self.let("q", constant(3) - 1, "no release stores 3; the library reads it as 2")
        return self._scaled(layout, q, self.read(SCALE))

    @compute.register
    def _(self, layout: BlockFloats) -> Formula:
        element = layout.element
        assert isinstance(element, FloatFormat)
        v = small_float(self.read(CODES), element, "v", self._lines)
        bits, piece = self.read(SCALE_CODE), layout.pieces[SCALE_CODE]
        name = "s_block" if layout.global_scale else "s"
        if piece.dtype in ("U8", "F8_E8M0"):
            s = e8m0(bits, layout.e8m0_nan, name, self._lines)
        else:
            s = small_float(bits, FLOATS["e4m3fn"], name, self._lines)
        if layout.global_scale:
            one = self.read(GLOBAL_SCALE)
            s = self.let("s", s / one if layout.global_scale == "divides" else s * one)
        return self.let(VALUE, v * s)

    @compute.register
    def _(self, layout: FourBits) -> Formula:
        self.read(CODES)
        v = self.read(TABLE)
        if not layout.nested:
            return self.let(VALUE, v * self.read(SCALE))
        self.read(SCALE_CODE)
        offset = constant(float(torch.tensor(layout.state_of.state.nested_offset)))
        product = self.read("nested_quant_map") * self.read("nested_absmax")
        s = self.let("s", product + offset, "the scale is itself quantized; nested_offset is added")
        return self.let(VALUE, v * s)

    @compute.register
    def _(self, layout: Gguf) -> Formula:
        return block_value(self, layout)

    @compute.register
    def _(self, layout: Plain) -> Formula:
        return self.let(VALUE, self.read(CODES))

    @compute.register
    def _(self, layout: Imatrix) -> Formula:
        total = self.read(CODES)
        if COUNTS in layout.pieces:
            count = self.read(COUNTS)
            if not count.value:
                return self.let(VALUE, constant(1), "1 where no token was seen")
            return self.let(VALUE, total / count)
        return self.let(VALUE, total / constant(layout.calls) if layout.calls > 0 else total)


@dataclass(frozen=True)
class Origin:
    """Where one element comes from.

    ``tensor``: its logical name; ``storage``: how it is stored, in words; ``dtype``: the library's output dtype;
    ``code``: what is stored for the element itself; ``parameters``: what else its value is computed from, by role;
    ``lines``: the arithmetic, whose last line ends in ``value``, which is that of `CheckpointTensor.read`.
    """

    tensor: str
    index: tuple[int, ...]
    storage: str
    dtype: str
    code: StoredNumber
    parameters: Mapping[str, StoredNumber]
    lines: tuple[Line, ...]
    value: float

    @property
    def numbers(self) -> Mapping[str, Value]:
        """Every number by its name in the arithmetic."""
        stored = {n.symbol: n.value for n in (self.code, *self.parameters.values())}
        return stored | {line.name: line.value for line in self.lines}

    @property
    def result(self) -> str:
        """The shortest decimal that reads back as the value."""
        return self.lines[-1].result


def origin_of(layout: Layout, index: tuple[int, ...]) -> Origin:
    """Return where an element comes from; only the bytes of its own numbers are read.

    Args:
        index: one per axis, none of them negative.

    Raises:
        QuantError: the tensor can't be read.
    """
    _ = layout.fields  # raises if the stored tensors don't fit each other
    location = layout.locate(index)
    if isinstance(layout, Rearranged):
        found = Arithmetic(layout.inner, layout.stored_index(index), location)
    else:
        found = Arithmetic(layout, index, location)
    numbers = dict(found.numbers)
    code = numbers.pop(CODES)
    return Origin(
        layout.name,
        index,
        layout.storage,
        str(layout.dtype).removeprefix("torch."),
        code,
        numbers,
        found.lines,
        float(np.float32(found.value)),
    )
