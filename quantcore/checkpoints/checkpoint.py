"""A checkpoint: its weights by logical name, from a file, a folder or a URL."""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, NoReturn

from quantcore.checkpoints.containers.gguf import check_number, open_gguf, open_imatrix, parts
from quantcore.checkpoints.containers.onnx import open_onnx
from quantcore.checkpoints.containers.safetensors import (
    INDEX,
    Shards,
    open_safetensors,
    read_configs,
    read_index,
)
from quantcore.checkpoints.containers.stored import Container, StoredTensor
from quantcore.checkpoints.containers.torch_zip import open_torch
from quantcore.checkpoints.containers.zipped import open_npy, open_npz
from quantcore.checkpoints.files.address import Folder, locate
from quantcore.checkpoints.files.sources import ByteCounter
from quantcore.checkpoints.findings import CheckpointFinding, find
from quantcore.checkpoints.layouts import find_layouts
from quantcore.checkpoints.protocol.release import Refused, Release
from quantcore.checkpoints.statement import NotFound, Problem, named, some
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError
from quantcore.wording import count, megabytes

MAX_TENSORS = 2_000_000

Progress = Callable[[int, int], None]
Opener = Callable[[Folder, str], Container]
# extension -> the function that reads the headers of such a file
OPENERS: dict[str, Opener] = {
    ".safetensors": lambda folder, name: open_safetensors(folder.open(name)),
    **dict.fromkeys((".bin", ".pt", ".pth"), lambda folder, name: open_torch(folder.open(name))),
    ".onnx": open_onnx,
    ".npz": lambda folder, name: open_npz(folder.open(name)),
    ".npy": lambda folder, name: open_npy(folder.open(name)),
    ".gguf": lambda folder, name: open_gguf(folder.open(name)),
    ".imatrix": lambda folder, name: open_imatrix(folder.open(name)),
    ".dat": lambda folder, name: open_imatrix(folder.open(name)),
}


class TensorsByName(dict[str, CheckpointTensor]):
    """Weights by name; a name that is not there is answered with the nearest one."""

    def __missing__(self, name: object) -> NoReturn:
        near = get_close_matches(str(name), self, 1, 0.5)
        hint = f" The nearest name is {named(near[0])}." if near else ""
        raise KeyError(f"There is no tensor {named(str(name))}.{hint}")


@dataclass(frozen=True, repr=False)
class Checkpoint:
    """The weights of a checkpoint; only headers have been read.

    ``format``: that of its quantized weights, such as "gptq", or of its files if no weight is quantized; ``config``:
    config.json, or the metadata of a GGUF file; ``tensors``: by logical name; ``problems``: what is wrong with its
    files; ``counter``: counts the bytes read so far; ``release``: its stored tensors, configs and metadata.
    """

    format: str
    config: Mapping[str, Any]
    tensors: Mapping[str, CheckpointTensor]
    problems: tuple[Problem, ...]
    counter: ByteCounter
    release: Release

    def __repr__(self) -> str:
        size = sum(tensor.num_bytes for tensor in self.tensors.values())
        wrong = f", {count(len(self.problems), 'problem')}" if self.problems else ""
        return f"<Checkpoint: {self.format}, {count(len(self.tensors), 'tensor')}, {megabytes(size)}{wrong}>"

    def as_matrices(self) -> "Checkpoint":
        """Return the same checkpoint with its 1 × 1 convolutions as matrices, [out, in], to be looked at or compared."""
        made = {name: CheckpointTensor(tensor.layout.as_matrix()) for name, tensor in self.tensors.items()}
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

    Raises:
        QuantError: nothing there can be read; one sentence says what is wrong, and where. Problems with single
            shards or weights are listed in `Checkpoint.problems` instead.
    """
    folder, name = (address, name) if isinstance(address, Folder) else locate(address)
    containers, problems = _containers(folder, name, progress or (lambda done, of: None))
    stored, duplicates = _merged(containers)
    described = next((c.metadata for c in containers.values() if c.is_self_described), None)
    config, quantization = read_configs(folder) if described is None else (described, {})
    metadata = {k: v for container in containers.values() for k, v in container.metadata.items()}
    structures = tuple(c.structure for c in containers.values() if c.structure is not None)
    release = Release(stored, config, quantization, metadata, structures)
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
        config,
        TensorsByName({name: CheckpointTensor(layout) for name, layout in layouts.items()}),
        (*problems, *duplicates, *refused),
        folder.counter,
        release,
    )


def _containers(
    folder: Folder, name: str | None, progress: Progress
) -> tuple[dict[str, Container], list[Problem]]:
    """Read the headers of the files that hold tensors."""
    shards: Shards = {}
    wrong: list[Problem] = []
    if name is None:
        indices = [n for n in folder.names if INDEX.match(n)]
        files = [n for n in folder.names if _extension(n) in OPENERS]
        name = min(indices, key=_preference) if indices else None
        # releases often hold the same weights in files of two types
        kinds = {_extension(n) for n in files}
        first = next((kind for kind in OPENERS if kind in kinds), "")
        files = [n for n in files if _extension(n) == first]
    else:
        files = [name]
    if name is not None and INDEX.match(name):
        shards, wrong = read_index(folder, name)
        files = list(shards)
    if not files:
        raise NotFound(
            f"The folder has no file that can be read; give a folder with one of these: {', '.join(OPENERS)}."
        )
    if _extension(files[0]) == ".gguf":
        files, missing = parts(folder, files)
        found, problems = _opened(folder, files, {}, [], progress)
        return found, [*missing, *problems, *([] if missing or problems else check_number(found))]
    return _opened(folder, files, shards, wrong, progress)


def _opened(
    folder: Folder, files: list[str], shards: Shards, problems: list[Problem], progress: Progress
) -> tuple[dict[str, Container], list[Problem]]:
    found: dict[str, Container] = {}

    def attempt(name: str) -> Container | QuantError:
        try:
            return _opener(name)(folder, name)
        except QuantError as error:
            return error

    results = []
    with ThreadPoolExecutor(8) as pool:
        # on a remote file system, each header takes two requests
        mapped = map(attempt, files) if folder.is_near else pool.map(attempt, files)
        try:
            for result in mapped:
                results.append(result)
                progress(len(results), len(files))
        except BaseException:  # the caller no longer waits
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for name, result in zip(files, results, strict=True):
        if isinstance(result, Container):
            found[name] = result
        else:
            problems.append(Problem("unreadable_shard", "error", str(result), shards.get(name, ())))
    if not found:
        alone = results[0] if len(results) == 1 else None
        raise alone if isinstance(alone, QuantError) else QuantError(problems[-1].sentence)
    return found, problems + _against_index(folder, found, shards)


def _against_index(folder: Folder, found: dict[str, Container], shards: Shards) -> list[Problem]:
    """Return a problem for each shard that lacks tensors which the index says it holds; those of other files are added."""
    problems = []
    for shard in tuple(found):
        missing = [t for t in shards.get(shard, ()) if t not in found[shard].tensors]
        if not missing:
            continue
        if any(all(t not in container.tensors for container in found.values()) for t in missing):
            found |= _elsewhere(folder, found, missing)
        places = {t: name for name, container in found.items() for t in missing if t in container.tensors}
        for file in dict.fromkeys(places.values()):
            here = tuple(t for t in missing if places.get(t) == file)
            sentence = f"The index says that {named(shard)} holds {some(here)}, but {named(file)} does, where it is read; correct the index."
            problems.append(Problem("wrong_shard", "error", sentence, here))
        lost = tuple(t for t in missing if t not in places)
        if lost:
            sentence = f"The index says that {named(shard)} holds {some(lost)}, but it does not."
            problems.append(Problem("missing_tensor", "error", sentence, lost))
    return problems


def _elsewhere(folder: Folder, found: Mapping[str, Container], missing: list[str]) -> dict[str, Container]:
    """Return the missing tensors of files that the index does not name."""
    kind = _extension(next(iter(found)))
    others: dict[str, Container] = {}
    for name in folder.names:
        if name not in found and _extension(name) == kind:
            with contextlib.suppress(QuantError):  # a file that nobody asked for
                container = _opener(name)(folder, name)
                tensors = {t: container.tensors[t] for t in missing if t in container.tensors}
                others |= {name: replace(container, tensors=tensors)} if tensors else {}
    return others


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


def _opener(name: str) -> Opener:
    try:
        return OPENERS[_extension(name)]
    except KeyError:
        raise NotFound(
            f"{named(name)} is not a file of tensors that can be read; give a file of one of these types: {', '.join(OPENERS)}, or a folder."
        ) from None


def _extension(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _preference(index: str) -> tuple[int, str]:
    return (0 if re.match(r"model\.safetensors\.", index) else 1 if ".safetensors." in index else 2), index
