"""The headers of a checkpoint's files, read by names and index, or told by a process that read them."""

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from quantcore.checkpoints.containers import record
from quantcore.checkpoints.containers.gguf import check_number, open_gguf, open_imatrix, parts
from quantcore.checkpoints.containers.onnx import open_onnx
from quantcore.checkpoints.containers.safetensors import (
    INDEX,
    Shards,
    open_safetensors,
    read_configs,
    read_index,
)
from quantcore.checkpoints.containers.stored import Container
from quantcore.checkpoints.containers.torch_zip import open_torch
from quantcore.checkpoints.containers.zipped import open_npy, open_npz
from quantcore.checkpoints.files.address import Folder
from quantcore.checkpoints.statement import NotFound, Problem, named, some
from quantcore.errors import QuantError

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


@dataclass(frozen=True)
class Headers:
    """What the files of a checkpoint say besides their tensors' bytes.

    ``containers``: the headers by file name, of one file at least; ``problems``: what is wrong with files;
    ``config`` and ``quantization``: as in `Release`.
    """

    containers: Mapping[str, Container]
    problems: tuple[Problem, ...]
    config: Mapping[str, Any]
    quantization: Mapping[str, Any]


def read_headers(folder: Folder, name: str | None = None, progress: Progress | None = None) -> Headers:
    """Read the headers of the files that hold tensors, and the configs.

    Args:
        name: the name of a file; if None, the folder's index or all of its files are read.
        progress: called with the number of files read so far and the total.

    Raises:
        QuantError: nothing there can be read.
    """
    containers, problems = _containers(folder, name, progress or (lambda done, of: None))
    described = _described(containers)
    config, quantization = read_configs(folder) if described is None else (described, {})
    return Headers(containers, tuple(problems), config, quantization)


def to_json(headers: Headers) -> dict[str, Any]:
    """Return headers as plain data for JSON."""
    described = _described(headers.containers) is not None
    return {
        "containers": {name: record.to_json(one) for name, one in headers.containers.items()},
        "problems": [[p.kind, p.severity, p.sentence, list(p.tensors), p.cause] for p in headers.problems],
        "config": None if described else record.plain_value(headers.config),
        "quantization": record.plain_value(headers.quantization),
    }


def from_json(data: Any, open_source: record.OpenSource) -> Headers:
    """Return the headers that `to_json` described; nothing of the description is believed.

    Args:
        open_source: returns a file by its name.

    Raises:
        QuantError: the description is not one, or does not fit the files; or ``open_source`` raises it.
    """
    with record.believing_nothing():
        given = record.of_type(data["containers"], dict)
        containers = {record.text(name): record.from_json(one, open_source) for name, one in given.items()}
        problems = tuple(_problem(*fields) for fields in data["problems"])
        described, config = _described(containers), record.real_value(data["config"])
        quantization = record.of_type(record.real_value(data["quantization"]), dict)
        if not containers or (described is None) is (config is None):
            record.refuse()
        return Headers(
            containers,
            problems,
            record.of_type(config, dict) if described is None else described,
            quantization,
        )


def _problem(kind: Any, severity: Any, sentence: Any, tensors: Any, cause: Any) -> Problem:
    if severity not in ("error", "warning", "note"):
        record.refuse()
    return Problem(
        record.text(kind), severity, record.text(sentence), record.texts(tensors), record.text(cause)
    )


def _described(containers: Mapping[str, Container]) -> Mapping[str, Any] | None:
    return next((one.metadata for one in containers.values() if one.is_self_described), None)


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
    """Return a problem for each shard that lacks tensors of the index, and add those of other files."""
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
            sentence = (
                f"The index says that {named(shard)} holds {some(here)}, but {named(file)} does, where it is "
                "read; correct the index."
            )
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


def _opener(name: str) -> Opener:
    try:
        return OPENERS[_extension(name)]
    except KeyError:
        raise NotFound(
            f"{named(name)} is not a file of tensors that can be read; give a file of one of these types: "
            f"{', '.join(OPENERS)}, or a folder."
        ) from None


def _extension(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _preference(index: str) -> tuple[int, str]:
    return (0 if re.match(r"model\.safetensors\.", index) else 1 if ".safetensors." in index else 2), index
