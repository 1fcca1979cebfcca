"""What can be opened in the operator's folder, for a menu: a bounded walk that no link leads out of."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import streamlit as st

MOST = 200  # entries of the menu
MAX_SEEN = 20_000  # files and folders visited
MAX_DEPTH = 5
MAX_SECONDS = 0.5
_SINGLE = (".gguf", ".onnx")  # each file is a model; all others in a folder together are one
_TOGETHER = (".safetensors", ".pt", ".pth", ".bin")
_LATER_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_FIRST_PART = re.compile(r"-00001-of-\d{5}\.gguf$")


@st.cache_data(ttl=30, max_entries=4, show_spinner=False)
def checkpoints_in(root: Path) -> list[str]:
    """Return paths below ``root`` that look like checkpoints, sorted, at most `MOST`; none is opened to check.

    Hidden folders, links to folders, and anything deeper than `MAX_DEPTH` are left out.
    """
    found: list[str] = []
    for path in _walk(root):
        found.append(path)
        if len(found) == MOST:
            break
    return sorted(found, key=str.lower)


def _walk(root: Path) -> Iterator[str]:
    left, seen, end = [(root, 0)], 0, time.monotonic() + MAX_SECONDS
    while left and seen < MAX_SEEN and time.monotonic() < end:
        folder, depth = left.pop(0)
        names: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    seen += 1
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH and not entry.name.startswith((".", "__")):
                            left.append((Path(entry.path), depth + 1))
                    elif entry.is_file(follow_symlinks=False) or _is_inside(entry.path, root):
                        names.append(entry.name)
                    if seen == MAX_SEEN:
                        break
        except OSError:  # unreadable, or just deleted
            continue
        yield from (path for path in _of_folder(folder.relative_to(root), names) if path.isprintable())


def _is_inside(link: str, root: Path) -> bool:
    """Tell whether a link leads to a readable file inside, not to itself; the outside is not examined."""
    real = Path(os.path.realpath(link))
    return real.is_relative_to(root) and os.path.isfile(real) and os.access(real, os.R_OK)


def _of_folder(folder: Path, names: list[str]) -> Iterator[str]:
    """Yield the checkpoints that the files of one folder form: the folder itself, single files, or both."""
    single = [
        name
        for name in names
        if name.lower().endswith(_SINGLE) and (_FIRST_PART.search(name) or not _LATER_PART.search(name))
    ]
    together = [name for name in names if name.lower().endswith(_TOGETHER)]
    whole = "config.json" in names or any(name.endswith(".index.json") for name in names)
    if together and whole and folder.parts:
        yield folder.as_posix()
    else:
        single += [name for name in together if name.lower().endswith(".safetensors")]
    yield from ((folder / name).as_posix() for name in single)
