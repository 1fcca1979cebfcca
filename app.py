"""Entry point of `streamlit run app.py`: warm-up, the route for plotly.js, response headers."""

import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import plotly
import streamlit as st
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PLOTLY_JS = Path(plotly.__file__).parent / "package_data"
HTML = b"text/html; charset=utf-8"
# Request headers that make the response empty or compressed, and response headers about the unmodified file
CONDITIONS = {b"if-none-match", b"if-modified-since", b"accept-encoding"}
OF_THE_FILE = {b"etag", b"last-modified", b"content-length"}
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    # Sites that may embed the app; see README.md, "Hosting".
    (
        b"content-security-policy",
        b"frame-ancestors 'self' https://*.streamlit.app https://*.hf.space https://huggingface.co",
    ),
]


class Pages:
    """Insert our scripts into the head of every page.

    Conditional requests are made unconditional: Streamlit's file does not change with our scripts, so a browser would
    keep a cached page without them, or with old ones.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; hold back the headers of a page until its body arrives."""
        from pages.browser.scripts import in_head

        start: Message | None = None

        async def send_with_scripts(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and (b"content-type", HTML) in message["headers"]:
                start = message
                return
            if start is not None:
                headers = [(name, value) for name, value in start["headers"] if name not in OF_THE_FILE]
                await send({**start, "headers": headers})
                start, message = None, {**message, "body": in_head(message.get("body", b""))}
            await send(message)

        if scope["type"] != "http" or "." in scope["path"].rpartition("/")[2]:
            await self.app(scope, receive, send)
            return
        asked = [(name, value) for name, value in scope["headers"] if name not in CONDITIONS]
        await self.app({**scope, "headers": asked}, receive, send_with_scripts)


class SecurityHeaders:
    """Add HEADERS to every HTTP response, and let the browser cache plotly.js."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; change only the headers of its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), *HEADERS]
                if "/vendor/" in scope["path"]:
                    headers.append((b"cache-control", b"public, max-age=86400"))
                elif (b"content-type", HTML) in headers:
                    # the largest file, which the maps would otherwise request only when they are drawn
                    headers.append((b"link", b"<vendor/plotly.min.js>; rel=preload; as=script"))
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)


@asynccontextmanager
async def lifespan(app: st.App) -> AsyncIterator[dict[str, Any]]:
    """Import and draw once before the first visitor; then exempt what stays from garbage collection."""
    from pages.shared.warm import warm_up

    warm_up()
    gc.collect()
    gc.freeze()
    yield {}


def report_failure(error: Exception) -> bool:
    """Log a bug with its traceback, and tell the visitor in one sentence."""
    logging.getLogger("quantscope").exception("A page failed", exc_info=error)
    st.error(
        f"Quantscope hit a bug of its own here ({type(error).__name__}), and it was logged. "
        "Your input is kept: change a control to continue, or reload the page."
    )
    return True


app = st.App(
    "pages/main.py",
    lifespan=lifespan,
    routes=[Mount("/vendor", StaticFiles(directory=PLOTLY_JS))],
    middleware=[Middleware(SecurityHeaders), Middleware(Pages)],
    on_script_error=report_failure,
)
