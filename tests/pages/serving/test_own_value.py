"""Widgets that look up their own values see what Streamlit gathers from the whole session, and a run gathers nothing."""

import pytest
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState
from streamlit.testing.v1 import AppTest

from pages.serving import own_value


def page() -> None:
    """Controls that the session has emptied, others, and a value without a widget."""
    import streamlit as st

    for key in ("list", "emptied", "number"):
        st.session_state.setdefault(key, None)
    st.session_state["plain"] = [1, 2]
    st.selectbox("List", ["a", "b"], index=1, key="list")
    st.selectbox("Without a key", ["a", "b"])
    st.text_input("Field", "typed", key="field")
    st.number_input("Number", 0, 9, 3, key="number")
    st.text_input("Emptied", "words", key="emptied")


def seen(at: AppTest) -> list[object]:
    return [*(w.value for kind in (at.selectbox, at.text_input, at.number_input) for w in kind)]


def visit() -> tuple[AppTest, list[list[object]]]:
    at = AppTest.from_function(page).run()
    found = [seen(at)]
    at.selectbox(key="list").select("a").run()
    at.text_input(key="field").input("other").run()
    found.append(seen(at))
    assert not at.exception
    return at, found


def test_widgets_see_what_streamlit_gathers(monkeypatch: pytest.MonkeyPatch) -> None:
    _, usual = visit()
    assert usual == [[None, "a", "typed", None, None], ["a", "a", "other", None, None]]
    monkeypatch.setattr(SafeSessionState, "filtered_state", own_value._gathered)
    own_value.look_up_single_values()
    at, found = visit()
    assert found == usual
    values = own_value.SessionValues(SafeSessionState(at.session_state._state, lambda: None))
    gathered = at.session_state._state.filtered_state
    assert dict(values) == gathered
    assert {"plain", "field", "list"} <= gathered.keys()
    assert all(key in values and values[key] == value for key, value in gathered.items())
    assert "unknown" not in values


def test_a_run_gathers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered, usual = list[int](), SessionState.filtered_state.fget
    monkeypatch.setattr(
        SessionState, "filtered_state", property(lambda state: gathered.append(1) or usual(state))
    )
    monkeypatch.setattr(SafeSessionState, "filtered_state", own_value._gathered)
    visit()
    assert len(gathered) >= 10  # what it is for: once each for each widget
    gathered.clear()
    own_value.look_up_single_values()
    visit()
    assert len(gathered) < 5
