"""Our scripts, and what previews of a link show, in the head of every page that the server sends."""

from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.browser.scripts import in_head, serve_in_head
from pages.serving.middleware import preview
from pages.serving.middleware.headers import HTML, POLICY, content_security_policy

# Request headers that make the response empty or compressed, and response headers about the unmodified file
CONDITIONS = {b"if-none-match", b"if-modified-since", b"accept-encoding"}
OF_THE_FILE = {b"etag", b"last-modified", b"content-length"}


class Opening(NamedTuple):
    """What a link opens.

    Attributes:
        title: of the page.
        sidebar: whether the page opens with one; None if that is folded.
        maps: whether it opens with maps alone, for which the page must load plotly.js.
    """

    title: str
    sidebar: bool | None
    maps: bool


class Pages:
    """Insert our scripts into the head of every page.

    Conditional requests are made unconditional: Streamlit's file does not change with our scripts, so a browser would
    keep a cached page without them, or with old ones.

    Args:
        app: the application behind this one.
        opens: what a link opens, by the last part of its path and its parameters.
    """

    def __init__(self, app: ASGIApp, opens: Callable[[str, dict[str, list[str]]], Opening]) -> None:
        self.app, self.opens = app, opens
        serve_in_head()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; hold back the headers of a page until its body arrives."""
        start: Message | None = None

        async def send_with_scripts(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_streamlits(message["headers"]):
                start = message
                return
            if start is not None:
                query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
                opening = self.opens(scope["path"].rpartition("/")[2], query)
                tags = preview.tags(opening.title, scope)
                page = in_head(message.get("body", b""), opening.sidebar, tags)
                headers = [(name, value) for name, value in start["headers"] if name not in OF_THE_FILE]
                policy = content_security_policy(page, dict(scope["headers"]).get(b"host", b""))
                headers.append((POLICY, policy))
                if opening.maps:
                    # the largest file, which the maps would otherwise request only when they are drawn
                    headers.append((b"link", b"<vendor/plotly.min.js>; rel=preload; as=script"))
                await send({**start, "headers": headers})
                start, message = None, {**message, "body": page}
            await send(message)

        if scope["type"] != "http" or "." in scope["path"].rpartition("/")[2]:
            await self.app(scope, receive, send)
            return
        asked = [(name, value) for name, value in scope["headers"] if name not in CONDITIONS]
        await self.app({**scope, "headers": asked}, receive, send_with_scripts)


def _is_streamlits(headers: list[tuple[bytes, bytes]]) -> bool:
    """Tell whether a response is a page of Streamlit's; one that has a policy of its own is complete."""
    return (b"content-type", HTML) in headers and all(name != POLICY for name, _ in headers)
