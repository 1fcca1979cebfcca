"""Read a tensor from pasted text: rows of numbers, or what Python, NumPy, torch and JSON print.

====================================  =======================  =========================================
text                                  shape                    read as
====================================  =======================  =========================================
``1 2 3``                             (3,)                     one row is a vector
``1``, ``2``, ``3`` on three lines    (3,)                     a column is a vector too
``1, 2`` and ``3, 4`` on two lines    (2, 2)                   one row a line; blank lines are skipped
``1,5 ; 2,5``                         (2,)                     decimal commas, see `text_rows`
``[[1, 2], [3, 4]]``                  (2, 2)                   brackets or parentheses, commas or spaces
``tensor([[1., 2.]], dtype=…)``       (1, 2)                   also ``array(…)``, ``np.array(…)``
``[1, 2]`` and ``[3, 4]``             (2, 2)                   several brackets stand as if in one more
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
    """Return the tensor that ``text`` writes, as float32; numbers are rounded to the nearest float32.

    ``nan`` and ``inf`` are read as values. Nothing is guessed: a text that can be read in two ways is
    refused.

    Args:
        text: what was pasted; see the module's table.
        limit: the most characters that are read.

    Raises:
        QuantError: the text is empty, too long, or not a rectangular tensor of numbers within float32's
            range; the message names the line and column.
    """
    if len(text) > limit:
        raise QuantError(
            f"The text has {len(text):,} characters, and at most {limit:,} are read; "
            "save the tensor with np.save and upload the .npy file instead."
        )
    # the minus sign of typeset text; line ends of Windows and old Macs
    text = text.removeprefix("\ufeff").replace("−", "-").replace("\r\n", "\n").replace("\r", "\n")
    if not text.strip():
        raise QuantError("There is no number in the text; paste rows of numbers, or a printed tensor.")
    return parse_brackets(text) if _BRACKET.search(text) else parse_rows(text)
