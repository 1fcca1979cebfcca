"""Weights without a record: one that can't be read, and one whose record takes more than headers."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NoReturn, cast

import torch

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.errors import QuantError
from quantcore.granularity import Shape


class Refused:
    """A weight whose stored tensors don't fit each other or their config: it is listed, and every access raises why.

    ``reason``: one sentence; ``cause``: equal for weights that are refused for the same reason.
    """

    storage = "can't be read"
    dtype = torch.float32
    is_plain = holds_values = False
    of_part = None

    def __init__(
        self, name: str, shape: Shape, pieces: Mapping[str, StoredTensor], reason: str, cause: str = ""
    ) -> None:
        self.name, self.shape, self.pieces, self.reason, self.cause = name, shape, pieces, reason, cause

    @property
    def num_bytes(self) -> int:
        """Bytes that its stored tensors take."""
        return sum(piece.num_bytes for piece in self.pieces.values())

    def notes(self) -> tuple[str, ...]:
        """Nothing was decided."""
        return ()

    def statements(self) -> tuple[Any, ...]:
        """Nothing was decided."""
        return ()

    def as_matrix(self) -> Layout:
        """Return it as it is listed."""
        return cast(Layout, self)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise QuantError(self.reason)


class Deferred:
    """A weight whose shape or packing is stored in a tensor: its record is made on first access."""

    is_plain = holds_values = False

    def __init__(
        self, name: str, format_name: str, pieces: Mapping[str, StoredTensor], make: Callable[[], Layout]
    ) -> None:
        self.name, self.format_name, self.pieces, self._make = name, format_name, pieces, make

    @cached_property
    def made(self) -> Layout:
        """The record."""
        return self._make()

    @property
    def num_bytes(self) -> int:
        """Bytes that its stored tensors take."""
        return sum(piece.num_bytes for piece in self.pieces.values())

    def as_matrix(self) -> Layout:
        """Return the weight without the axes of length 1 at its end, when its record is made."""
        return cast(Layout, Deferred(self.name, self.format_name, self.pieces, lambda: self.made.as_matrix()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.made, name)
