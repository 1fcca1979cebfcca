"""Read a tensor from pasted text: rows of numbers, or the output of Python, NumPy, torch and JSON.

====================================  =======================  =========================================
text                                  shape                    read as
====================================  =======================  =========================================
``1 2 3``                             (3,)                     a single row is a vector
``1``, ``2``, ``3`` on three lines    (3,)                     a single column too
``1, 2`` and ``3, 4`` on two lines    (2, 2)                   one row per line; blank lines are skipped
``1,5 ; 2,5``                         (2,)                     decimal commas, see `rows`
``[[1, 2], [3, 4]]``                  (2, 2)                   brackets or parentheses, commas or spaces
``tensor([[1., 2.]], dtype=…)``       (1, 2)                   also ``array(…)``, ``np.array(…)``
``[1, 2]`` and ``[3, 4]``             (2, 2)                   several tensors are stacked
``tensor(3.5)``                       ()                       a scalar
====================================  =======================  =========================================
"""

import re

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_TEXT_CHARS
from quantcore.tensors.text.brackets import parse_brackets
from quantcore.tensors.text.numbers import Float32Array
from quantcore.tensors.text.rows import parse_rows

_BRACKET = re.compile(r"[\[\](){}]")


def parse(text: str, limit: int = MAX_TEXT_CHARS) -> Float32Array:
    """Return the tensor in ``text``; numbers are rounded to the nearest float32.

    ``nan`` and ``inf`` are read as values. Nothing is guessed: an ambiguous text is an error.

    Args:
        text: what was pasted; see the module's table.
        limit: the maximum number of characters.

    Raises:
        QuantError: the text is empty, too long, or not a rectangular tensor of numbers within float32's
            range; the message gives the line and column.
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
    return parse_brackets(text) if _BRACKET.search(text) else parse_rows(text)
