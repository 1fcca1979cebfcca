"""An id for every request, and one line in the log for each that fails."""

import re
import secrets

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.serving.log import REQUEST_ID, log, where

_NAME = REQUEST_ID.encode()
_KNOWN_ID = re.compile(r"[0-9a-fA-F-]{8,36}")  # what a proxy may have given


class Requests:
    """Give every request an id, for the log, the response and st.context.headers; log failures in routes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on under its id; if it fails before a response starts, answer with status 500."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        others = [(name, value) for name, value in scope["headers"] if name != _NAME]
        given = dict(scope["headers"]).get(_NAME, b"").decode("latin-1")
        name = given if _KNOWN_ID.fullmatch(given) else secrets.token_hex(8)
        answered = scope["type"] == "websocket"

        async def send_with_id(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                message = {**message, "headers": [*message.get("headers", []), (_NAME, name.encode())]}
            await send(message)

        try:
            await self.app({**scope, "headers": [*others, (_NAME, name.encode())]}, receive, send_with_id)
        except Exception as error:
            error.add_note(f"route=/{scope['path'].split('/')[1][:20]} request={name}")
            if answered:
                raise  # the server closes the connection and logs it
            log.error("A route failed: %s", where(error))
            body = f"Quantscope hit a bug of its own, logged as {name}."
            await PlainTextResponse(body, 500)(scope, receive, send_with_id)
