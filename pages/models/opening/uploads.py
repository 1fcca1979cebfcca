"""Checkpoints from uploaded files, kept for the whole session; the link carries their names and digests."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from typing import Any

import streamlit as st

from pages.models.opening.opened import OpenCheckpoint, Progress, opened
from pages.serving.settings import upload_limit
from pages.shared import messages
from pages.shared.state.file_field import FileField
from quantcore.checkpoints import OPENERS, MemoryFolder, is_inside
from quantcore.errors import QuantError
from quantcore.wording import joined, printable, short

UPLOAD = "upload:"  # prefix of the address of uploaded files
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


class NotUploaded(Exception):
    """The link's files have not been uploaded; the message says which to upload."""


class UploadedFiles:
    """The uploaded files of a slot.

    Args:
        address: key of the control that holds the address.
        asked: key of the parameter that carries names and digests of the files that the link asks for.
    """

    def __init__(self, address: str, asked: str) -> None:
        self._address, self._asked = address, asked
        self._own, self._open = f"_{address}_own", f"_{address}_opened"
        self._field = FileField(f"_{address}_upload", self._read, names_of, self._forget)

    def draw(self) -> list[str]:
        """Draw the file field; return the address that opens the uploaded files, if there are any.

        Call it before the address field is drawn, since new uploads set the address.
        """
        before = _digests(self._held())
        if self._field.draw(
            "Files of one checkpoint",
            accept_multiple_files=True,
            # no types: Streamlit would reject other files with an error of its own; here they get a sentence
            help="All files of one checkpoint: shards with their index and config.json, or a GGUF file with "
            f"any splits. Up to {upload_limit() >> 20} MB each; {', '.join(EXTENSIONS)}. Nothing in them is "
            "ever executed.",
        ):
            # what was just uploaded is opened, unless the link asks for others than those uploaded before
            asked = self._linked()
            mine = not asked or asked in (st.session_state.get(self._own), text_of(before))
            if self._field.problem:
                if not self._is_chosen():
                    st.session_state[self._address] = UPLOAD
            elif mine or not self._is_chosen():
                self._use(self._held())
        # The link carries widget values, so names and digests have a widget, hidden by CSS
        st.text_input("Uploaded files", key=self._asked, bind="query-params", label_visibility="collapsed")
        held = self._held()
        return [_address_of(held)] if held else []

    def open(self, progress: Progress) -> OpenCheckpoint:
        """Open the files that the link asks for; uploading files makes the visitor's own link ask for them.

        Raises:
            NotUploaded: some of them have not been uploaded.
            QuantError: they are not a checkpoint.
        """
        if self._field.problem:
            raise QuantError(self._field.problem)
        held, text = self._held(), st.session_state.get(self._asked) or ""
        asked = parse(text)
        if not asked:
            raise NotUploaded("There are no files yet: upload the files of a checkpoint.")
        content = wanted_of(held, asked)
        if content is None:
            raise NotUploaded(request(held, asked))
        known: tuple[str, OpenCheckpoint] | None = st.session_state.get(self._open)
        if known is None or known[0] != text:
            title = next(iter(asked)) if len(asked) == 1 else f"{len(asked)} uploaded files"
            folder = MemoryFolder(content)
            known = (text, opened(text, title, lambda: (folder, None), progress))
            st.session_state[self._open] = known
        return known[1]

    def named(self) -> str:
        """Return the names and digests of the files that the link asks for."""
        return named(self._asked_for())

    def offer_own(self) -> None:
        """Draw a button that opens the uploaded files instead of those that the link asks for."""
        held = self._held()
        if held:
            label = f"Open {names_of(held)}"
            st.button(messages.plain(label), on_click=partial(self._use, held), key=f"_{self._address}_other")

    def _held(self) -> dict[str, CheckpointFile]:
        """Return the uploaded files, by name."""
        return self._field.content or {}

    def _read(self, given: Sequence[Any]) -> dict[str, CheckpointFile]:
        """Return the uploaded files by name, without a copy of their bytes in the server's store of uploads.

        Of files with the same name, one that the link asks for is preferred.

        Raises:
            QuantError: they are too many, one is too large or of no checkpoint, or two have the same name.
        """
        st.session_state.pop(self._open, None)
        held, asked = dict[str, CheckpointFile](), set(self._asked_for().values())
        if len(given) > MAX_FILES:
            raise QuantError(f"There are {len(given):,} files; upload at most {MAX_FILES}.")
        for file in given:
            name = PurePath(file.name).name
            check_name(name)
            data = file.getvalue()
            if len(data) > upload_limit():
                most = f"{upload_limit() >> 20} MB"
                raise QuantError(f"{short(name, 120)} is larger than {most}, the limit here.")
            new = CheckpointFile(data, hashlib.sha256(data).hexdigest())
            old = held.get(name, new)
            if old.sha256 != new.sha256 and (old.sha256 in asked) == (new.sha256 in asked):
                raise QuantError(f"Two files are named {short(name, 120)}; remove one.")
            held[name] = old if old.sha256 in asked else new
        return held

    def _linked(self) -> str:
        """Return what the link asks for, as text."""
        return str(st.session_state.get(self._asked, st.query_params.get(self._asked, "")) or "")

    def _asked_for(self) -> dict[str, str]:
        """Return the files that the link asks for; none if its list is damaged, which `open` reports."""
        try:
            return parse(self._linked())
        except QuantError:
            return {}

    def _is_chosen(self) -> bool:
        address = st.session_state.get(self._address, st.query_params.get(self._address, "")) or ""
        return str(address).startswith(UPLOAD)

    def _use(self, held: dict[str, CheckpointFile]) -> None:
        """Open these files, and make the link ask for them."""
        st.session_state[self._own] = st.session_state[self._asked] = text_of(_digests(held))
        st.session_state[self._address] = _address_of(held)

    def _forget(self) -> None:
        """Close the removed files; a link from somebody else still asks for its own."""
        if st.session_state.get(self._asked) == st.session_state.get(self._own):
            st.session_state[self._asked] = ""
            if self._is_chosen():
                st.session_state[self._address] = None
        for key in (self._own, self._open):
            st.session_state.pop(key, None)


def _address_of(held: dict[str, CheckpointFile]) -> str:
    return f"{UPLOAD}{names_of(held)}"


def _digests(held: dict[str, CheckpointFile]) -> dict[str, str]:
    return {name: file.sha256 for name, file in held.items()}


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
    """Return the content of the files that a link asks for, by its names for them; None if one is missing."""
    by_digest = {file.sha256: file.data for file in held.values()}
    if not set(wanted.values()) <= set(by_digest):
        return None
    return {name: by_digest[digest] for name, digest in wanted.items()}


def request(held: Mapping[str, CheckpointFile], wanted: Mapping[str, str]) -> str:
    """Return a sentence that asks for a link's missing files and names any others that were uploaded."""
    there = {file.sha256 for file in held.values()}
    missing = {name: digest for name, digest in wanted.items() if digest not in there}
    others = {name: file.sha256 for name, file in held.items() if file.sha256 not in wanted.values()}
    what = "it" if len(wanted) == 1 else "them"
    what = what if len(missing) == len(wanted) else f"{named(missing)} too"
    asked = f"This link shows {named(wanted)}, which it does not carry: upload {what}"
    if not others:
        return f"{asked}."
    same = sorted(set(others) & set(missing))
    if same:
        one = len(same) == 1
        has = "has the same name, but is another file" if one else "have the same names, but are other files"
        return f"{asked}. The uploaded {named({name: others[name] for name in same})} {has}."
    are = "is another file" if len(others) == 1 else "are other files"
    return f"{asked}. The uploaded {named(others)} {are}."


def named(files: Mapping[str, str], most: int = 3) -> str:
    """Return the names of the first ``most`` files with the start of their digests, and how many others."""
    shown = [f"{printable(name, 80)} (SHA-256 {digest[:12]}…)" for name, digest in list(files.items())[:most]]
    rest = len(files) - len(shown)
    return joined([*shown, f"{rest:,} more"] if rest else shown)


def names_of(held: Mapping[str, CheckpointFile]) -> str:
    """Return a short text for files: the first one with tensors, and how many others there are."""
    names = sorted(held, key=lambda name: (name.lower().endswith(".json"), name))
    return printable(names[0], 80) + (f" and {len(names) - 1} more" if len(names) > 1 else "")
