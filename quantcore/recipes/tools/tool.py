"""What a recipe needs to know of a tool."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quantcore.checkpoints import Checkpoint
from quantcore.errors import QuantError
from quantcore.layerwise import kind_of
from quantcore.recipes.wanted import StorageKind, Wanted
from quantcore.wording import short


@dataclass(frozen=True)
class TensorChoice:
    """What a tensor is to become, and why; ``wanted``: None if it stays as it is stored."""

    name: str
    wanted: Wanted | None
    reason: str

    @property
    def module(self) -> str:
        """The name of the module whose weight it is.

        Raises:
            QuantError: it is not called weight.
        """
        module, dot, last = self.name.rpartition(".")
        if not dot or last != "weight":
            raise QuantError(
                f"{short(self.name, 120)} is not the weight of a module, by which this tool chooses; "
                "leave it as stored."
            )
        return module

    @property
    def kind(self) -> StorageKind:
        """What the tool is told of it."""
        assert self.wanted is not None
        assert self.wanted.kind is not None
        return self.wanted.kind


@dataclass(frozen=True)
class Written:
    """A recipe as text for a file, and as plain data where the tool takes that."""

    text: str
    data: Any = None


@dataclass(frozen=True)
class Tool:
    """A tool that quantizes.

    ``file``: a name for the recipe; ``menu``: schemes that it has, of which one is named instead of another;
    ``usual``: those from which a size is made; ``has``: whether it has a scheme; ``write``: from the choices
    and the checkpoint, if there is one; ``unfit``: the tensors of a checkpoint that it leaves as they are,
    with what they are; ``fuses``: whether readers need the same scheme for q, k, v, for gate, up, and for all
    experts of a layer.
    """

    name: str
    file: str
    menu: tuple[str, ...]
    usual: tuple[str, ...]
    has: Callable[[Wanted], bool]
    write: "Callable[[Sequence[TensorChoice], Checkpoint | None], Written]"
    unfit: Callable[[Checkpoint], Mapping[str, str]]
    fuses: bool = False


def no_matrices(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the tensors that are not the weight of a module with two axes."""
    return {
        name: "is not a matrix called weight"
        for name, tensor in checkpoint.tensors.items()
        if not name.endswith(".weight") or len(tensor.shape) != 2
    }


def no_linears(checkpoint: Checkpoint) -> dict[str, str]:
    """Return also the embeddings, by their names."""
    embeddings = (name for name in checkpoint.tensors if kind_of(name) == "embeddings")
    return no_matrices(checkpoint) | dict.fromkeys(embeddings, "is an embedding")


def by_kind(has: Callable[[StorageKind], Any]) -> Callable[[Wanted], bool]:
    """Return a function for `Tool.has` from one that takes kinds and returns None for those it lacks."""
    return lambda given: given.kind is not None and has(given.kind) is not None


def quantized(choices: Sequence[TensorChoice]) -> list[TensorChoice]:
    """Return the choices that change a tensor."""
    return [choice for choice in choices if choice.wanted is not None]


def kept_modules(choices: Sequence[TensorChoice]) -> list[str]:
    """Return the modules whose matrices stay as they are stored; norms and biases are no matrices."""
    names = [choice.name for choice in choices if choice.wanted is None and choice.name.endswith(".weight")]
    return [name.removesuffix(".weight") for name in names if "norm" not in name.lower()]


def by_entry(choices: Sequence[TensorChoice], entry: Callable[[StorageKind], Any]) -> Mapping[str, Any]:
    """Return what a tool is told of each module that is quantized."""
    return {choice.module: entry(choice.kind) for choice in quantized(choices)}
