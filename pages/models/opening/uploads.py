"""Checkpoints from uploaded files, which are kept for the whole session; the link carries their names and digests."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import streamlit as st

from pages.models.opening import files
from pages.models.opening.files import CheckpointFile
from pages.models.opening.opened import OpenCheckpoint, Progress, opened
from pages.serving.settings import upload_limit
from pages.shared import messages
from pages.shared.state.file_field import FileField
from quantcore.checkpoints import MemoryFolder
from quantcore.errors import QuantError
from quantcore.wording import short

UPLOAD = "upload:"  # prefix of the address of uploaded files


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
        self._field = FileField(f"_{address}_upload", self._read, files.names_of, self._forget)

    def draw(self) -> list[str]:
        """Draw the file field; return the address that opens the uploaded files, if there are any.

        Call it before the address field is drawn, since new uploads set the address.
        """
        before = _digests(self._held())
        if self._field.draw(
            "Files of one checkpoint",
            accept_multiple_files=True,
            # no types: Streamlit would reject other files with an error of its own; here they get a sentence
            help=f"All files of one checkpoint: shards with their index and config.json, or a GGUF file with any splits. Up to "
            f"{upload_limit() >> 20} MB each; {', '.join(files.EXTENSIONS)}. Nothing in them is ever executed.",
        ):
            # what was just uploaded is opened, unless the link asks for other files than those uploaded before
            asked = self._linked()
            mine = not asked or asked in (st.session_state.get(self._own), files.text_of(before))
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
        asked = files.parse(text)
        if not asked:
            raise NotUploaded("There are no files yet: upload the files of a checkpoint.")
        content = files.wanted_of(held, asked)
        if content is None:
            raise NotUploaded(files.request(held, asked))
        known: tuple[str, OpenCheckpoint] | None = st.session_state.get(self._open)
        if known is None or known[0] != text:
            title = next(iter(asked)) if len(asked) == 1 else f"{len(asked)} uploaded files"
            folder = MemoryFolder(content)
            known = (text, opened(text, title, lambda: (folder, None), progress))
            st.session_state[self._open] = known
        return known[1]

    def named(self) -> str:
        """Return the names and digests of the files that the link asks for."""
        return files.named(self._asked_for())

    def offer_own(self) -> None:
        """Draw a button that opens the uploaded files instead of those that the link asks for."""
        held = self._held()
        if held:
            label = f"Open {files.names_of(held)}"
            st.button(messages.plain(label), on_click=partial(self._use, held), key=f"_{self._address}_other")

    def _held(self) -> dict[str, CheckpointFile]:
        """Return the uploaded files, by name."""
        return self._field.content or {}

    def _read(self, given: Sequence[Any]) -> dict[str, CheckpointFile]:
        """Return the uploaded files by name, without a copy of their bytes in the server's store of uploads.

        Of files with the same name, one that the link asks for is preferred.

        Raises:
            QuantError: there are too many, one is too large or not a file of a checkpoint, or two have one name.
        """
        st.session_state.pop(self._open, None)
        held, asked = dict[str, CheckpointFile](), set(self._asked_for().values())
        if len(given) > files.MAX_FILES:
            raise QuantError(f"There are {len(given):,} files; upload at most {files.MAX_FILES}.")
        for file in given:
            name = PurePath(file.name).name
            files.check_name(name)
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
            return files.parse(self._linked())
        except QuantError:
            return {}

    def _is_chosen(self) -> bool:
        address = st.session_state.get(self._address, st.query_params.get(self._address, "")) or ""
        return str(address).startswith(UPLOAD)

    def _use(self, held: dict[str, CheckpointFile]) -> None:
        """Open these files, and make the link ask for them."""
        st.session_state[self._own] = st.session_state[self._asked] = files.text_of(_digests(held))
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
    return f"{UPLOAD}{files.names_of(held)}"


def _digests(held: dict[str, CheckpointFile]) -> dict[str, str]:
    return {name: file.sha256 for name, file in held.items()}
