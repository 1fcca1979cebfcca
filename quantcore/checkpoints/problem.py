"""Problems with the files of a checkpoint that are found while their headers are read."""

from dataclasses import dataclass
from typing import Literal

from quantcore.errors import QuantError
from quantcore.wording import short

NAME = 120  # characters of a name that are shown


class NotFound(QuantError):
    """There is no checkpoint at an address, or it can't be opened; other errors are about what it contains."""


@dataclass(frozen=True)
class Problem:
    """Something that keeps tensors from being read, or that the user should know.

    ``kind``: "missing_shard", "outside", "not_a_shard", "unreadable_shard", "missing_tensor", "wrong_shard",
    "duplicate_tensor" or "unreadable_tensor". ``tensors``: the names of the tensors that it concerns, as in the files. ``cause``: equal for
    problems with the same cause; empty if their sentences tell.
    """

    kind: str
    severity: Literal["error", "warning", "note"]
    sentence: str
    tensors: tuple[str, ...] = ()
    cause: str = ""


def raised_at(error: BaseException) -> str:
    """Return the check that raised an error: errors of one check have one cause, whatever tensor they name."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else ""


def named(name: str) -> str:
    """Quote a name that a file gives, cut to a length that a sentence can hold."""
    return short(name, NAME)
