"""Rows of numbers without brackets, one line per row; the separator is decided once for the whole text.

=========================  ====================================================================
between the numbers        read as
=========================  ====================================================================
only spaces or tabs        separators (two tabs in a row: a missing value, an error)
only ``,`` or only ``;``   separators, with or without spaces; one at the end of a line is allowed
``,`` and also ``;``,      decimal commas, if each number has at most one comma, between digits, and
tabs or spaces             there is no point (``1,5;2,5``); anything else is an error, and so are
                           ``1,234 5,678`` (thousands?) and ``1 2,5 3`` (is the comma a separator?)
=========================  ====================================================================
"""

import re
from array import array

from quantcore.errors import QuantError
from quantcore.tensors.text.numbers import Float32Array, not_a_number, to_float32
from quantcore.wording import place, sentence, short

# float() would also accept 1_000, digits of other scripts and a lone "infinity": these never reach it
_FOREIGN = re.compile(r"[^0-9eE+\-.\snaiftyNAIFTY]")
_GAP = re.compile(r"[^\s,;]([^\S\n]+)[^\s,;]")
_FIELD = re.compile(r"[^\s;]+")
_WORD = re.compile(r"\S+")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?")
NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE
)
_NUMBER_LIKE = re.compile(r"[0-9eE+\-.,]+|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_MISSING = {
    ",": re.compile(r"^[^\S\n]*,|,[^\S\n]*,", re.MULTILINE),
    ";": re.compile(r"^[^\S\n]*;|;[^\S\n]*;", re.MULTILINE),
    "\t": re.compile(r"\S *\t *\t[^\S\n]*(?=\S)"),
}


def parse_rows(text: str) -> Float32Array:
    """Return rows of numbers as a matrix; a single row or column as a vector.

    Raises:
        QuantError: a word is not a number, the rows differ in length, or the text is ambiguous.
    """
    plain = _separate(text)
    if found := _FOREIGN.search(plain):
        raise _first_bad_word(text, plain, plain.rfind("\n", 0, found.start()) + 1)
    values, rows, columns = _read_lines(text, plain)
    flat = to_float32(values, ((m.start(), m.group()) for m in _WORD.finditer(plain)), text)
    return flat if rows == 1 or columns == 1 else flat.reshape(rows, columns)


def _read_lines(text: str, plain: str) -> tuple["array[float]", int, int]:
    """Return the numbers, the number of rows and their length."""
    values: array[float] = array("d")
    rows, columns, first, start = 0, 0, 0, 0
    for number, line in enumerate(plain.split("\n"), start=1):
        words = line.split()
        if words:
            try:
                values.extend(map(float, words))
            except ValueError:
                raise _first_bad_word(text, plain, start) from None
            if rows == 0:
                columns, first = len(words), number
            elif len(words) != columns:
                raise QuantError(
                    f"Line {number} has {_count(len(words))}, but line {first} has {columns}; "
                    "make all rows the same length."
                )
            rows += 1
        start += len(line) + 1
    if not rows:
        raise QuantError("The text contains separators but no number; paste rows of numbers.")
    return values, rows, columns


def _separate(text: str) -> str:
    """Return a text of the same length with spaces as the only separators and points for decimals."""
    gap = _GAP.search(text)
    if "," in text and (";" in text or gap):
        _check_decimal_commas(text, gap)
        text = text.replace(",", ".")
        separator = ";" if ";" in text else "\t"
    else:
        separator = "," if "," in text else ";" if ";" in text else "\t"
        if separator == ";" and gap:
            raise _mixed(text, gap.start(1), "semicolons and spaces")
    if missing := _MISSING[separator].search(text):
        where = place(text, missing.end() - 1)
        raise QuantError(f"A value is missing at {where}; write a number between the separators.")
    return text.replace(separator, " ")


def _check_decimal_commas(text: str, gap: re.Match[str] | None) -> None:
    """Raise unless every comma is unambiguously a decimal comma."""
    other = "semicolons" if ";" in text else "tabs" if gap and "\t" in gap.group() else "spaces"
    if other == "semicolons" and gap:
        raise _mixed(text, gap.start(1), "commas, semicolons and spaces")
    thousands: re.Match[str] | None = None
    decimals = False
    for field in _FIELD.finditer(text):
        word = field.group()
        if not _NUMBER_LIKE.fullmatch(word):  # a header line: clearer than an error about separators
            raise not_a_number(text, field.start(), word)
        if "." in word or ("," in word and not _DECIMAL_COMMA.fullmatch(word)):
            raise _mixed(text, field.start(), f"commas and {other}")
        if "," not in word and other == "spaces":
            raise _mixed(text, field.start(), "commas and spaces")
        if "," in word:
            as_thousands = _THOUSANDS.fullmatch(word)
            thousands = thousands or (field if as_thousands else None)
            decimals = decimals or not as_thousands
    if thousands and not decimals:
        raise QuantError(
            f"{sentence(short(thousands.group()))} at {place(text, thousands.start())} may have a decimal "
            "comma or a thousands separator; write a point for decimals and nothing for thousands."
        )


def _mixed(text: str, position: int, what: str) -> QuantError:
    return QuantError(
        f"Numbers are separated by {what} ({place(text, position)}), which is ambiguous; "
        "use one separator, and a point for decimals."
    )


def _first_bad_word(text: str, plain: str, start: int) -> QuantError:
    """Return the error for the line that begins at ``start``, which contains a word that is not a number."""
    for match in _WORD.finditer(plain, start):
        if not NUMBER.fullmatch(match.group()):
            return not_a_number(text, match.start(), text[match.start() : match.end()])
    raise AssertionError("the line is invalid, so one of its words is not a number")


def _count(n: int) -> str:
    return f"{n} number" if n == 1 else f"{n} numbers"
