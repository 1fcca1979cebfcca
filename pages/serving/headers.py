"""Response headers of every route."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.serving.page_head import HTML

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    # Sites that may embed the app; see README.md, "Hosting".
    (
        b"content-security-policy",
        b"frame-ancestors 'self' https://*.streamlit.app https://*.hf.space https://huggingface.co",
    ),
]


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
