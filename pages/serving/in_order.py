"""A fragment's run begins after everything that the last run has drawn is on its way to the browser.

Streamlit gives a fragment a new thread once the last run has ended, and from then on ignores what the old
thread reported and the event loop has not handled yet. On a busy server, and with a timer that asks every
second, a page so loses what it has just drawn, and the browser stops at a fragment whose place it never got
("Cannot set a node at a delta path").
"""

from streamlit.runtime.app_session import AppSession, AppSessionState
from streamlit.runtime.scriptrunner import RerunData, ScriptRunner

SOON = 0.01  # seconds until it is asked again whether all is handled
_begin = AppSession._create_scriptrunner


def keep_runs_in_order() -> None:
    """Let the runs of all sessions wait for the one before."""
    AppSession._create_scriptrunner = _begin_or_wait  # type: ignore[assignment, method-assign]


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
