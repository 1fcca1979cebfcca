"""A file field whose files outlive it: Streamlit forgets the files of a field that a run does not draw."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import DeletedFile

from pages.shared import messages
from quantcore.errors import QuantError

T = TypeVar("T")


@dataclass(frozen=True)
class _Upload(Generic[T]):
    """What was read from the files with these ids; ``problem``: why they can't be read, or empty."""

    ids: tuple[str, ...]
    content: T | None
    problem: str = ""


class FileField(Generic[T]):
    """A file field, and what was read from its files, for the whole session.

    Args:
        name: key of the widget, and prefix of what the session keeps.
        read: what to keep of the files (as st.file_uploader returns them), called once for each upload; may raise
            QuantError.
        named: the files in words, where the field no longer shows them.
        forgotten: called when the visitor has removed the files.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[list[Any]], T],
        named: Callable[[T], str],
        forgotten: Callable[[], None] = lambda: None,
    ) -> None:
        self._name, self._read, self._named, self._forgotten = name, read, named, forgotten
        self._upload, self._lost = f"{name}_content", f"{name}_lost"

    @property
    def content(self) -> T | None:
        """What is kept; None if there are no files, or they can't be read."""
        upload: _Upload[T] | None = st.session_state.get(self._upload)
        return None if upload is None else upload.content

    @property
    def problem(self) -> str:
        """Why the uploaded files can't be read; empty if they can, or if there are none."""
        upload: _Upload[T] | None = st.session_state.get(self._upload)
        return "" if upload is None else upload.problem

    def draw(self, label: str, **options: Any) -> bool:
        """Draw the field, and keep what was just uploaded; return whether that was anything.

        Args:
            options: of st.file_uploader.
        """
        key = self._widget()
        given: Any = st.file_uploader(label, key=key, on_change=self._changed, **options)
        if key == self._name and any(isinstance(file, DeletedFile) for file in _listed(st.session_state.get(key))):
            # uploaded to a replica that is gone: a field that still shows the file would not ask for it
            st.session_state[self._lost] = True
            st.rerun()
        files, upload = _listed(given), st.session_state.get(self._upload)
        ids = tuple(file.file_id for file in files)
        if ids and (upload is None or upload.ids != ids):
            self._take(files, ids)
            return True
        if not ids and upload is not None and upload.content is not None:
            self._draw_name(upload.content)
        return False

    def put(self, content: T) -> None:
        """Keep something that was not uploaded, in place of any files."""
        st.session_state[self._upload] = _Upload((), content)

    def remove(self) -> None:
        """Forget the files (a callback)."""
        self._free(())
        st.session_state.pop(self._upload, None)
        self._forgotten()

    def _widget(self) -> str:
        """Return the key of the widget; another one after files were lost, so that it is empty."""
        return f"{self._name}_again" if self._lost in st.session_state else self._name

    def _changed(self) -> None:
        """Forget the files if the visitor removed them from the field (a callback)."""
        if not st.session_state.get(self._widget()):
            self.remove()

    def _take(self, files: list[Any], ids: tuple[str, ...]) -> None:
        self._free(ids)
        try:
            upload = _Upload(ids, self._read(files))
        except QuantError as error:
            upload = _Upload(ids, None, str(error))
        st.session_state[self._upload] = upload

    def _free(self, keep: tuple[str, ...]) -> None:
        """Make the server forget files, which it would keep if the visitor left the page of the field."""
        context, upload = get_script_run_ctx(), st.session_state.get(self._upload)
        for file_id in upload.ids if upload is not None else ():
            if context is not None and file_id not in keep:
                context.uploaded_file_mgr.remove_file(context.session_id, file_id)  # type: ignore[attr-defined]

    def _draw_name(self, content: T) -> None:
        """Show which files are in use: the widget is empty after a visit to another source or page."""
        row = st.container(horizontal=True, vertical_alignment="center")
        row.markdown(f":material/draft: {messages.plain(self._named(content))}")
        row.button("Remove", on_click=self.remove, key=f"{self._name}_remove", type="tertiary", help="Forget this")


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]
