"""A cookie that tells the proxy which replica a visitor is at.

A session, its uploads and its images exist in one process only, so every request of a page must reach the
same one. The cookie names the replica, not the visitor; deploy/nginx.conf knows the names. A replica that
answers in place of one that is gone puts its own name into the cookie, so that the visitor stays there when
the first one returns.
"""

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.serving.middleware.headers import HTML

COOKIE = "quantscope_replica"
# Follows the name in the cookie of a page in another site's frame, which the websocket's request hides
FRAMED = ".framed"
_FRAMES = {"iframe", "frame", "embed", "object"}


class Affinity:
    """Put the name of this replica into the cookie of every visitor whose page or session it serves.

    Args:
        app: the application behind this one.
        replica: this replica's name; without one no cookie is set.
    """

    def __init__(self, app: ASGIApp, replica: str) -> None:
        self.app, self.replica = app, replica

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; add the cookie to a page or websocket if missing or another replica's."""
        cookie = self._cookie(HTTPConnection(scope)) if self.replica and scope["type"] != "lifespan" else None
        if cookie is None:
            await self.app(scope, receive, send)
            return

        async def send_with_cookie(message: Message) -> None:
            headers = list(message.get("headers", []))
            page = message["type"] == "http.response.start" and (b"content-type", HTML) in headers
            if page or message["type"] == "websocket.accept":
                message = {**message, "headers": [*headers, (b"set-cookie", cookie.encode())]}
            await send(message)

        await self.app(scope, receive, send_with_cookie)

    def _cookie(self, request: HTTPConnection) -> str | None:
        """Return the cookie to set, None if the browser's is right."""
        name, framed, _ = request.cookies.get(COOKIE, "").partition(FRAMED)
        if name == self.replica:
            return None
        frame = request.headers.get("sec-fetch-dest") in _FRAMES
        if framed or (frame and request.headers.get("sec-fetch-site") == "cross-site"):
            # partitioned: browsers that refuse third-party cookies accept those kept for each embedding site
            return f"{COOKIE}={self.replica}{FRAMED}; Path=/; HttpOnly; SameSite=None; Secure; Partitioned"
        secure = "; Secure" if request.scope["scheme"] in ("https", "wss") else ""
        return f"{COOKIE}={self.replica}; Path=/; HttpOnly; SameSite=Lax{secure}"
