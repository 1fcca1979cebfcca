"""GGUF files in parts, ``model-00001-of-00003.gguf``: which belong together, and which are missing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from quantcore.checkpoints.containers.container import Container
from quantcore.checkpoints.files.address import Folder
from quantcore.checkpoints.problem import Problem, named
from quantcore.errors import QuantError
from quantcore.wording import short

MAX_PARTS = 1000
_PART = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def part_of(name: str) -> tuple[str, int, int] | None:
    """Return the name's stem, its part counted from 1, and how many parts there are; None if it names no part.

    Raises:
        QuantError: its part or its number of parts is out of range.
    """
    match = _PART.fullmatch(name)
    if match is None:
        return None
    part, count = int(match["part"]), int(match["count"])
    if not 1 <= part <= count <= MAX_PARTS:
        raise QuantError(
            f"{_quoted(name)} is named part {part:,} of {count:,}, but parts are numbered from 1 to their count, at most "
            f"{MAX_PARTS:,}; correct its name."
        )
    return match["stem"], part, count


def parts(folder: Folder, names: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """Return the files of the model that ``names`` belong to, and a problem for each missing one.

    Raises:
        QuantError: the names belong to several models.
    """
    models = dict.fromkeys((part[0], part[2]) if (part := part_of(name)) else (name, 0) for name in names)
    if len(models) > 1:
        shown = ", ".join(_quoted(stem) for stem, _ in list(models)[:5]) + ", ..." * (len(models) > 5)
        raise QuantError(f"The folder has {len(models)} GGUF models ({shown}); give the file of one.")
    stem, count = next(iter(models))
    if not count:
        return list(names), []
    wanted = [f"{stem}-{i:05}-of-{count:05}.gguf" for i in range(1, count + 1)]
    there = folder.present(wanted) | set(names)
    missing = [name for name in wanted if name not in there]
    return [name for name in wanted if name in there], [
        Problem(
            "missing_shard",
            "error",
            f"The part {_quoted(name)} is missing; download it into the same folder.",
        )
        for name in missing
    ]


def check_part(name: str, metadata: Mapping[str, Any]) -> None:
    """Check that a file's name matches its header.

    Raises:
        QuantError: it is another part, or of another number of parts.
    """
    part = part_of(name)
    count, number = metadata.get("split.count", 0), metadata.get("split.no", 0)
    if type(count) is not int or type(number) is not int:
        raise QuantError(
            f"split.no and split.count of {_quoted(name)} are not integers; split the model again."
        )
    if part is None and count in (0, 1):
        return
    if part is None or (number + 1, count) != part[1:]:
        raise QuantError(
            f"{_quoted(name)} is part {number + 1} of {count}, but its name does not say so; give every part its "
            "original name, such as model-00001-of-00003.gguf."
        )


def check_number(containers: Mapping[str, Container]) -> list[Problem]:
    """Return a problem if all parts together do not have the number of tensors that they claim."""
    claims = {c.metadata.get("split.tensors.count") for c in containers.values()} - {None}
    found = sum(len(c.tensors) for c in containers.values())
    if not claims or claims == {found}:
        return []
    said = " and ".join(
        f"{claim:,}" if isinstance(claim, int) else short(str(claim)) for claim in sorted(claims, key=str)
    )
    sentence = f"The parts hold {found:,} tensors, but claim {said}; download them again."
    return [Problem("missing_tensor", "error", sentence)]


def _quoted(name: str) -> str:
    return named(name)
