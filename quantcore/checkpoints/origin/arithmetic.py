"""From stored numbers to the value of one element, line by line: the layout's expression, evaluated.

The same as a short NumPy script, which reads the element from its files and prints its value.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from quantcore.checkpoints.origin.words import StoredNumber, read_number
from quantcore.checkpoints.protocol.fields import Location
from quantcore.checkpoints.protocol.kinds import Selected
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Rearranged
from quantcore.checkpoints.protocol.record import CODES, GROUP_INDEX, SCALE, Q, S
from quantcore.errors import QuantError
from quantcore.expressions import Element, Line, Name, Term, Value, named

_BITS = Name("bits")
_HEAD = '''"""Element {index} of {tensor}, {storage}."""
import numpy as np

FOLDER = "."  # the folder of the checkpoint


def stored(file, *runs):
    """Assemble a number from runs of bits (byte of the file, lowest bit, bits), lowest bits first."""
    number = at = 0
    with open(f"{{FOLDER}}/{{file}}", "rb") as opened:
        for byte, low, count in runs:
            opened.seek(byte)
            number |= (opened.read(1)[0] >> low & (1 << count) - 1) << at
            at += count
    return number

'''
# functions that formulas call, by name
_FUNCTIONS = {
    "float32(": '''
def float32(x):
    """Round to float32."""
    return np.float32(x)

''',
    "float16(": '''
def float16(x):
    """Round to float16."""
    return np.float32(np.float16(x))

''',
    "bfloat16(": '''
def bfloat16(x):
    """Round to bfloat16, half to even."""
    bits = int(np.float32(x).view(np.uint32))
    rounded = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000
    return np.float32(x) if x != x else np.uint32(rounded).view(np.float32)

''',
    "small_float(": '''
def small_float(bits, exponent, mantissa, bias):
    """The value of a small float: sign, exponent, mantissa."""
    sign, e = bits >> exponent + mantissa, bits >> mantissa & (1 << exponent) - 1
    m = bits & (1 << mantissa) - 1
    size = (m + (1 << mantissa) * (e > 0)) * 2.0 ** (max(e, 1) - bias - mantissa)
    return np.float32(-size if sign else size)

''',
    "ones(": '''
def ones(bits):
    """The number of bits set to 1."""
    return bits.bit_count()

''',
}


class Arithmetic:
    """Reads the numbers of one element, and collects a line for each that is computed from them."""

    def __init__(self, layout: Layout, index: tuple[int, ...], location: Location) -> None:
        self.layout, self.location = layout, location
        self.lines: list[Line] = []
        self.numbers: dict[str, StoredNumber] = {}
        self._known: dict[str, Term] = {}
        # a parameter may be derived from several numbers: inside, names are those of stored ones
        stored = Element(self._read, self.lines)
        derived = layout.derived
        element = Element(
            lambda role: stored.of(derived[role]) if role in derived else self._read(role), self.lines
        )
        element.of(Q)
        level = layout.level_at(index) if layout.level_at else layout.level
        if layout.own_value is None:
            element.of(level)
            if SCALE in layout.fields or SCALE in derived:
                element.of(S)
            if GROUP_INDEX in location.parameters:
                self._read(GROUP_INDEX)
        self.value: Value = element.of(layout.expression(level=level)).value

    def _read(self, role: str) -> Term:
        """Return a number of the file, after adding the lines that compute it from its bits."""
        if role not in self._known:
            field, name = self.layout.fields[role], self.layout.symbol(role)
            if isinstance(field, Selected):  # the code that selects it comes first
                self._read(next(other for other, codes in self.layout.fields.items() if codes is field.codes))
            place = self.location.code if role == CODES else self.location.parameters[role]
            number = read_number(role, name, field, place)
            meaning = field.meaning(_BITS, len(number.place.bits), name)
            if meaning is not _BITS:
                number = replace(number, symbol=f"{name}_bits")
            self.numbers[role] = number
            bits = named(number.symbol, number.value)
            self._known[role] = Element(lambda _: bits, self.lines).of(meaning)
        return self._known[role]


@dataclass(frozen=True)
class Origin:
    """Where one element comes from.

    ``tensor``: its logical name;
    ``storage``: how it is stored, in words;
    ``dtype``: the library's output dtype;
    ``code``: what is stored for the element itself;
    ``parameters``: what else its value is computed from, by role;
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


def script(origin: Origin) -> str:
    """Return a script that prints the value of an element; it needs NumPy and the files alone.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> weight = open_checkpoint(EXAMPLES["minilm-gptq"]).tensors["encoder.layer.0.output.dense.weight"]
    >>> origin = weight.origin((0, 0))
    >>> origin.result
    '0.021987915'
    >>> for line in script(origin).splitlines()[-3:]:
    ...     print(line)
    z = (z_bits + 1) % 16  # 8
    w = (q - z) * s  # 0.021987915
    print(np.float32(w))

    Raises:
        QuantError: a file does not hold a number's bytes as such: it is compressed, or written in another
            form.
    """
    numbers = (origin.code, *origin.parameters.values())
    for number in numbers:
        if not all(word.in_file for word in number.words):
            raise QuantError(
                f"The file does not hold the bytes of {number.place.tensor} as such ({number.place.file}), "
                "so a script can't read them at an offset; save the checkpoint as .safetensors."
            )
    body = []
    for n in numbers:
        runs = ", ".join(f"({byte}, {low}, {high - low + 1})" for byte, low, high in n.place.runs)
        bits = f"stored({n.place.file!r}, {runs})"
        body.append(f"{n.symbol} = {n.python.format(bits)}  # {n.meaning}")
    body += [f"{line.name} = {line.python}  # {line.result}" for line in origin.lines]
    used = "\n".join(body)
    functions = "".join(text for name, text in _FUNCTIONS.items() if f" {name}" in used or f"({name}" in used)
    # a name from a file, without the characters that would end a docstring or a line
    tensor = ascii(origin.tensor)[1:-1].replace('"', "'").replace("\\", "/")
    head = _HEAD.format(index=origin.index, tensor=tensor, storage=origin.storage)
    last = origin.lines[-1].name
    return f"{head}{functions}\n{used}\nprint(np.float32({last}))\n"
