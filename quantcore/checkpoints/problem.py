"""What is wrong with the files of a checkpoint, as found while their headers were read."""

from dataclasses import dataclass
from typing import Literal

from quantcore.errors import QuantError


class NotFound(QuantError):
    """There is no checkpoint at an address, or it can't be opened; other errors are about what it contains."""


@dataclass(frozen=True)
class Problem:
    """A fact that keeps tensors from being read, or that should be known.

    ``kind``: "missing_shard", "outside", "not_a_shard", "unreadable_shard", "missing_tensor", "wrong_shard",
    "unreadable_tensor". ``tensors``: the names that it concerns, as the files have them.
    """

    kind: str
    severity: Literal["error", "warning", "note"]
    sentence: str
    tensors: tuple[str, ...] = ()
