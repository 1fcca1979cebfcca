"""A short NumPy script that reads one element from its files and prints its value."""

from quantcore.checkpoints.origin.arithmetic import Origin
from quantcore.checkpoints.origin.stored_number import StoredNumber
from quantcore.errors import QuantError

_HEAD = '''"""Element {index} of {tensor}, {storage}."""
import numpy as np

FOLDER = "."  # the folder of the checkpoint


def stored(file, *runs):
    """Assemble a number from runs of bits (byte of the file, lowest bit, number of bits), lowest bits first."""
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
    "float16(": '''
def float16(x):
    """Round to float16."""
    return np.float32(np.float16(x))

''',
    "bfloat16(": '''
def bfloat16(x):
    """Round to bfloat16, half to even."""
    bits = int(np.float32(x).view(np.uint32))
    return np.float32(x) if x != x else np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)

''',
    "small_float(": '''
def small_float(bits, exponent, mantissa, bias):
    """The value of a small float: sign, exponent, mantissa."""
    sign, e, m = bits >> exponent + mantissa, bits >> mantissa & (1 << exponent) - 1, bits & (1 << mantissa) - 1
    size = (m + (1 << mantissa) * (e > 0)) * 2.0 ** (max(e, 1) - bias - mantissa)
    return np.float32(-size if sign else size)

''',
    "ones(": '''
def ones(bits):
    """The number of bits set to 1."""
    return bits.bit_count()

''',
}


def script(origin: Origin) -> str:
    """Return a script that prints the value of an element; it needs NumPy and the files alone.

    Raises:
        QuantError: a file does not hold a number's bytes as such: it is compressed, or written in another form.
    """
    numbers = (origin.code, *origin.parameters.values())
    for number in numbers:
        if not all(word.in_file for word in number.words):
            raise QuantError(
                f"The file does not hold the bytes of {number.place.tensor} as such ({number.place.file}), so a script "
                "can't read them at an offset; save the checkpoint as .safetensors."
            )
    body = [f"{n.symbol} = {n.python.format(_read(n))}  # {n.meaning}" for n in numbers]
    body += [f"{line.name} = {line.python}  # {line.result}" for line in origin.lines]
    used = "\n".join(body)
    functions = "".join(text for name, text in _FUNCTIONS.items() if f" {name}" in used or f"({name}" in used)
    head = _HEAD.format(index=origin.index, tensor=_plain(origin.tensor), storage=origin.storage)
    last = origin.lines[-1].name
    return f"{head}{functions}\n{used}\nprint(np.float32({last}))\n"


def _plain(text: str) -> str:
    """A name from a file, without characters that would end a docstring or a line."""
    return ascii(text)[1:-1].replace('"', "'").replace("\\", "/")


def _read(number: StoredNumber) -> str:
    """Return the call that reads a number's bits."""
    runs: list[list[int]] = []
    for byte, bit in number.place.bits:
        if runs and runs[-1][0] == byte and sum(runs[-1][1:]) == bit:
            runs[-1][2] += 1
        else:
            runs.append([byte, bit, 1])
    listed = ", ".join(f"({byte}, {low}, {count})" for byte, low, count in runs)
    return f"stored({number.place.file!r}, {listed})"
