"""From stored numbers to the value of one element, line by line: the layout's expression, read on its numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from quantcore.checkpoints.origin.stored_number import StoredNumber, read_number
from quantcore.checkpoints.protocol.fields import Place
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.protocol.reading import Rearranged
from quantcore.checkpoints.protocol.value import CODES, GROUP_INDEX, SCALE, Q, S
from quantcore.checkpoints.protocol.views import Selected
from quantcore.expressions import Element, Line, Name, Term, Value, named


class Arithmetic:
    """Reads the numbers of one element, and collects a line for each that is computed from them."""

    def __init__(self, layout: Layout, index: tuple[int, ...], location: Location) -> None:
        self.layout, self.location = layout, location
        self.lines: list[Line] = []
        self.numbers: dict[str, StoredNumber] = {}
        self._known: dict[str, Term] = {}
        # inside a derived parameter, names are those of stored numbers
        self._stored = Element(self._read, self.lines)
        element = Element(self._effective, self.lines)
        element.of(Q)
        level = layout.level_at(index) if layout.level_at else layout.level
        if layout.own_value is None:
            element.of(level)
            if SCALE in layout.fields or SCALE in layout.derived:
                element.of(S)
            if GROUP_INDEX in location.parameters:
                self._read(GROUP_INDEX)
        self.value: Value = element.of(layout.expression(level=level)).value

    def _effective(self, role: str) -> Term:
        """Return what the library computes with: a parameter may be computed from several numbers."""
        return self._stored.of(self.layout.derived[role]) if role in self.layout.derived else self._read(role)

    def _read(self, role: str) -> Term:
        """Return a number of the file, after adding the lines that compute it from its bits."""
        if role not in self._known:
            field, name = self.layout.fields[role], self.layout.symbol(role)
            if isinstance(field, Selected):  # the code that selects it comes first
                self._read(next(other for other, codes in self.layout.fields.items() if codes is field.codes))
            number = read_number(role, name, field, self._place(role))
            meaning = field.meaning(_BITS, len(number.place.bits), name)
            if meaning is not _BITS:
                number = replace(number, symbol=f"{name}_bits")
            self.numbers[role] = number
            bits = named(number.symbol, number.value)
            self._known[role] = Element(lambda _: bits, self.lines).of(meaning)
        return self._known[role]

    def _place(self, role: str) -> Place:
        return self.location.code if role == CODES else self.location.parameters[role]


_BITS = Name("bits")


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


def origin_of(layout: Layout | Rearranged, index: tuple[int, ...]) -> Origin:
    """Return where an element comes from; only the bytes of its own numbers are read.

    Args:
        index: one per axis, none of them negative.

    Raises:
        QuantError: the tensor can't be read.
    """
    if isinstance(layout, Rearranged):
        stored: Layout = layout.inner
        at = layout.stored_index(index)
    else:
        stored, at = layout, index
    stored = getattr(stored, "made", stored)  # raises if the stored tensors don't fit each other
    _ = stored.fields
    found = Arithmetic(stored, at, stored.locate(at))
    numbers = dict(found.numbers)
    code = numbers.pop(CODES)
    return Origin(
        stored.name,
        index,
        stored.storage,
        str(stored.dtype).removeprefix("torch."),
        code,
        numbers,
        tuple(found.lines),
        float(np.float32(found.value)),
    )
