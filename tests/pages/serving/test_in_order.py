"""Runs of one session, with an event loop that is too busy to handle what the first one reports."""

import asyncio
import time

import pytest
from loops import finish
from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime import Runtime, app_session
from streamlit.runtime.app_session import AppSession
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.script_data import ScriptData
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
