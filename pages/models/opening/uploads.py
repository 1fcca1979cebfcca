"""Checkpoints from uploaded files, which are kept for the whole session; the link carries their names and digests."""

import hashlib
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import DeletedFile

from pages.models.opening import files
from pages.models.opening.files import HeldFile
from pages.models.opening.opened import Opened, Progress, opened
from pages.serving.settings import upload_limit
from pages.shared import messages
from quantcore.checkpoints import MemoryFolder
from quantcore.errors import QuantError
from quantcore.wording import short

UPLOAD = "upload:"  # prefix of the address of uploaded files


class NotUploaded(Exception):
    """The link's files have not been uploaded; the message says which to upload."""


class Uploads:
    """The uploaded files of a slot.

    Args:
        address: key of the control that holds the address.
        wanted: key of the parameter that carries names and digests.
    """

    def __init__(self, address: str, wanted: str) -> None:
        self._address, self._wanted = address, wanted
        self._widget, self._again = f"_{address}_upload", f"_{address}_upload_again"
        self._held, self._own = f"_{address}_held", f"_{address}_own"
        self._ids = f"_{address}_ids"
        self._open, self._problem = f"_{address}_opened", f"_{address}_problem"

    def draw(self) -> list[str]:
        """Draw the file field; return the address that opens the uploaded files, if there are any.

        Call it before the address field is drawn, since new uploads set the address.
        """
        given = st.file_uploader(
            "Files of one checkpoint",
            accept_multiple_files=True,
            key=self._key(),
            on_change=self._changed,
            # no types: Streamlit would reject other files with an error of its own; here they get a sentence
            help=f"All files of one checkpoint: shards with their index and config.json, or a GGUF file with any splits. Up to "
            f"{upload_limit() >> 20} MB each; {', '.join(files.EXTENSIONS)}. Nothing in them is ever executed.",
        )
        lost = any(isinstance(file, DeletedFile) for file in st.session_state.get(self._widget) or [])
        if lost and self._again not in st.session_state:
            st.session_state[self._again] = (
                True  # uploaded to a replica that is gone: an empty field asks for them
            )
            st.rerun()
        if given:
            self._take(given)
        held = self.held()
        if held and not given:
            row = st.container(horizontal=True, vertical_alignment="center")
            row.markdown(f":material/draft: {messages.plain(files.names_of(held))}")
            row.button("Remove", on_click=self._remove, key=f"_{self._address}_remove", type="tertiary")
        # The link carries widget values, so names and digests have a widget, hidden by CSS
        st.text_input("Uploaded files", key=self._wanted, bind="query-params", label_visibility="collapsed")
        return [self._own_address(held)] if held else []

    def held(self) -> dict[str, HeldFile]:
        """The uploaded files, by name."""
        found: dict[str, HeldFile] = st.session_state.get(self._held, {})
        return found

    def open(self, progress: Progress) -> Opened:
        """Open the files that the link asks for; uploading files makes the visitor's own link ask for them.

        Raises:
            NotUploaded: some of them have not been uploaded.
            QuantError: they are not a checkpoint.
        """
        problem = st.session_state.get(self._problem)
        if problem:
            raise QuantError(problem)
        held, text = self.held(), st.session_state.get(self._wanted) or ""
        wanted = files.parse(text)
        if not wanted:
            raise NotUploaded("There are no files yet: upload the files of a checkpoint.")
        content = files.wanted_of(held, wanted)
        if content is None:
            raise NotUploaded(files.request(held, wanted))
        known: tuple[str, Opened] | None = st.session_state.get(self._open)
        if known is None or known[0] != text:
            title = next(iter(wanted)) if len(wanted) == 1 else f"{len(wanted)} uploaded files"
            folder = MemoryFolder(content)
            st.session_state[self._open] = known = (
                text,
                opened(text, title, lambda: (folder, None), progress),
            )
        return known[1]

    def named(self) -> str:
        """The names and digests of the files that the link asks for."""
        return files.named(self._asked())

    def offer_own(self) -> None:
        """Draw a button that opens the uploaded files instead of those that the link asks for."""
        held = self.held()
        if held:
            label = f"Open {files.names_of(held)}"
            st.button(messages.plain(label), on_click=partial(self._use, held), key=f"_{self._address}_other")

    def _key(self) -> str:
        return self._again if self._again in st.session_state else self._widget

    def _take(self, given: Sequence[Any]) -> None:
        """Keep what has just been uploaded, and open it unless the link asks for other files."""
        before = self.held()
        ids = tuple(file.file_id for file in given)
        if st.session_state.get(self._ids) == ids:
            return
        self._free(keep=ids)
        st.session_state[self._ids] = ids
        st.session_state[self._held] = {}
        st.session_state.pop(self._open, None)
        try:
            held = _checked(given, set(self._asked().values()))
        except QuantError as error:
            st.session_state[self._problem] = str(error)
            if not self._is_chosen():
                st.session_state[self._address] = UPLOAD
            return
        st.session_state[self._held] = held
        asked = self._linked()
        mine = (
            not asked or asked == st.session_state.get(self._own) or asked == files.text_of(_digests(before))
        )
        if mine or not self._is_chosen():
            self._use(held)

    def _linked(self) -> str:
        """What the link asks for."""
        return str(st.session_state.get(self._wanted, st.query_params.get(self._wanted, "")) or "")

    def _asked(self) -> dict[str, str]:
        """The files that the link asks for; none if its list is damaged, which `open` reports."""
        try:
            return files.parse(self._linked())
        except QuantError:
            return {}

    def _is_chosen(self) -> bool:
        address = st.session_state.get(self._address, st.query_params.get(self._address, "")) or ""
        return str(address).startswith(UPLOAD)

    def _use(self, held: dict[str, HeldFile]) -> None:
        """Open these files, and make the link ask for them."""
        st.session_state[self._own] = st.session_state[self._wanted] = files.text_of(_digests(held))
        st.session_state[self._address] = self._own_address(held)

    def _own_address(self, held: dict[str, HeldFile]) -> str:
        return f"{UPLOAD}{files.names_of(held)}"

    def _changed(self) -> None:
        """Forget the files if the visitor removed them from the field (a callback)."""
        st.session_state.pop(self._problem, None)
        if not st.session_state.get(self._key()):
            self._remove()

    def _free(self, keep: Collection[str] = ()) -> None:
        """Make the server forget files, which it would keep if the visitor left the page of the field."""
        context = get_script_run_ctx()
        for file_id in st.session_state.get(self._ids, ()):
            if context is not None and file_id not in keep:
                context.uploaded_file_mgr.remove_file(context.session_id, file_id)  # type: ignore[attr-defined]

    def _remove(self) -> None:
        """Forget the files (a callback); a link from somebody else still asks for its own."""
        if st.session_state.get(self._wanted) == st.session_state.get(self._own):
            st.session_state[self._wanted] = ""
            if self._is_chosen():
                st.session_state[self._address] = None
        self._free()
        for key in (self._held, self._ids, self._own, self._open, self._problem):
            st.session_state.pop(key, None)


def _digests(held: dict[str, HeldFile]) -> dict[str, str]:
    return {name: file.sha256 for name, file in held.items()}


def _checked(given: Sequence[Any], wanted: set[str]) -> dict[str, HeldFile]:
    """The uploaded files by name; their bytes are shared with the server's store of uploads, not copied.

    Args:
        wanted: SHA-256 of the files that the link asks for: these are preferred to others of the same name.

    Raises:
        QuantError: there are too many, one is too large or not a file of a checkpoint, or two have the same name.
    """
    held: dict[str, HeldFile] = {}
    if len(given) > files.MAX_FILES:
        raise QuantError(f"There are {len(given):,} files; upload at most {files.MAX_FILES}.")
    for file in given:
        name = PurePath(file.name).name
        files.check_name(name)
        data = file.getvalue()
        if len(data) > upload_limit():
            raise QuantError(f"{short(name, 120)} is larger than {upload_limit() >> 20} MB, the limit here.")
        new = HeldFile(data, hashlib.sha256(data).hexdigest())
        old = held.get(name, new)
        if old.sha256 != new.sha256 and (old.sha256 in wanted) == (new.sha256 in wanted):
            raise QuantError(f"Two files are named {short(name, 120)}; remove one.")
        held[name] = old if old.sha256 in wanted else new
    return held
