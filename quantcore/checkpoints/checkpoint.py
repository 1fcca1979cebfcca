"""A checkpoint: its weights by logical name, from a file, a folder or a URL."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NoReturn

from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.files.address import Folder, locate
from quantcore.checkpoints.files.sources import ByteCounter
from quantcore.checkpoints.findings import CheckpointFinding, find
from quantcore.checkpoints.headers import Headers, Progress, read_headers
from quantcore.checkpoints.layouts import find_layouts
from quantcore.checkpoints.protocol.release import Refused, Release
from quantcore.checkpoints.statement import Problem, named
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.displayed import Displayed
from quantcore.errors import QuantError

MAX_TENSORS = 250_000  # the largest releases have about 180,000


class TensorsByName(dict[str, CheckpointTensor]):
    """Weights by name; a name that is not there is answered with the nearest one."""

    def __missing__(self, name: object) -> NoReturn:
        near = get_close_matches(str(name), self, 1, 0.5)
        hint = f" The nearest name is {named(near[0])}." if near else ""
        raise KeyError(f"There is no tensor {named(str(name))}.{hint}")


@dataclass(frozen=True, repr=False)
class Checkpoint(Displayed):
    """The weights of a checkpoint; only headers have been read.

    ``format``: that of its quantized weights, such as "gptq", or of its files if no weight is quantized;
    ``config``: config.json, or the metadata of a GGUF file;
    ``tensors``: by logical name;
    ``problems``: what is wrong with its files;
    ``counter``: counts the bytes read so far;
    ``release``: its stored tensors, configs and metadata;
    ``address``: where another process can open it; empty if its files are in memory.
    """

    format: str
    config: Mapping[str, Any]
    tensors: Mapping[str, CheckpointTensor]
    problems: tuple[Problem, ...]
    counter: ByteCounter
    release: Release
    address: str = ""

    def as_matrices(self) -> "Checkpoint":
        """Return the same checkpoint with its 1 × 1 convolutions as matrices, [out, in]."""
        made = {name: CheckpointTensor(tensor.record.as_matrix()) for name, tensor in self.tensors.items()}
        return replace(self, tensors=TensorsByName(made))

    def findings(self, against: "Checkpoint | None" = None) -> list[CheckpointFinding]:
        """Return what is wrong or suspicious, the worst first; reads all weights, in boxes of rows.

        `findings.steps` does the same step by step, so that progress can be shown or the check stopped.

        Args:
            against: the checkpoint that this one was quantized from; weights are paired by name.
        """
        return find(self, against)


def open_checkpoint(
    address: "str | os.PathLike[str] | Folder", name: str | None = None, *, progress: Progress | None = None
) -> Checkpoint:
    """Open a checkpoint and read its headers.

    Args:
        address: a file, a folder (with shards and their index), any fsspec URL of one, or a `Folder`.
        name: the name of a file in a `Folder`; if None, the folder's index or all of its files are read.
        progress: called with the number of files read so far and the total.

    >>> from quantcore.checkpoints import EXAMPLES
    >>> checkpoint = open_checkpoint(EXAMPLES["minilm-gptq"])
    >>> weight = checkpoint.tensors["encoder.layer.0.output.dense.weight"]
    >>> weight.shape, weight.storage
    ((384, 1536), 'gptq int4 per_group(128) symmetric')
    >>> weight.read(slice(0, 2))[:, :3]
    tensor([[ 0.0220,  0.0220,  0.0220],
            [ 0.0000,  0.0000, -0.1046]])

    Raises:
        QuantError: nothing there can be read; one sentence says what is wrong, and where. Problems with
            single shards or weights are listed in `Checkpoint.problems` instead.
    """
    folder, name = (address, name) if isinstance(address, Folder) else locate(address)
    return assemble(read_headers(folder, name, progress), folder.counter, folder.place(name))


def assemble(headers: Headers, counter: ByteCounter, address: str = "") -> Checkpoint:
    """Return the checkpoint of headers that have been read, here or in another process.

    Args:
        counter: counts the bytes read from its files.
        address: as in `Checkpoint`.

    Raises:
        QuantError: the headers can't be used together.
    """
    containers = headers.containers
    stored, duplicates = _merged(containers)
    metadata = {k: v for container in containers.values() for k, v in container.metadata.items()}
    structures = tuple(c.structure for c in containers.values() if c.structure is not None)
    release = Release(stored, headers.config, headers.quantization, metadata, structures)
    layouts = find_layouts(release)
    refused = tuple(
        Problem("unreadable_tensor", "error", layout.reason, (layout.name,), layout.cause)
        for layout in layouts.values()
        if isinstance(layout, Refused)
    )
    readable = [layout for layout in layouts.values() if not isinstance(layout, Refused)]
    kinds = [layout.format_name for layout in readable if not layout.is_plain]
    fallback = next(iter(containers)).rpartition(".")[2]
    return Checkpoint(
        max(set(kinds), key=kinds.count) if kinds else fallback,
        headers.config,
        TensorsByName({name: CheckpointTensor(layout) for name, layout in layouts.items()}),
        (*headers.problems, *duplicates, *refused),
        counter,
        release,
        address,
    )


def _merged(containers: Mapping[str, Container]) -> tuple[dict[str, StoredTensor], list[Problem]]:
    """Return the stored tensors of all files; if two have the same name, the first is used."""
    stored: dict[str, StoredTensor] = {}
    problems = []
    for container in containers.values():
        for name, piece in container.tensors.items():
            if name in stored:
                sentence = (
                    f"The tensor {named(name)} is a duplicate: it is in {named(stored[name].source.name)} "
                    f"and in {named(piece.source.name)}; the first is read."
                )
                problems.append(Problem("duplicate_tensor", "error", sentence, (name,)))
            else:
                stored[name] = piece
        if len(stored) > MAX_TENSORS:
            raise QuantError(f"The checkpoint has more than {MAX_TENSORS:,} tensors; open fewer files.")
    return stored, problems
