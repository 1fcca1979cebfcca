"""What a format sees of a checkpoint, headers and config, and what it yields besides records.

A weight that can't be read is `Refused`, one whose record takes more than headers is `Deferred`, and one that
is a stored tensor itself is `AsStored` until its record is used.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, cast

import torch

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.protocol.config import Config
from quantcore.checkpoints.protocol.layout import Layout, matrix_shape
from quantcore.checkpoints.statement import raised_at
from quantcore.errors import QuantError
from quantcore.granularity import Shape

DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


@dataclass(eq=False)
class Refused:
    """A weight whose stored tensors don't fit each other or their config: listed, but every access raises.

    ``reason``: one sentence; ``cause``: equal for weights that are refused for the same reason.
    """

    name: str
    shape: Shape
    pieces: Pieces
    reason: str
    cause: str
    storage = "can't be read"
    dtype = torch.float32
    is_plain = holds_values = False
    of_part = None

    @property
    def num_bytes(self) -> int:
        """Bytes that its stored tensors take."""
        return sum(piece.num_bytes for piece in self.pieces.values())

    def notes(self) -> tuple[str, ...]:
        """Return nothing: nothing was decided."""
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

    def __init__(self, name: str, format_name: str, pieces: Pieces, make: Callable[[], Layout]) -> None:
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


@dataclass(frozen=True, eq=False, slots=True)
class AsStored:
    """A weight that is a stored tensor: `CheckpointTensor` makes its record when that is used.

    A checkpoint may have 40,000 of them, of which one is looked at. Their records would be most of what it
    takes, and each object makes every collection of garbage longer, in which the whole process stands still.

    ``storage``, ``dtype``: as of the record; ``make``: returns the record of a stored tensor.
    """

    piece: StoredTensor
    storage: str
    dtype: torch.dtype
    make: Callable[[StoredTensor], Layout]
    is_plain = True

    @property
    def name(self) -> str:
        """Its name."""
        return self.piece.name

    @property
    def shape(self) -> Shape:
        """Its shape."""
        return self.piece.shape

    @property
    def num_bytes(self) -> int:
        """Its bytes in the file."""
        return self.piece.num_bytes

    @property
    def format_name(self) -> str:
        """The first word of its storage."""
        return self.storage.partition(" ")[0]

    @property
    def pieces(self) -> Pieces:
        """The stored tensor."""
        return {"": self.piece}

    def layout(self) -> Layout:
        """Return its record."""
        return self.make(self.piece)

    def as_matrix(self) -> "AsStored":
        """Return it without the axes of length 1 at its end, as `Layout.as_matrix` does."""
        shape = matrix_shape(self.shape)
        return self if shape == self.shape else replace(self, piece=replace(self.piece, shape=shape))


@dataclass(frozen=True)
class Release:
    """Every stored tensor of a checkpoint by name, its config files and the metadata in its headers.

    ``config``: config.json. ``quantization``: its quantization_config, or the file that holds it instead
    (quantize_config.json, hf_quant_config.json, ...); empty if there is none. ``metadata``: of all headers.
    ``structures``: what files themselves say about which tensors belong together (`Container.structure`).
    """

    stored: Pieces
    config: Config = field(default_factory=dict)
    quantization: Config = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    structures: tuple[Any, ...] = ()

    @property
    def method(self) -> str:
        """The ``quant_method`` of the config, in lower case; empty if there is none."""
        return str(self.quantization.get("quant_method") or "").lower()

    @cached_property
    def modules(self) -> Mapping[str, Pieces]:
        """The stored tensors of each module by their last names: ``modules["...q_proj"]["qweight"]``."""
        found: dict[str, dict[str, StoredTensor]] = {}
        for name, piece in self.stored.items():
            module, _, last = name.rpartition(".")
            found.setdefault(module, {})[last] = piece
        return found

    def modules_with(self, *names: str, keep: Iterable[str] = ()) -> Iterator[tuple[str, Pieces]]:
        """Yield each module that has all of these stored tensors, with these, or with those of ``keep``."""
        needed = set(names)
        for module, pieces in self.modules.items():
            if needed <= pieces.keys():
                yield module, {name: pieces[name] for name in keep or names if name in pieces}


Finder = Callable[[Release], Iterator[Layout]]


def attempt(name: str, pieces: Pieces, make: Callable[..., Layout], *arguments: Any) -> Layout:
    """Return the layout that ``make`` returns, or a `Refused` one with the reason why it can't."""
    try:
        return make(*arguments)
    except QuantError as error:
        shape = next(iter(pieces.values())).shape
        return cast(Layout, Refused(name, shape, pieces, str(error), raised_at(error)))
