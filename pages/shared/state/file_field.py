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


@dataclass(frozen=True)
class FileField(Generic[T]):
    """A file field, and what was read from its files, for the whole session.

    Attributes:
        name: key of the widget, and prefix of what the session keeps.
        read: what to keep of the files (as st.file_uploader returns them), called once for each upload; may
            raise QuantError.
        named: the files in words, where the field no longer shows them.
        forgotten: called when the visitor has removed the files.
    """

    name: str
    read: Callable[[list[Any]], T]
    named: Callable[[T], str]
    forgotten: Callable[[], None] = lambda: None

    @property
    def content(self) -> T | None:
        """What is kept; None if there are no files, or they can't be read."""
        return self._known.content

    @property
    def problem(self) -> str:
        """Why the uploaded files can't be read; empty if they can, or if there are none."""
        return self._known.problem

    @property
    def _known(self) -> _Upload[T]:
        found: _Upload[T] = st.session_state.get(f"{self.name}_content") or _Upload((), None)
        return found

    def draw(self, label: str, **options: Any) -> bool:
        """Draw the field, and keep what was just uploaded; return whether that was anything.

        Args:
            options: of st.file_uploader.
        """
        key = self._widget()
        given: Any = st.file_uploader(label, key=key, on_change=self._changed, **options)
        kept = _listed(st.session_state.get(key))
        if any(isinstance(file, DeletedFile) for file in kept):
            # uploaded to a replica that is gone: a field that still shows the file would not ask for it
            self._clear()
            st.rerun()
        files = _listed(given)
        ids = tuple(file.file_id for file in files)
        if ids and self._known.ids != ids:
            self._take(files, ids)
            return True
        if not ids and self.content is not None:  # the widget is empty after another source or page
            row = st.container(horizontal=True, vertical_alignment="center")
            row.markdown(f":material/draft: {messages.plain(self.named(self.content))}")
            remove = f"{self.name}_remove"
            row.button("Remove", on_click=self.remove, key=remove, type="tertiary", help="Forget this")
        return False

    def put(self, content: T | None) -> None:
        """Keep something, or nothing, in place of any files (also for callbacks)."""
        self._free(())
        self._clear()
        st.session_state[f"{self.name}_content"] = _Upload((), content)

    def remove(self) -> None:
        """Forget the files (a callback)."""
        self._free(())
        st.session_state.pop(f"{self.name}_content", None)
        self.forgotten()

    def _widget(self) -> str:
        """Return the key of the widget."""
        number = st.session_state.get(f"{self.name}_number", 0)
        return f"{self.name}_{number}" if number else self.name

    def _clear(self) -> None:
        """Give the widget another key, with which it is empty."""
        st.session_state[f"{self.name}_number"] = st.session_state.get(f"{self.name}_number", 0) + 1

    def _changed(self) -> None:
        """Forget the files if the visitor removed them from the field (a callback)."""
        if not st.session_state.get(self._widget()):
            self.remove()

    def _take(self, files: list[Any], ids: tuple[str, ...]) -> None:
        self._free(ids)
        try:
            upload = _Upload(ids, self.read(files))
        except QuantError as error:
            upload = _Upload(ids, None, str(error))
        st.session_state[f"{self.name}_content"] = upload

    def _free(self, keep: tuple[str, ...]) -> None:
        """Make the server forget files, which it would keep if the visitor left the page of the field."""
        context = get_script_run_ctx()
        for file_id in self._known.ids:
            if context is not None and file_id not in keep:
                context.uploaded_file_mgr.remove_file(context.session_id, file_id)  # type: ignore[attr-defined]


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]
