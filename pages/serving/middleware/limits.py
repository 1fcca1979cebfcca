"""Limits for anonymous visitors, wide enough for a class behind one address.

On what each address opens, and on uploads, per open page, in total, and in time.

The underlying server already limits a request's head (see patience.py), one upload (server.maxUploadSize),
one message of a visitor (server.maxWidgetStateSize), and sessions kept after a disconnect (128).
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.runtime import get_instance

from pages.serving.metrics import REFUSED
from pages.serving.network import network
from pages.serving.settings import upload_limit

CLOSED = "/_stcore/metrics"  # Streamlit's own, open to everybody and costly to compute
MAX_LINK = 2**16  # characters after the host; browsers and proxies accept little more
TRY_AGAIN_LATER = 1013  # the code that closes a websocket; the page does try again, less and less often
ROUTE = "/_stcore/upload_file/"  # followed by the session and the file
MB = 10**6
_MOST_ADDRESSES = 10_000


@dataclass
class Rate:
    """How often each address may do something: ``burst`` times at once, and ``per_second`` on average."""

    burst: float
    per_second: float
    _used: dict[str, tuple[float, float]] = field(default_factory=dict)  # address: how much, and when

    def allows(self, address: str, now: float | None = None) -> bool:
        """Tell whether it may do so now; if so, this counts."""
        now = time.monotonic() if now is None else now
        if len(self._used) >= _MOST_ADDRESSES:
            self._used = {other: last for other, last in self._used.items() if self._left(last, now)}
        used = self._left(self._used.get(address, (0.0, now)), now)
        allowed = used + 1 <= self.burst
        self._used[address] = used + allowed, now
        return allowed

    def _left(self, last: tuple[float, float], now: float) -> float:
        """Return how much of what was used then still counts."""
        used, then = last
        return max(0.0, used - (now - then) * self.per_second)


@dataclass(eq=False)
class UploadLimits:
    """Accept files while there is room for them.

    Attributes:
        session_mb: sum of the files that one open page may hold, in MB (10⁶ bytes).
        total_mb: sum of the files that all open pages may hold, in MB.
        idle: seconds without a byte after which an upload is abandoned.
        longest: seconds that an upload may take.
    """

    session_mb: float
    total_mb: float
    idle: float = 30.0
    longest: float = 3600.0
    _arriving: "set[_ArrivingUpload]" = field(default_factory=set, init=False)

    async def receive(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an upload on to ``app``, or respond with why not."""
        session = scope["path"].partition(ROUTE)[2].partition("/")[0]
        length = dict(scope["headers"]).get(b"content-length", b"")
        # an upload of a missing or malformed length may be as long as any
        announced = int(length) if length.isdigit() and len(length) < 16 else upload_limit()
        upload = _ArrivingUpload(self, receive, session, announced)
        if not get_instance().is_active_session(upload.session):
            await app(scope, receive, send)  # which refuses it unread
            return
        problem = self._too_much(upload)
        if not problem:
            self._arriving.add(upload)
            try:
                await app(scope, upload, send)
                return
            except ClientDisconnect:
                problem = upload.problem
            finally:
                self._arriving.remove(upload)
        if problem:  # else the visitor has left
            REFUSED.labels("uploads").inc()
            await PlainTextResponse(problem, 413, {"connection": "close"})(scope, receive, send)

    def held(self) -> int:
        """Return the bytes of all files, including those that are arriving."""
        return sum(_stored().values()) + sum(upload.received for upload in self._arriving)

    def _too_much(self, upload: "_ArrivingUpload") -> str:
        """Return a sentence if page or server would hold too much with this file, else an empty text."""
        others = sum(other.announced for other in self._arriving if other.session == upload.session)
        if _stored().get(upload.session, 0) + others + upload.announced > self.session_mb * MB:
            return f"One page may hold {self.session_mb:g} MB of files: remove one, or reload the page."
        return self.full(self.held() + upload.announced)

    def full(self, held: int) -> str:
        """Return a sentence if the server can't hold so many bytes, else an empty text."""
        if held <= self.total_mb * MB:
            return ""
        return (
            "The server holds as many files as it can: try again in a few minutes, or upload a smaller one."
        )


@dataclass(eq=False)
class _ArrivingUpload:
    """A file of ``announced`` bytes, and ``receive`` of it: it must keep arriving, and there must be room."""

    limits: UploadLimits
    receive: Receive
    session: str
    announced: int
    received: int = 0
    complete: bool = False
    problem: str = ""
    began: float = field(default_factory=time.monotonic)

    async def __call__(self) -> Message:
        if self.complete:  # what follows is the end of the connection, which may take long
            return await self.receive()
        left = min(self.limits.idle, self.began + self.limits.longest - time.monotonic())
        try:
            message = await asyncio.wait_for(self.receive(), left)
        except TimeoutError:
            self.problem = "The upload stalled or took too long: try again."
            return {"type": "http.disconnect"}
        self.received += len(message.get("body", b""))
        self.announced = max(self.announced, self.received)
        self.complete = not message.get("more_body", False)
        self.problem = self.limits.full(self.limits.held())
        return {"type": "http.disconnect"} if self.problem else message


async def _in_time(app: ASGIApp, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
    """Pass a request on, and give it up if its body takes longer than ``seconds`` or its sender leaves."""
    end, complete, late, answered = time.monotonic() + seconds, False, False, False

    async def receive_in_time() -> Message:
        nonlocal complete, late
        if complete:  # what follows is the end of the connection, which may take long
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), end - time.monotonic())
        except TimeoutError:
            late = True
            return {"type": "http.disconnect"}
        complete = not message.get("more_body", False)
        return message

    async def send_noted(message: Message) -> None:
        nonlocal answered
        answered = True
        await send(message)

    try:
        await app(scope, receive_in_time, send_noted)
    except ClientDisconnect:
        if late and not answered:
            REFUSED.labels("bodies").inc()
            problem = f"The request did not arrive within {seconds:g} seconds: try again."
            await PlainTextResponse(problem, 408, {"connection": "close"})(scope, receive, send)


def _stored() -> dict[str, int]:
    """Return the bytes of the files that each session holds."""
    storage = list(get_instance().uploaded_file_mgr.file_storage.items())  # type: ignore[attr-defined]
    return {session: sum(len(file.data) for file in list(files.values())) for session, files in storage}


class Limits:
    """Refuse whatever exceeds the limits.

    Args:
        app: the application that answers everything else.
        uploads: the limits of uploads.
        address_sessions: open pages per address; a third of them may open at once, then a 100th per second.
        body_seconds: for what a request sends after its head, if it is not an upload.
    """

    def __init__(
        self, app: ASGIApp, uploads: UploadLimits, address_sessions: float, body_seconds: float = 20.0
    ) -> None:
        self.app, self.uploads, self.address_sessions = app, uploads, address_sessions
        self.body_seconds = body_seconds
        self._connects = Rate(address_sessions / 3, address_sessions / 100)
        self._sessions = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "http" and (length := _length(scope)) > MAX_LINK:
            REFUSED.labels("links").inc()
            problem = (
                f"This link is too long: it has {length:,} characters after the server's name, and at most "
                f"{MAX_LINK:,} can be opened. Open Quantscope without it, and paste or upload the tensor "
                "there."
            )
            await PlainTextResponse(problem, 414)(scope, receive, send)
        elif scope["type"] == "http" and scope["path"].endswith(CLOSED):
            await PlainTextResponse("Not Found", 404)(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "PUT" and ROUTE in scope["path"]:
            await self.uploads.receive(self.app, scope, receive, send)
        elif scope["type"] == "http":
            await _in_time(self.app, scope, receive, send, self.body_seconds)
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
    """Count the characters of a request's path and parameters."""
    parameters = scope["query_string"]
    return len(scope.get("raw_path") or scope["path"]) + len(parameters) + bool(parameters)
