"""Names and digests of uploaded files, as a link carries them: which files it asks for, and which of them are there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from quantcore.checkpoints import OPENERS, is_inside
from quantcore.errors import QuantError
from quantcore.wording import joined, printable, short

MAX_FILES = 500
MAX_NAME = 255  # characters
EXTENSIONS = (*OPENERS, ".json")
_SEPARATOR = "/"  # no file name contains it
_FILE = re.compile(r"([0-9a-f]{64}):([^/\\]{1,255})")


@dataclass(frozen=True)
class CheckpointFile:
    """An uploaded file: its content, and the content's SHA-256 in hex."""

    data: bytes = field(repr=False)
    sha256: str


def check_name(name: str) -> None:
    """Check the name of an uploaded file.

    Raises:
        QuantError: a file of a checkpoint can't have this name.
    """
    if not is_inside(name) or _SEPARATOR in name or len(name) > MAX_NAME or not name.isprintable():
        raise QuantError(f"{short(name, 120)} is not a plain file name; rename the file.")
    if not name.lower().endswith(EXTENSIONS):
        raise QuantError(
            f"{short(name, 120)} is not a file of a checkpoint; upload {', '.join(EXTENSIONS)} files."
        )


def text_of(files: Mapping[str, str]) -> str:
    """Return the text by which a link asks for files (name -> SHA-256)."""
    return _SEPARATOR.join(f"{digest}:{name}" for name, digest in sorted(files.items()))


def parse(text: str) -> dict[str, str]:
    """Return the files that a link asks for: name -> SHA-256.

    Raises:
        QuantError: the text is not one that `text_of` writes.
    """
    found: dict[str, str] = {}
    for part in text.split(_SEPARATOR) if text else []:
        match = _FILE.fullmatch(part)
        if match is None or match[2] in found or not is_inside(match[2]) or len(found) == MAX_FILES:
            raise QuantError(
                "The link's list of uploaded files is damaged; ask the sender for the link again."
            )
        found[match[2]] = match[1]
    return found


def wanted_of(held: Mapping[str, CheckpointFile], wanted: Mapping[str, str]) -> dict[str, bytes] | None:
    """Return the content of the files that a link asks for, by the names that it gives them; None if one is missing."""
    by_digest = {file.sha256: file.data for file in held.values()}
    if not set(wanted.values()) <= set(by_digest):
        return None
    return {name: by_digest[digest] for name, digest in wanted.items()}


def request(held: Mapping[str, CheckpointFile], wanted: Mapping[str, str]) -> str:
    """Return a sentence that asks for a link's missing files and names any others that were uploaded."""
    there = {file.sha256 for file in held.values()}
    missing = {name: digest for name, digest in wanted.items() if digest not in there}
    others = {name: file.sha256 for name, file in held.items() if file.sha256 not in wanted.values()}
    asked = f"This link shows {named(wanted)}, which it does not carry: upload "
    asked += (
        ("it" if len(wanted) == 1 else "them") if len(missing) == len(wanted) else named(missing) + " too"
    )
    if not others:
        return f"{asked}."
    same = sorted(set(others) & set(missing))
    if same:
        one = len(same) == 1
        has = "has the same name, but is another file" if one else "have the same names, but are other files"
        return f"{asked}. The uploaded {named({name: others[name] for name in same})} {has}."
    return f"{asked}. The uploaded {named(others)} {'is another file' if len(others) == 1 else 'are other files'}."


def named(files: Mapping[str, str], most: int = 3) -> str:
    """Return the names of the first ``most`` files with the start of their digests, and how many more there are."""
    shown = [f"{printable(name, 80)} (SHA-256 {digest[:12]}…)" for name, digest in list(files.items())[:most]]
    rest = len(files) - len(shown)
    return joined([*shown, f"{rest:,} more"] if rest else shown)


def names_of(held: Mapping[str, CheckpointFile]) -> str:
    """Return a short text for files: the first one with tensors, and how many others there are."""
    names = sorted(held, key=lambda name: (name.lower().endswith(".json"), name))
    return printable(names[0], 80) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
