"""The runs of a session lose nothing: not what the last one has drawn, and no press that none has begun with.

A fragment's run begins after everything that the last run has drawn is on its way to the browser.

Streamlit gives a fragment a new thread once the last run has ended, and from then on ignores what the old
thread reported and the event loop has not handled yet. On a busy server, and with a timer that asks every
second, a page so loses what it has just drawn, and the browser stops at a fragment whose place it never got
("Cannot set a node at a delta path").

A request for a run of the whole page stops the thread of the one before. If that one had not begun, since the
server is busy, its press of a button or what was pasted would be lost: the new request takes it over.
"""

from streamlit.proto.ClientState_pb2 import ClientState
from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner
from streamlit.runtime.scriptrunner_utils.script_requests import (
    ScriptRequests,
    ScriptRequestType,
    _coalesce_widget_states,
)

SOON = 0.01  # seconds until it is asked again whether all is handled
_begin = AppSession._create_scriptrunner
_request = AppSession.request_rerun


def keep_runs_in_order() -> None:
    """Let the runs of all sessions wait for the one before."""
    AppSession._create_scriptrunner = _begin_or_wait  # type: ignore[assignment, method-assign]
    AppSession.request_rerun = _take_over  # type: ignore[assignment, method-assign]


def _take_over(session: AppSession, client_state: ClientState | None) -> None:
    """Ask for a run; one of the whole page brings the presses of a request that has not begun."""
    runner = session._scriptrunner
    if runner is not None and client_state is not None and not client_state.fragment_id:
        waiting = _withdrawn(runner._requests)
        if waiting is not None:
            merged = _coalesce_widget_states(waiting.widget_states, client_state.widget_states)
            if merged is not None:
                client_state.widget_states.CopyFrom(merged)
    _request(session, client_state)


def _withdrawn(requests: ScriptRequests) -> RerunData | None:
    """Stop a runner; return the request that it has not begun, which it then never does."""
    with requests._lock:
        waiting = requests._rerun_data if requests._state == ScriptRequestType.RERUN else None
        requests._state = ScriptRequestType.STOP
    return waiting


def _begin_or_wait(session: AppSession, data: RerunData) -> None:
    """Begin a run, as soon as the session has released the last one, if that has ended by itself."""
    if session._scriptrunner is None:
        _begin(session, data)
    else:
        session._event_loop.call_later(SOON, _ask_again, session, data, session._scriptrunner)


def _ask_again(session: AppSession, data: RerunData, last: ScriptRunner) -> None:
    now = session._scriptrunner
    if session._state == AppSessionState.SHUTDOWN_REQUESTED:
        return
    another = now if now is not last else None  # has begun meanwhile; a timer asks again anyway
    if another is None or not (data.is_auto_rerun or another.request_rerun(data)):
        _begin_or_wait(session, data)
