"""Metrics for Prometheus: visitors, runs and their times by page, refusals, failures, and the process.

Off unless the setting ``metrics`` gives a port; they are served on that port, not by the app.
"""

import hmac
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from google.protobuf.message import DecodeError
from prometheus_client import Counter, Gauge, Histogram, Info, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from pages.serving.activity import VISITORS
from pages.serving.network import is_loopback
from pages.serving.settings import PREFIX, SettingError

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

LOOPBACK = "127.0.0.1"
OTHER = "other"  # the label of pages that are not in the navigation
SHORT = 256  # bytes; the message that ends a run is shorter
HEALTH = "/_stcore/health"  # what programs ask for, not visitors

SESSIONS = Gauge("quantscope_sessions", "Pages that visitors have open")
RUNS = Histogram(
    "quantscope_run_seconds",
    "From a visitor's action to the end of the run, including the wait",
    ["page"],
    buckets=(0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
FAILURES = Counter("quantscope_failures", "Runs that ended with a bug", ["page", "error"])
REFUSED = Counter("quantscope_refused", "Connections, requests and uploads refused by a limit", ["limit"])
_BUILD = Info("quantscope_build", "Versions")
_ENDED = {ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY}
_pages: dict[str, str] = {}  # Streamlit's id of a page: its label


def name_pages(addresses: dict[str, str]) -> None:
    """Register the pages: Streamlit's id of each -> the last part of its address."""
    _pages.update({page: f"/{address}" for page, address in addresses.items()})


def gauge(name: str, text: str, read: Callable[[], float]) -> None:
    """Add a gauge that is read whenever the metrics are requested."""
    Gauge(f"quantscope_{name}", text).set_function(read)


def serve(address: str, token: str = "") -> None:
    """Start to serve the metrics at ``address``, such as ``9100`` or ``0.0.0.0:9100``; nowhere if empty.

    ``token``: what readers must send as ``Authorization: Bearer …``; if it is empty, anyone may read.

    Raises:
        SettingError: the metrics can't be served there, or other machines could read them without a token.
    """
    if not address:
        return
    host, _, port = address.rpartition(":")
    host = host.strip("[]") or LOOPBACK
    if not (token or is_loopback(host)):
        raise SettingError(
            f"{PREFIX}METRICS is {address[:60]!r}, which other machines can reach: set {PREFIX}METRICS_TOKEN "
            "too, the token that readers must send."
        )
    try:

        class Server(ThreadingWSGIServer):
            address_family = socket.getaddrinfo(host, int(port))[0][0]

        httpd = make_server(host, int(port), _guarded(make_wsgi_app(), token), Server, _Silent)
    except (ValueError, OverflowError, OSError) as error:
        raise SettingError(
            f"{PREFIX}METRICS is {address[:60]!r}, where the metrics can't be served ({error}); it must be a "
            "free port, or an address of this machine and a port, such as 9100 or 127.0.0.1:9100."
        ) from error
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    project = Path(__file__).parents[2] / "pyproject.toml"
    own = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]
    _BUILD.info({"version": own, "streamlit": version("streamlit"), "torch": version("torch")})


class _Silent(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the log has one line per problem, and a request for metrics is not one."""


def _guarded(app: "WSGIApplication", token: str) -> "WSGIApplication":
    """Return the application, for readers that send the token."""
    wanted = f"Bearer {token}".encode()

    def guarded(environ: Any, start: Any) -> Iterable[bytes]:
        sent = environ.get("HTTP_AUTHORIZATION", "").encode("latin-1")
        if token and not hmac.compare_digest(sent, wanted):
            start("401 Unauthorized", [("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")])
            return [b"Send the token from the settings: Authorization: Bearer ...\n"]
        return app(environ, start)

    return guarded


class Metrics:
    """Count the sessions and time the runs through their websockets; note when visitors are there."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on unchanged."""
        if scope["type"] != "websocket":
            if scope["type"] == "http" and not scope["path"].endswith(HEALTH):
                VISITORS.seen()
            await self.app(scope, receive, send)
            return
        page, asked = OTHER, 0.0

        async def receive_run() -> Message:
            nonlocal page, asked
            message = await receive()
            asked_for = _page_asked_for(message.get("bytes") or b"")
            if asked_for:
                if not asked:
                    VISITORS.begin()
                page, asked = asked_for, asked or time.perf_counter()
            return message

        async def send_end(message: Message) -> None:
            nonlocal asked
            if asked and _ends_run(message.get("bytes") or b""):
                RUNS.labels(page).observe(time.perf_counter() - asked)
                asked = 0.0
                VISITORS.end()
            await send(message)

        try:
            with SESSIONS.track_inprogress():
                await self.app(scope, receive_run, send_end)
        finally:
            if asked:
                VISITORS.end()


def _page_asked_for(data: bytes) -> str | None:
    """Return the label of the page that a message from a visitor asks to run; None if it asks for no run."""
    try:
        message = BackMsg.FromString(data)
    except DecodeError:  # Streamlit closes the connection
        return None
    if message.WhichOneof("type") != "rerun_script":
        return None
    asked = message.rerun_script
    named = f"/{asked.page_name.strip('/')}"
    return _pages.get(asked.page_script_hash) or (named if named in _pages.values() else OTHER)


def _ends_run(data: bytes) -> bool:
    if not 0 < len(data) < SHORT:
        return False
    message = ForwardMsg.FromString(data)
    return message.WhichOneof("type") == "script_finished" and message.script_finished in _ENDED
