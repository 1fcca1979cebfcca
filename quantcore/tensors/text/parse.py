"""Read a tensor from pasted text: numbers as people, programs and libraries write them.

====================================  =======================  =========================================
text                                  shape                    read as
====================================  =======================  =========================================
``1 2 3``                             (3,)                     a single row is a vector
``1``, ``2``, ``3`` on three lines    (3,)                     a single column too
``1, 2`` and ``3, 4`` on two lines    (2, 2)                   one row per line; see `rows`
``[[1, 2], [3, 4]]``                  (2, 2)                   brackets or parentheses, commas or spaces
``tensor([[1., 2.]], dtype=…)``       (1, 2)                   any library's print, see `brackets`
``[1, 2]`` and ``[3, 4]``             (2, 2)                   several tensors are stacked
``tensor(3.5)``                       ()                       a scalar
``int8_t w[2][1] = {1, 2};``          (2, 1)                   an array of C, in its declared shape
``{"w": [1, 2], "bits": 4}``          (2,)                     the one array of an object
====================================  =======================  =========================================

Code, comments, prompts and labels around the numbers are passed over (see `found`), and header and index of a
table are never values (see `tables`).
"""

import re
from dataclasses import replace

import numpy as np

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_TEXT_CHARS
from quantcore.tensors.text.brackets import parse_brackets
from quantcore.tensors.text.found import PastedTensor, tensors_in
from quantcore.tensors.text.numbers import Float32Array
from quantcore.tensors.text.rows import parse_rows
from quantcore.tensors.text.tables import labelled_rows, ruled_table, without_labels_of_r
from quantcore.wording import joined

_BRACKET = re.compile(r"[\[\](){}]")
_HTML = re.compile(r"<t(?:able|r|d)\b", re.IGNORECASE)


def parse(text: str, limit: int = MAX_TEXT_CHARS) -> Float32Array:
    """Return the tensor in ``text``; numbers are rounded to the nearest float32.

    ``nan`` and ``inf`` are read as values. Nothing is guessed: an ambiguous text is an error.

    Args:
        text: what was pasted; see the module's table.
        limit: the maximum number of characters.

    >>> parse("[[1, 2.5], [-3, 4e-1]]")
    array([[ 1. ,  2.5],
           [-3. ,  0.4]], dtype=float32)

    Raises:
        QuantError: the text is empty, too long, contains several tensors, or none that is rectangular and of
            numbers within float32's range; the message gives the line and column.
    """
    found = parse_all(text, limit)
    if len(found) == 1:
        return found[0].values
    if found[0].question:
        raise QuantError(found[0].question)
    titles = [tensor.title for tensor in found]
    shown = titles if len(titles) <= 4 else [*titles[:3], f"{len(titles) - 3} more"]
    raise QuantError(f"The text contains {len(found)} tensors: {joined(shown)}; paste one of them.")


def parse_all(text: str, limit: int = MAX_TEXT_CHARS) -> list[PastedTensor]:
    """Return every tensor that ``text`` may mean, at least one: several names, or readings of one text.

    >>> [tensor.title for tensor in parse_all("w = [0.5, 1]; b = [2, 3.5]  # a layer")]
    ['w (line 1), shape (2,)', 'b (line 1), shape (2,)']

    Raises:
        QuantError: as in `parse`, but for several tensors.
    """
    if len(text) > limit:
        raise QuantError(
            f"The text has {len(text):,} characters; the limit is {limit:,}. "
            "Save the tensor with np.save and upload the .npy file instead."
        )
    # typographic minus signs; line endings of Windows and old Macs
    text = text.removeprefix("\ufeff").replace("−", "-").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise QuantError("The text contains no number; paste rows of numbers, or a printed tensor.")
    text = without_labels_of_r(text)
    bracketed = _BRACKET.search(text) is not None
    try:
        if bracketed:
            read = parse_brackets(text)
            return [PastedTensor(read.values, dtype=read.dtype, note=read.note)]
        return _readings(text, parse_rows(text))
    except QuantError as error:
        strict = error
    if _HTML.search(text):
        raise QuantError("The text is an HTML table; copy its cells from the page, or paste rows of numbers.")
    if len(text) > MAX_TEXT_CHARS:  # a file: rows, maybe with a header
        large = None if bracketed else labelled_rows(text, text)
        if large is None:
            raise strict
        return [PastedTensor(large.values, "", large.line, note=large.note)]
    table = ruled_table(text)
    if table is not None:
        return [PastedTensor(table.values, "", table.line, note=table.note)]
    found = tensors_in(text)
    if len(found) == 1 and found[0].error:
        raise QuantError(found[0].error)
    if not found and text.strip().count("\n") and re.match(r"'[A-Za-z_]", str(strict)):
        raise QuantError(
            f"{strict} No list, array or tensor in the text can be read; code is not run here, so paste what "
            "print(x.tolist()) prints."
        )
    if not found:
        raise strict
    return found


def _readings(text: str, values: Float32Array) -> list[PastedTensor]:
    """Return what rows of numbers may mean: a first row or column 0, 1, 2 may be of pandas, not values."""
    plain = [PastedTensor(values)]
    if values.ndim < 2 or np.array_equal(values.ravel(), np.arange(values.size)):
        return plain
    count = [str(n) for n in range(max(values.shape))]
    header = bool((values[0] == np.arange(values.shape[1])).all())
    index = len(values) > 2 and bool((values[:, 0] == np.arange(len(values))).all())
    if not (header or index):
        return plain
    rows = [re.findall(r"[^\s,;]+", line) for line in text.split("\n") if line.strip()]
    header &= rows[0] == count[: len(rows[0])]
    index &= [row[0] for row in rows] == count[: len(rows)]
    if not (header or index):
        return plain
    others = rows[1:] if header else [row[1:] for row in rows]
    floats = not any(word.lstrip("+-").isdigit() for row in others for word in row)
    names = ", ".join(rows[0])[:20]
    if header and floats and len(rows[0]) > 2:
        return [
            PastedTensor(
                _flat(values[1:]), line=2, note=f"Not read as values: line 1 ({names}) is the header."
            )
        ]
    if not floats and (index or len(rows[0]) == 2):
        return plain
    what = "first line may be a header" if header else "first column may be an index"
    ask = (
        f"The {what}, or values. Delete it if it is no value; else write the numbers in brackets: "
        f"[[{', '.join(rows[0][:3])}{', …' * (len(rows[0]) > 3)}], …]."
    )
    part = values[1:] if header else values[:, 1:]
    return [
        replace(plain[0], name="all numbers", question=ask),
        PastedTensor(_flat(part), f"without the first {'line' if header else 'column'}", 1 + header),
    ]


def _flat(values: Float32Array) -> Float32Array:
    return values.reshape(-1) if values.shape[1] == 1 else values
