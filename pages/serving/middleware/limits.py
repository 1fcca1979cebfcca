"""Limits for anonymous visitors, wide enough for a class behind one address.

The underlying server already limits a request's head (see patience.py), one upload (server.maxUploadSize), one message of
a visitor (server.maxWidgetStateSize), and sessions kept after a disconnect (128, for two minutes).
"""

import time
from collections import Counter
from dataclasses import dataclass, field

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pages.serving.metrics import REFUSED
from pages.serving.middleware import uploads
from pages.serving.middleware.uploads import UploadLimits
from pages.serving.network import network

CLOSED = "/_stcore/metrics"  # Streamlit's own, open to everybody and costly to compute
MAX_LINK = 2**16  # characters after the host; browsers and proxies accept little more
TRY_AGAIN_LATER = 1013  # the code that closes a websocket; the page does try again, less and less often
_MOST_ADDRESSES = 10_000


@dataclass
class Rate:
    """How often each address may do something: ``burst`` times at once, and ``per_second`` on average."""

    burst: float
    per_second: float
    _used: dict[str, tuple[float, float]] = field(default_factory=dict)  # address: how much, and when

    def allows(self, address: str, now: float | None = None) -> bool:
        """Whether it may do so now; if so, this counts."""
        now = time.monotonic() if now is None else now
        if len(self._used) >= _MOST_ADDRESSES:
            self._used = {other: last for other, last in self._used.items() if self._left(last, now)}
        used = self._left(self._used.get(address, (0.0, now)), now)
        allowed = used + 1 <= self.burst
        self._used[address] = used + allowed, now
        return allowed

    def _left(self, last: tuple[float, float], now: float) -> float:
        """How much of what was used then still counts."""
        used, then = last
        return max(0.0, used - (now - then) * self.per_second)


class Limits:
    """Refuse whatever exceeds the limits.

    Args:
        app: the application that answers everything else.
        uploads: the limits of uploads.
        address_sessions: open pages per address; a third of them may be opened at once, then a 100th per second.
    """

    def __init__(self, app: ASGIApp, uploads: UploadLimits, address_sessions: float) -> None:
        self.app, self.uploads, self.address_sessions = app, uploads, address_sessions
        self._connects = Rate(address_sessions / 3, address_sessions / 100)
        self._sessions = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http" and (length := _length(scope)) > MAX_LINK:
            REFUSED.labels("links").inc()
            await PlainTextResponse(_too_long(length), 414)(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].endswith(CLOSED):
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "PUT" and uploads.ROUTE in scope["path"]:
            await self.uploads.receive(self.app, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        address = network((scope.get("client") or ("",))[0])
        if self._sessions[address] >= self.address_sessions or not self._connects.allows(address):
            REFUSED.labels("sessions of one address").inc()
            await receive()  # the request to connect
            await send({"type": "websocket.close", "code": TRY_AGAIN_LATER})
            return
        self._sessions[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._sessions[address] -= 1
            self._sessions += Counter()  # forgets addresses without sessions


def _length(scope: Scope) -> int:
    """Characters of a request's path and parameters."""
    parameters = scope["query_string"]
    return len(scope.get("raw_path") or scope["path"]) + len(parameters) + bool(parameters)


def _too_long(length: int) -> str:
    return (
        f"This link is too long: it has {length:,} characters after the server's name, and at most {MAX_LINK:,} can be "
        "opened. Open Quantscope without it, and paste or upload the tensor there."
    )
