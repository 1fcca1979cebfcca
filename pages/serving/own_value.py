"""A widget looks up its own value in the session, instead of gathering the values of all widgets.

Streamlit's lists, fields and numbers each ask for the whole session as a dict, to see whether it holds None
under their key: on a page with fifty controls, a fifth of the run. What they get here answers the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from streamlit.runtime.state.safe_session_state import SafeSessionState

_gathered = SafeSessionState.filtered_state


def look_up_single_values() -> None:
    """Let all sessions answer with what is asked for, rather than with everything."""
    SafeSessionState.filtered_state = property(SessionValues)  # type: ignore[method-assign, assignment]


class SessionValues(Mapping[str, Any]):
    """The values of a session by key, as Streamlit's own dict has them; gathered if all are asked for."""

    def __init__(self, state: SafeSessionState) -> None:
        self._state = state

    def __getitem__(self, key: str) -> Any:
        with self._state._lock:
            return self._state._state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, Any]:
        return dict(_gathered.__get__(self._state))
