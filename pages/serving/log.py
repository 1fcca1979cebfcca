"""The log: one line per problem, without visitors' data.

Tracebacks are reduced to the class of the error and the calls that led to it: messages may quote a visitor.
"""

import contextlib
import logging
import traceback
from typing import Any

import streamlit as st
from streamlit import config
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.web.server import server_util

from pages.serving import network
from pages.serving.metrics import FAILURES

FRAMES = 8  # calls that are logged for an error, the last ones before it
REQUEST_ID = "x-request-id"
NO_REQUEST = "-"  # for work that no visitor asked for, such as the warm-up

log = logging.getLogger("quantscope")


def configure() -> None:
    """Make every record of this process one line, and write those of this app to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.INFO)
    # A link carries its visitor's tensor, and Streamlit turns the request log on if uvicorn starts the app.
    logging.getLogger("uvicorn.access").disabled = True
    # uvicorn 0.54 calls it an error if a websocket is refused in words, as middleware/origins.py does
    logging.getLogger("uvicorn.error").addFilter(
        lambda record: "without completing handshake" not in record.msg
    )
    make = logging.getLogRecordFactory()

    def one_line(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        with contextlib.suppress(TypeError, ValueError):  # a bad format string: the handler reports it
            error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
            text = " ".join(record.getMessage().split())
            parts = [text, *([run(), where(error)] if error else [])]
            record.msg, record.args, record.exc_info = " ".join(filter(None, parts)), (), None
        return record

    logging.setLogRecordFactory(one_line)


def announce() -> None:
    """Say where the pages are, once they open; Streamlit's message is too early, and asks a web service."""
    if config._server_mode != "starlette-app":  # uvicorn started the app, and says it
        return
    if config.is_manually_set("browser.serverAddress"):
        address = str(config.get_option("browser.serverAddress"))
    else:  # where a browser on this machine finds the app
        address = server_util.get_display_address(config.get_option("server.address") or "localhost")
        address = f"[{address}]" if ":" in address else address
    log.info("The pages are at %s", server_util.get_url(address))
    if not config.is_manually_set("browser.serverAddress"):
        at, own = config.get_option("server.address") or "", network.address_in_network()
        log.info("%s", for_a_class(at, own, network.in_container()))


def for_a_class(served_at: str, own: str | None, contained: bool) -> str:
    """Say at which address a class reaches the pages, or why none does.

    Args:
        served_at: `server.address`; empty if the pages are served at every address.
        own: the address of this machine in its network, if it has one.
        contained: whether it is a container, whose address others do not reach.
    """
    if network.is_loopback(served_at):
        return (
            f"A class opens them only through a proxy on this machine, as they are served at {served_at}; "
            "without one, leave server.address out"
        )
    if contained:
        return "A class opens the address of the machine that runs this container, at the published port"
    if served_at in ("", "0.0.0.0", "::"):
        if own is None:
            return "A class can't open them: this machine is in no network"
        served_at = own
    shown = f"[{served_at}]" if ":" in served_at else served_at
    return f"A class in the same network opens {server_util.get_url(shown)}, unless a firewall is in the way"


def run() -> str:
    """Return the page that this thread runs and the request that asked for it; empty if there is none."""
    page = current_page()
    return f"page={page} request={current_request()}" if page else ""


def where(error: BaseException) -> str:
    """Return an error's class, the last calls before it, innermost first, and its notes; not its message.

    >>> def divide(): return 1 / 0
    >>> try: divide()
    ... except ZeroDivisionError as error: print(where(error).replace(__file__, "log.py")[:20])
    ZeroDivisionError at
    """
    frames = reversed(traceback.extract_tb(error.__traceback__)[-FRAMES:])
    calls = " < ".join(
        f"{frame.filename.split('/site-packages/')[-1]}:{frame.lineno} {frame.name}" for frame in frames
    )
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return f"{type(error).__name__}{f' at {calls}' if calls else ''}{notes}"


def report_failure(error: Exception) -> bool:
    """Count a bug that stopped a page, and tell the visitor (Streamlit's on_script_error; it is logged)."""
    FAILURES.labels(current_page(), type(error).__name__).inc()
    st.error(
        f"Quantscope hit a bug of its own ({type(error).__name__}), logged as {current_request()}. "
        "Your input is kept: change a control to continue, or reload the page."
    )
    return True


def current_request() -> str:
    """Return the id of the request that opened the session of this thread."""
    return st.context.headers.get(REQUEST_ID) or NO_REQUEST


def current_page() -> str:
    """Return the address of the page that this thread runs, without parameters; empty if there is none."""
    context = get_script_run_ctx(suppress_warning=True)
    if context is None:
        return ""
    page = context.pages_manager.get_pages().get(context.page_script_hash)
    return f"/{page.get('url_pathname', '')}" if page else "?"
