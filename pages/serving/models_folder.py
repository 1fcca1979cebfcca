"""The folder whose checkpoints visitors may open: how a typed path is resolved in it, and what a menu offers.

Nothing outside it is opened, listed, or revealed to exist: paths are checked as text before the file system
is asked, and then part by part, so that no link leads out, not even to come back in.
"""

import functools
import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from pages.serving import settings
from pages.serving.network import is_loopback
from pages.serving.settings import OFF, PREFIX, SettingError, Settings
from quantcore.errors import QuantError
from quantcore.wording import short

if TYPE_CHECKING:  # imported where a checkpoint is opened; the server starts without
    from quantcore.checkpoints import LocalFolder, NotFound

MAX_CHARACTERS = 4096
MOST = 200  # entries of the menu
MAX_SEEN = 20_000  # files and folders visited
MAX_DEPTH = 5
MAX_SECONDS = 0.5
_SINGLE = (".gguf", ".onnx")  # each file is a model; all others in a folder together are one
_TOGETHER = (".safetensors", ".pt", ".pth", ".bin")
_LATER_PART = re.compile(r"-(?!00001-)\d{5}-of-\d{5}\.gguf$")


@functools.cache  # once, when the app starts: a visitor must not be told its path if it is gone later
def chosen_by(options: Settings) -> Path | None:
    """Return the folder of these settings; None if they name none.

    Raises:
        SettingError: it is not a folder.
    """
    if not options.models or options.models.lower() == OFF:
        return None
    path = Path(os.path.expanduser(options.models))
    if not os.path.isdir(path):
        raise SettingError(
            f"{PREFIX}MODELS is {options.models[:200]!r}, which is not a folder; it must be one, or {OFF}."
        )
    return path.resolve()


def current() -> Path | None:
    """Return the folder that the visitor of this run may open; None if there is none.

    Raises:
        SettingError: as `chosen_by`.
    """
    options = settings.current()
    if options.models or options.replica or not _is_at_this_machine():
        return chosen_by(options)
    return Path.cwd()


def _is_at_this_machine() -> bool:
    """Tell whether the server listens on loopback addresses only, and the visitor came without a proxy."""
    asked = st.context.headers
    host = re.sub(r":\d+$", "", asked.get("Host") or "").strip("[]")
    forwarded = any(asked.get(name) for name in ("X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via"))
    return (
        is_loopback(st.get_option("server.address") or "")
        and is_loopback(host)
        and is_loopback(st.context.ip_address or "localhost")
        and not forwarded
    )


def confined(root: Path, typed: str) -> "tuple[LocalFolder, str | None]":
    """Return the folder of a path below ``root``, and the name of the file if it is one.

    Args:
        root: the folder of the operator, resolved.
        typed: a path relative to it, or an absolute one inside it.

    Raises:
        QuantError: it leads outside, or nothing is there.
    """
    from quantcore.checkpoints import LocalFolder

    relative = _relative(root, typed)
    here = root
    for part in relative.split("/") if relative else []:
        here = here / part
        try:
            real = Path(os.path.realpath(here))
        except ValueError:  # characters that no file name can contain
            raise _not_found(typed) from None
        if not real.is_relative_to(root):
            raise _outside(typed)
        if not os.path.lexists(here):
            raise _not_found(typed)
    if os.path.isdir(here):
        return LocalFolder(here, within=root), None
    if os.path.isfile(here):
        return LocalFolder(here.parent, within=root), here.name
    raise _not_found(typed)


def _relative(root: Path, typed: str) -> str:
    """Return the path relative to the folder, judged as text alone."""
    from quantcore.checkpoints import is_inside

    if len(typed) > MAX_CHARACTERS:
        raise QuantError(f"The path has {len(typed):,} characters; give one with at most {MAX_CHARACTERS:,}.")
    text = typed.strip()
    if text.startswith("/"):
        inside = f"{str(root).rstrip('/')}/"
        if not f"{text}/".startswith(inside):
            raise _outside(typed)
        text = text[len(inside) :]
    text = re.sub("/+", "/", text.rstrip("/")).removeprefix("./")
    if text not in ("", ".") and not is_inside(text):
        raise _outside(typed)
    return "" if text == "." else text


def _outside(typed: str) -> QuantError:
    return QuantError(
        f"{short(typed, 120)} is not a path inside the folder whose models this server may open; give a path "
        'relative to that folder, without ".." or links that leave it.'
    )


def _not_found(typed: str) -> "NotFound":
    from quantcore.checkpoints import NotFound

    return NotFound(
        f"There is no file or folder {short(typed, 120)} in the folder whose models this server may open; "
        "check the path."
    )


@st.cache_data(ttl=30, max_entries=4, show_spinner=False)
def checkpoints_in(root: Path) -> list[str]:
    """Return at most `MOST` paths below ``root`` that look like checkpoints, sorted; none is opened.

    Hidden folders, links to folders, and anything deeper than `MAX_DEPTH` are left out.
    """
    return sorted(islice(_walk(root), MOST), key=str.lower)


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
                    elif entry.is_file(follow_symlinks=False) or _leads_inside(entry.path, root):
                        names.append(entry.name)
                    if seen == MAX_SEEN:
                        break
        except OSError:  # unreadable, or just deleted
            continue
        yield from (path for path in _of_folder(folder.relative_to(root), names) if path.isprintable())


def _leads_inside(link: str, root: Path) -> bool:
    """Tell whether a link leads to a readable file inside, not to itself; the outside is not examined."""
    real = Path(os.path.realpath(link))
    return real.is_relative_to(root) and os.path.isfile(real) and os.access(real, os.R_OK)


def _of_folder(folder: Path, names: list[str]) -> Iterator[str]:
    """Yield the checkpoints that the files of one folder form: the folder itself, single files, or both."""
    single = [name for name in names if name.lower().endswith(_SINGLE) and not _LATER_PART.search(name)]
    together = [name for name in names if name.lower().endswith(_TOGETHER)]
    whole = "config.json" in names or any(name.endswith(".index.json") for name in names)
    if together and whole and folder.parts:
        yield folder.as_posix()
    else:
        single += [name for name in together if name.lower().endswith(".safetensors")]
    yield from ((folder / name).as_posix() for name in single)
