"""The log: one line for each problem, without the data of visitors.

Tracebacks are cut down to where the error was raised and by whom: their messages may quote what a visitor entered.
"""

import contextlib
import logging
import re
import secrets
import traceback
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

FRAMES = 8  # of the calls that led to an error, the last ones
REQUEST_ID = "x-request-id"
NO_REQUEST = "-"  # of what no visitor asked for, such as the warm-up
_KNOWN_ID = re.compile(r"[0-9a-fA-F-]{8,36}")

log = logging.getLogger("quantscope")


def configure() -> None:
    """Write one line per record, of this app and of the libraries that serve it, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    make = logging.getLogRecordFactory()

    def one_line(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        with contextlib.suppress(TypeError, ValueError):  # of a wrong format the handler complains
            error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            text = " ".join(record.getMessage().split())
            record.msg, record.args, record.exc_info = f"{text} {where(error)}" if error else text, (), None
        return record

    logging.setLogRecordFactory(one_line)


def where(error: BaseException) -> str:
    """The class of an error and the last calls before it, innermost first, and its notes; not its message.

    >>> def divide(): return 1 / 0
    >>> try: divide()
    ... except ZeroDivisionError as error: print(where(error).replace(__file__, "log.py")[:20])
    ZeroDivisionError at
    """
    frames = reversed(traceback.extract_tb(error.__traceback__)[-FRAMES:])
    calls = " < ".join(f"{frame.filename.split('/site-packages/')[-1]}:{frame.lineno} {frame.name}" for frame in frames)
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}{f' at {calls}' if calls else ''}{notes}"


def new_request_id(given: str) -> str:
    """The id that a proxy gave to a request, or a new one."""
    return given if _KNOWN_ID.fullmatch(given) else secrets.token_hex(8)


def report_failure(error: Exception) -> bool:
    """Log a bug that stopped a page, and tell the visitor in one sentence (Streamlit's on_script_error)."""
    request = st.context.headers.get(REQUEST_ID) or NO_REQUEST
    log.error("page=/%s request=%s %s", current_page(), request, where(error))
    st.error(
        f"Quantscope hit a bug of its own here ({type(error).__name__}), and it was logged as {request}. "
        "Your input is kept: change a control to continue, or reload the page."
    )
    return True


def current_page() -> str:
    """The last part of the address of the page that this thread runs; "?" if none."""
    run = get_script_run_ctx(suppress_warning=True)
    if run is None:
        return "?"
    page = run.pages_manager.get_pages().get(run.page_script_hash, {})
    return str(page.get("url_pathname", "?"))
