"""Runs of one session, with an event loop that is too busy to handle what the first one reports."""

import asyncio
import time

import pytest
from loops import finish
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.proto.WidgetStates_pb2 import WidgetStates
from streamlit.runtime import Runtime, app_session
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.script_data import ScriptData
from streamlit.runtime.scriptrunner import ScriptRunner
from streamlit.runtime.scriptrunner.script_cache import ScriptCache

from pages.serving import in_order

SCRIPT = """
import streamlit as st

@st.fragment
def board():
    st.write("drawn")

left, right = st.columns(2)
with right:
    board()
left.write("last")
"""


@pytest.fixture
def session(tmp_path, monkeypatch):
    async def made():
        return AppSession(
            ScriptData(str(script), False), MemoryUploadedFileManager(""), ScriptCache(), None, {}
        )

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    monkeypatch.setattr(AppSession, "_create_scriptrunner", in_order._begin)
    monkeypatch.setattr(AppSession, "request_rerun", in_order._request)
    monkeypatch.setattr(Runtime, "_instance", _Nothing())
    in_order.keep_runs_in_order()
    return made


class _Nothing:
    """Stands for all that a server has besides."""

    def __getattr__(self, name):
        return _Nothing()

    def __call__(self, *args, **kwargs):
        return _Nothing()


def ended(runner):
    """Wait, as a busy event loop does, until the thread of a run has ended; nothing that it reported is handled."""
    runner._script_thread.join()


async def finished(session):
    """Wait until all runs have ended and what they reported is handled; return where they have drawn."""
    start = time.monotonic()
    while session._scriptrunner is not None or session._state is app_session.AppSessionState.APP_IS_RUNNING:
        assert time.monotonic() < start + 20
        await asyncio.sleep(0.005)
    return [
        tuple(sent.metadata.delta_path) for sent in session._browser_queue._queue if sent.HasField("delta")
    ]


def begun(session, **asked):
    session.request_rerun(ClientState(**asked))


@pytest.mark.parametrize("auto", [True, False])
def test_what_a_run_has_drawn_is_not_lost_when_a_fragment_runs_at_its_end(session, auto):
    async def run():
        mine = await session()
        begun(mine)
        ended(mine._scriptrunner)
        (fragment,) = mine._fragment_storage._fragments
        begun(mine, fragment_id=fragment, is_auto_rerun=auto)
        begun(mine, fragment_id=fragment, is_auto_rerun=auto)
        await asyncio.sleep(3 * in_order.SOON)
        return await finished(mine)

    drawn = finish(run())
    assert drawn
    for number, path in enumerate(drawn):
        assert len(path) == 2 or path[:-1] in drawn[:number]  # each place before what stands in it
    assert {(0, 0, 0, 0), (0, 0, 1, 0)} <= set(drawn)


def test_a_whole_run_does_not_wait(session):
    async def run():
        mine = await session()
        begun(mine)
        first = mine._scriptrunner
        begun(mine)
        second = mine._scriptrunner
        assert second is not first
        ended(first)
        return await finished(mine)

    assert (0, 0, 1, 0) in finish(run())


def test_a_session_that_has_ended_begins_nothing(session):
    async def run():
        mine = await session()
        begun(mine)
        ended(mine._scriptrunner)
        (fragment,) = mine._fragment_storage._fragments
        begun(mine, fragment_id=fragment)
        mine.shutdown()
        await asyncio.sleep(5 * in_order.SOON)
        return mine._scriptrunner

    assert finish(run()) is None


PRESSED = """
import streamlit as st

def press():
    st.session_state.pressed = st.session_state.get("pressed", 0) + 1

st.button("Press", on_click=press)
st.text_input("Text", key="text")
"""


@pytest.mark.parametrize("began", [True, False])
def test_a_press_counts_once_whether_its_run_has_begun_or_not_when_the_next_is_asked_for(
    session, began, tmp_path, monkeypatch
):
    def states(text, pressed):
        widgets = WidgetStates()
        widgets.widgets.add(id=ids[1], string_value=text)
        if pressed:
            widgets.widgets.add(id=ids[0], trigger_value=True)
        return widgets

    async def run():
        mine = await session()
        (tmp_path / "script.py").write_text(PRESSED)
        begun(mine)
        await finished(mine)
        elements = [sent.delta.new_element for sent in mine._browser_queue._queue if sent.HasField("delta")]
        ids.extend([elements[0].button.id, elements[1].text_input.id])
        start = ScriptRunner.start
        if not began:  # on a busy server its thread has not come to its turn
            monkeypatch.setattr(ScriptRunner, "start", lambda runner: None)
        begun(mine, widget_states=states("a", pressed=True))
        first = mine._scriptrunner
        if began:
            ended(first)
        monkeypatch.setattr(ScriptRunner, "start", start)
        begun(mine, widget_states=states("b", pressed=False))
        if not began:
            first.start()  # its turn
            ended(first)
        await finished(mine)
        return mine._session_state

    ids = []
    state = finish(run())
    assert state["pressed"] == 1
    assert state["text"] == "b"
