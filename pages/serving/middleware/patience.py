"""How long the server waits for a request, how much it accepts, and how many connections it can hold.

Uvicorn waits forever for the first byte of a request and for the rest of its head, without a setting.
"""

import asyncio
import resource
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config

# Bytes of a request's line and headers. uvicorn's default is as long as the longest link, so that a longer
# one would be refused silently, or not, depending on the pieces in which it arrives.
MAX_HEAD = 2**17


class Patience:
    """Configure the underlying server when it starts.

    Args:
        app: the application behind this one.
        seconds: time for the head of a request, from when the connection opens or the request begins.
    """

    def __init__(self, app: ASGIApp, seconds: float = 20.0) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; at startup, adapt uvicorn's configuration, which can't be reached elsewhere."""
        if scope["type"] == "lifespan":
            # as many files and connections as the system allows; many systems start at 1,024
            _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            server = getattr(getattr(receive, "__self__", None), "config", None)
            if server is not None:  # else the server is not uvicorn
                server.http_protocol_class = with_deadline(server.http_protocol_class, self.seconds)
                server.h11_max_incomplete_event_size = MAX_HEAD
                # Streamlit refuses larger messages, but only once they have been received
                server.ws_max_size = int(config.get_option("server.maxWidgetStateSize")) << 20
        await self.app(scope, receive, send)


def with_deadline(protocol: type[Any], seconds: float) -> type[Any]:
    """Make a uvicorn protocol close a connection if its request does not arrive within ``seconds``."""

    class Deadline(protocol):  # type: ignore[misc]
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._deadline = self.loop.call_later(seconds, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            answering = self.cycle is not None and not self.cycle.response_complete
            if answering or self.transport.get_protocol() is not self:  # it became a websocket
                self._forget_deadline()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(seconds, self.transport.abort)

        def connection_lost(self, error: Exception | None) -> None:
            self._forget_deadline()
            super().connection_lost(error)

        def _forget_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return Deadline
