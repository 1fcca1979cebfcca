"""Nested brackets: Python lists and tuples, JSON, and the output of NumPy and torch.

One pass over the tokens, with a stack of open brackets and no recursion. For each depth, `_Reader` keeps the
number of entries in the open bracket and in the closed ones: a tensor is rectangular if all brackets of one
depth agree and all numbers are at the same depth.
"""

import re
from array import array
from dataclasses import dataclass

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_RANK
from quantcore.tensors.text.numbers import Float32Array, not_a_number, to_float32
from quantcore.wording import place, short

# Every alternative backtracks over a bounded length, so that a hostile text takes linear time.
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|
        0x[0-9a-f]{1,16}(?:\.[0-9a-f]{0,16})?p[+-]?[0-9]{1,5}|
        (?:nan|inf(?:inity)?))(?=[\s,;()\[\]]|\Z))
    |(?P<comma>,)
    |(?P<open>[\[(])
    |(?P<close>[\])])
    |(?P<call>[A-Za-z_][\w.]{0,40}\()
    |(?P<key>[A-Za-z_]\w{0,40}[ ]?=(?!=))
    |(?P<word>[^\s,\[\]()]+|[^\s])""",
    re.VERBOSE | re.IGNORECASE,
)
_PREFIX = re.compile(
    r"\s*(?:Parameter containing:|[A-Za-z_]\w{0,60}\s{0,9}[=:])\s*(?=[\[(]|[A-Za-z_][\w.]{0,40}\()"
)
# tensor(, torch.tensor(, QuantizedTensor(, np.array(, nn.Parameter(, np.float32(, Params4bit(, pd.DataFrame(
CALL = re.compile(
    r"(?:\w+\.)*(?:\w*tensor|\w*array|parameter|u?int\d+|float\d+|matrix|memmap|constant|\w*variable"
    r"|\w*params(?:4bit)?|dataframe|series)\(",
    re.IGNORECASE,
)
_PAIRS = {"[": "]", "(": ")"}
# what the arguments of such a call may be named, besides its values
_NAMED = frozenset(
    [
        "dtype",
        "device",
        "requires_grad",
        "grad_fn",
        "size",
        "shape",
        "layout",
        "copy",
        "order",
        "name",
        "place",
        "stop_gradient",
        "trainable",
        "quantization_scheme",
        "columns",
        "index",
    ]
)
_VALUES = frozenset({"numpy", "data", "value"})
_OF_QUANTIZED = frozenset({"scale", "zero_point", "axis"})
_HELD = "x holds codes and scales, not its values; paste the print of x.dequantize()"
_SPARSE = "x is sparse; paste the print of x.to_dense()"
_INSTEAD = {
    "indices": _SPARSE,
    "crow_indices": _SPARSE,
    "ccol_indices": _SPARSE,
    "mask": "x is masked; paste the print of x.filled(0), with the number that is to replace masked elements",
    **dict.fromkeys(
        ("scale", "layout_tensor", "tensor_impl", "qdata", "act_quant_kwargs", "int_data"), _HELD
    ),
}
_DTYPE = re.compile(r"\s{0,9}['\"<]?(?:[A-Za-z]\w{0,20}\.)?([A-Za-z]\w{0,20})")


@dataclass(frozen=True)
class Bracketed:
    """A tensor written in brackets; ``dtype``: as the text names it, or empty; ``note``: what it is not."""

    values: Float32Array
    dtype: str = ""
    note: str = ""


def parse_brackets(
    text: str, prepared: str | None = None, start: int = 0, end: int | None = None
) -> Bracketed:
    """Return the tensor written in nested brackets, of any rank.

    Args:
        prepared: the text to read, of the same length; ``text`` is the one to which errors refer.
        start, end: the part that contains the tensor.

    Raises:
        QuantError: brackets do not match, rows differ in length, or a word is not a number.
    """
    source = text if prepared is None else prepared
    end = len(source) if end is None else end
    if start == 0:
        prefix = _PREFIX.match(source)
        start = prefix.end() if prefix else 0
    reader = _Reader(text)
    for match in _TOKEN.finditer(source, start, end):
        kind = match.lastgroup or ""
        if kind != "space":
            reader.read(kind, match.start(), match.group())
    shape = reader.finish()
    words = ((m.start(), m.group()) for m in _TOKEN.finditer(source, start, end) if m.lastgroup == "number")
    values = to_float32(reader.values, words, text).reshape(shape)
    return Bracketed(values, reader.dtype, reader.note())


class _Reader:
    """The state of one pass: open brackets, entries at each depth, numbers so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.values: array[float] = array("d")
        self.opened: list[tuple[str, int, int]] = []  # bracket, position, entries around it when it opened
        self.counts = [0]  # entries so far, at each open depth; depth 0 is outside all brackets
        self.lengths: dict[int, int] = {}  # entries of a closed bracket, at each depth
        self.leaf_depth: int | None = None
        self.last = "open"
        self.separator = ""
        self.skipped: int | None = None  # brackets open in the value of a named argument; None outside one
        self.dtype, self.calls, self.quantized = "", "", False

    def read(self, kind: str, position: int, word: str) -> None:
        """Process one token."""
        if self.skipped is not None and self._in_argument(kind):
            return
        if kind == "number":
            self._number(position, word)
        elif kind == "comma":
            self._comma(position)
        elif kind == "open":
            self._open(position, word)
        elif kind == "close":
            self._close(position, word)
        elif kind == "call" and CALL.fullmatch(word):
            self.opened.append(("call", position, self.counts[-1]))
            self.calls += f"{word[:-1].lower()} " if len(self.opened) <= 2 and len(self.calls) < 60 else ""
            kind = "open"
        elif kind == "key" and self.opened and self.opened[-1][0] == "call":
            self._named(position, word)
        else:
            raise not_a_number(self.text, position, word)
        self.last = kind

    def _in_argument(self, kind: str) -> bool:
        """Pass over a token in the value of a named argument; False where that has ended."""
        assert self.skipped is not None
        if kind in ("open", "call"):
            self.skipped += 1
        elif kind == "close" and self.skipped:
            self.skipped -= 1
        elif kind in ("comma", "close") and not self.skipped:
            self.skipped = None
            self.last = kind if kind == "comma" else self.last
            return kind == "comma"
        return True

    def _named(self, position: int, word: str) -> None:
        """Begin a named argument: one that holds the values, or one to pass over."""
        name = word.rstrip("= ")
        if name in _VALUES:
            return
        self.quantized |= name == "quantization_scheme"
        if name == "dtype" and not self.dtype and (found := _DTYPE.match(self.text, position + len(word))):
            self.dtype = found[1]
        if name not in _NAMED and not (self.quantized and name in _OF_QUANTIZED):
            if name in _INSTEAD:
                raise QuantError(f"{short(word)} at {place(self.text, position)}: {_INSTEAD[name]}.")
            raise not_a_number(self.text, position, word)
        self.skipped = 0

    def note(self) -> str:
        """Return what a reader of the values must know, as a sentence; empty if nothing."""
        if self.quantized:
            return f"The text is the print of a quantized tensor ({self.dtype}): its values, dequantized."
        if "params" in self.calls and self.dtype == "uint8":
            return (
                "These are the bytes of a Params4bit, two 4-bit codes in each, not its values; for "
                "those, paste the print of bitsandbytes.functional.dequantize_4bit(w.data, w.quant_state)."
            )
        return ""

    def finish(self) -> tuple[int, ...]:
        """Return the shape, after the last token."""
        if self.opened:
            bracket, position, _ = self.opened[-1]
            bracket = "(" if bracket == "call" else bracket
            raise QuantError(
                f"The {bracket!r} at {place(self.text, position)} is never closed; add the closing bracket."
            )
        if self.leaf_depth is None:
            raise QuantError("The text contains no number; paste rows of numbers, or a printed tensor.")
        inner = tuple(self.lengths[depth] for depth in range(1, self.leaf_depth + 1))
        return inner if self.counts[0] == 1 else (self.counts[0], *inner)

    def _number(self, position: int, word: str) -> None:
        depth = len(self.counts) - 1
        if self.leaf_depth is None:
            self.leaf_depth = depth
        if depth != self.leaf_depth:
            raise self._mixed_depth(position, word, depth)
        if self.last == "number" or (self.last == "comma" and self.counts[-1]):
            style = "space" if self.last == "number" else "comma"
            if self.separator not in ("", style):
                raise QuantError(
                    f"{short(word)} at {place(self.text, position)} follows a {style}, but other numbers "
                    f"follow a {self.separator}; use one separator, and a point for decimals."
                )
            self.separator = style
        self.counts[-1] += 1
        self.values.append(float.fromhex(word) if "x" in word.lower() else float(word))

    def _comma(self, position: int) -> None:
        if self.last in ("open", "comma"):
            where = place(self.text, position)
            raise QuantError(f"A value is missing before the comma at {where}; write a number there.")

    def _open(self, position: int, word: str) -> None:
        depth = len(self.counts)
        if depth > MAX_RANK:
            where = place(self.text, position)
            raise QuantError(
                f"Brackets are nested more than {MAX_RANK} deep at {where}; give at most {MAX_RANK} axes."
            )
        if self.leaf_depth is not None and depth > self.leaf_depth:
            raise self._mixed_depth(position, word, depth)
        self.opened.append((word, position, self.counts[-1]))
        self.counts.append(0)

    def _close(self, position: int, word: str) -> None:
        if not self.opened:
            where = place(self.text, position)
            raise QuantError(f"The {word!r} at {where} has no opening bracket; remove it or add one.")
        bracket, opened_at, around = self.opened.pop()
        if word != _PAIRS.get(bracket, ")"):
            opening = "(" if bracket == "call" else bracket
            raise QuantError(
                f"The {opening!r} at {place(self.text, opened_at)} is closed by {word!r} at "
                f"{place(self.text, position)}; use a matching pair."
            )
        if bracket != "call":
            self._check_length(self.counts.pop(), position)
            self.counts[-1] += 1
        elif self.counts[-1] != around + 1:
            raise QuantError(
                f"{short(self.text[opened_at : position + 1])} at {place(self.text, opened_at)} "
                "does not contain one tensor; write its values in brackets."
            )

    def _check_length(self, count: int, position: int) -> None:
        if count == 0:
            where = place(self.text, position)
            raise QuantError(
                f"The brackets that end at {where} are empty; write at least one number in them."
            )
        expected = self.lengths.setdefault(len(self.counts), count)
        if expected != count:
            index = "".join(f"[{n}]" for n in self.counts[1:] or self.counts)
            raise QuantError(
                f"Row {index}, which ends at {place(self.text, position)}, has length {count}, but the rows "
                f"before it have length {expected}; make all rows the same length."
            )

    def _mixed_depth(self, position: int, word: str, depth: int) -> QuantError:
        return QuantError(
            f"{short(word)} at {place(self.text, position)} is at bracket depth {depth}, but the first "
            f"number is at depth {self.leaf_depth}; nest all rows to the same depth."
        )
