"""Limits on uploads in addition to that on one file (server.maxUploadSize): per open page, in total, and in time."""

import asyncio
import time
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.runtime import get_instance

from pages.serving.metrics import REFUSED

ROUTE = "/_stcore/upload_file/"  # followed by the session and the file
MB = 10**6


@dataclass(eq=False)
class _ArrivingUpload:
    session: str
    announced: int
    received: int = 0


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

    def __post_init__(self) -> None:
        self._arriving = set[_ArrivingUpload]()

    async def receive(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an upload on to ``app``, or respond with why not."""
        upload = _ArrivingUpload(scope["path"].partition(ROUTE)[2].partition("/")[0], _announced(scope))
        if not get_instance().is_active_session(upload.session):
            await app(scope, receive, send)  # which refuses it unread
            return
        problem = self._too_much(upload)
        if not problem:
            self._arriving.add(upload)
            try:
                await app(scope, bounded := _Bounded(self, upload, receive), send)
                return
            except ClientDisconnect:
                problem = bounded.problem
            finally:
                self._arriving.remove(upload)
        if problem:  # else the visitor has left
            REFUSED.labels("uploads").inc()
            await PlainTextResponse(problem, 413, {"connection": "close"})(scope, receive, send)

    def held(self) -> int:
        """Bytes of all files, including those that are arriving."""
        return sum(_stored().values()) + sum(upload.received for upload in self._arriving)

    def _too_much(self, upload: _ArrivingUpload) -> str:
        """A sentence if the page or the server would hold too much with this file, else an empty text."""
        others = sum(other.announced for other in self._arriving if other.session == upload.session)
        if _stored().get(upload.session, 0) + others + upload.announced > self.session_mb * MB:
            return f"One page may hold {self.session_mb:g} MB of files: remove one, or reload the page."
        return self.full(self.held() + upload.announced)

    def full(self, held: int) -> str:
        """A sentence if the server can't hold so many bytes, else an empty text."""
        if held <= self.total_mb * MB:
            return ""
        return (
            "The server holds as many files as it can: try again in a few minutes, or upload a smaller one."
        )


class _Bounded:
    """``receive`` of a body that must keep arriving, and for which there must be room."""

    def __init__(self, uploads: UploadLimits, upload: _ArrivingUpload, receive: Receive) -> None:
        self._uploads, self._upload, self._receive = uploads, upload, receive
        self._end, self._complete = time.monotonic() + uploads.longest, False
        self.problem = ""

    async def __call__(self) -> Message:
        if self._complete:  # what follows is the end of the connection, which may take long
            return await self._receive()
        left = min(self._uploads.idle, self._end - time.monotonic())
        try:
            message = await asyncio.wait_for(self._receive(), left)
        except TimeoutError:
            self.problem = "The upload stalled or took too long: try again."
            return {"type": "http.disconnect"}
        self._upload.received += len(message.get("body", b""))
        self._upload.announced = max(self._upload.announced, self._upload.received)
        self._complete = not message.get("more_body", False)
        self.problem = self._uploads.full(self._uploads.held())
        return {"type": "http.disconnect"} if self.problem else message


def _announced(scope: Scope) -> int:
    """The length that a request announces; the limit of one file if it announces none or a malformed one."""
    length = dict(scope["headers"]).get(b"content-length", b"")
    return (
        int(length)
        if length.isdigit() and len(length) < 16
        else int(config.get_option("server.maxUploadSize")) << 20
    )


def _stored() -> dict[str, int]:
    """Bytes of the files that each session holds."""
    storage = get_instance().uploaded_file_mgr.file_storage  # type: ignore[attr-defined]
    return {
        session: sum(len(file.data) for file in list(files.values()))
        for session, files in list(storage.items())
    }
