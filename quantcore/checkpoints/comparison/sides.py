"""The tensors of one of two checkpoints, by every name that the other may use for them."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

from quantcore.checkpoints.ggml.names import GgufNames, without_expert
from quantcore.checkpoints.protocol.release import Refused, Release
from quantcore.checkpoints.statement import Problem, named
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.granularity import Shape

Key = tuple[str, int | None]  # a name that both checkpoints may use, and the index of an expert
SideName = Literal["original", "other"]
# last names of the stored tensors that make up a weight, to find its name when their shard is missing
_OF_WEIGHT = re.compile(
    r"\.(qweight|qzeros|scales|g_idx|weight_packed|weight_scale|weight_shape|weight_zero_point)$"
)

_MIXTRAL = re.compile(r"(\.experts\.\d+\.)w([123])(?=\.)")
_OF_MIXTRAL = {"1": "gate_proj", "2": "down_proj", "3": "up_proj"}
_GPT_OSS_BIAS = re.compile(r"(?<=_proj)_bias$")  # of all experts, beside the stack of their matrices


class Opened(Protocol):
    """The part of `Checkpoint` that a comparison needs."""

    @property
    def tensors(self) -> Mapping[str, CheckpointTensor]:
        """Its weights by name."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems found while headers were read."""

    @property
    def release(self) -> Release:
        """Its stored tensors and configs."""


@dataclass(frozen=True)
class Unpaired:
    """A tensor that only one of two checkpoints has, or that can't be compared, and why, as a sentence.

    ``kind``: "absent", "shape", "unreadable", "missing" (listed in the index, but not in a file that can be
    read), "activations" (an activation scale), or "buffer" (positions, masks and the like, which no training
    changes).
    """

    side: SideName
    name: str
    kind: str
    reason: str

    @property
    def is_weight(self) -> bool:
        """Whether a weight lacks its partner."""
        return self.kind not in ("activations", "buffer")


def is_gguf(checkpoint: Opened) -> bool:
    """Tell whether a checkpoint uses llama.cpp's names."""
    return "general.architecture" in checkpoint.release.config or any(
        name.startswith("blk.") for name in checkpoint.tensors
    )


@dataclass
class Side:
    """The tensors of one side, by every name that the other side may use for them.

    ``gguf``: the names of GGUF if only the other side has these; ``prefixes``: with those that the other side
    has in their place; ``taken``: the tensors that have a partner.
    """

    name: SideName
    checkpoint: Opened
    gguf: GgufNames | None = None
    prefixes: Sequence[tuple[str, str]] = ()
    taken: set[str] = field(default_factory=set)

    def keys_of(self, name: str) -> list[Key]:
        """Return the names that both sides may use for a tensor, the most likely first."""
        names = dict.fromkeys((name, as_expert(name)))
        found: list[Key] = [(n, None) for n in names]
        if self.gguf is not None:
            found += [key for n in names for key in self.gguf.of_name(n)]
        for mine, common in self.prefixes:
            found += [(common + n[len(mine) :], None) for n in names if n.startswith(mine)]
        experts = [without_expert(key) for key, expert in found if expert is None]
        # in transformers, a stack of experts is a parameter, not the weight of a module
        found += [
            *experts, *((key.removesuffix(".weight"), e) for key, e in experts if ".experts." in key)
        ]  # fmt: skip
        return list(dict.fromkeys(found))

    @cached_property
    def unreadable(self) -> dict[str, str]:
        """Why tensors can't be read, by name."""
        found = {}
        for name, tensor in self.checkpoint.tensors.items():
            try:
                if isinstance(tensor.layout, Refused):
                    found[name] = tensor.layout.reason
                _ = tensor.shape  # in some formats, a stored tensor holds it
            except QuantError as error:
                found[name] = str(error)
        return found

    @cached_property
    def shapes(self) -> dict[str, Shape]:
        """Shapes by name; empty for a tensor that can't be read."""
        return {n: () if n in self.unreadable else t.shape for n, t in self.checkpoint.tensors.items()}

    @cached_property
    def keys(self) -> dict[Key, str]:
        """The name of a tensor by each of its keys."""
        found: dict[Key, str] = {}
        for name in self.checkpoint.tensors:
            for key in self.keys_of(name):
                found.setdefault(key, name)
        return found

    @cached_property
    def missing(self) -> dict[Key, str]:
        """Why a tensor that the index names is missing, by its keys."""
        found: dict[Key, str] = {}
        for problem in self.checkpoint.problems:
            for name in problem.tensors:
                logical = _OF_WEIGHT.sub(".weight", name)
                if logical not in self.checkpoint.tensors:
                    found |= dict.fromkeys(self.keys_of(logical), problem.sentence)
        return found

    def without(self, name: str) -> Unpaired:
        """Return why a tensor can't be read."""
        reason = f"{named(name)} can't be read: {self.unreadable[name]}"
        return Unpaired(self.name, name, "unreadable", reason)


def as_expert(name: str) -> str:
    """Return the usual name of a weight of experts for that of MLX, Mixtral or gpt-oss; others unchanged.

    >>> as_expert("model.layers.0.block_sparse_moe.experts.5.w2.weight")
    'model.layers.0.block_sparse_moe.experts.5.down_proj.weight'
    >>> as_expert("model.layers.0.mlp.experts.gate_up_proj_bias")
    'model.layers.0.mlp.experts.gate_up_proj.bias'
    """
    name = name.replace(".switch_mlp.", ".experts.")
    if ".experts." in name:
        name = _GPT_OSS_BIAS.sub(".bias", name)
    return _MIXTRAL.sub(lambda found: f"{found[1]}{_OF_MIXTRAL[found[2]]}", name)


def sides(original: Opened, other: Opened) -> tuple[Side, Side]:
    """Return the tensors of both sides, each by its names."""
    gguf = (is_gguf(original), is_gguf(other))
    if gguf[0] == gguf[1]:
        prefixes = _prefixes(list(original.tensors), list(other.tensors))
        return Side("original", original), Side("other", other, prefixes=prefixes)
    names = GgufNames.of((original if gguf[0] else other).release.config.get("general.architecture"))
    first, second = (None if own else names for own in gguf)
    return Side("original", original, first), Side("other", other, second)


def _prefixes(original: list[str], other: list[str]) -> list[tuple[str, str]]:
    """Return prefixes of the other's names with the original's in their place, the most frequent first."""
    known, counts = set(original), Counter[tuple[str, str]]()
    tails: dict[str, list[str]] = {}
    for name in original:
        for tail in _tails(name):
            tails.setdefault(tail, []).append(name)
    for name in other:
        if name in known:
            continue
        for tail in _tails(name):
            owners = tails.get(tail, ())
            for owner in owners[:4]:
                counts[name[: len(name) - len(tail)], owner[: len(owner) - len(tail)]] += 1
            if owners:
                break  # the longest tail
    return [prefix for prefix, _ in counts.most_common(4)]


def _tails(name: str) -> Iterator[str]:
    """Yield a name, then the name without its first word, two or three words, while two remain."""
    yield name
    words = name.split(".")
    for n in range(1, min(4, len(words) - 1)):
        yield ".".join(words[n:])
