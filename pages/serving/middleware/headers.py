"""Response headers of every route."""

import base64
import hashlib
import re
from functools import lru_cache

from starlette.types import ASGIApp, Message, Receive, Scope, Send

HTML = b"text/html; charset=utf-8"
POLICY = b"content-security-policy"

# What a page may load and do; what is not named is forbidden. Whatever goes beyond 'self' is needed by
# Streamlit 1.67's front end, as tried page by page in Chromium. Neither it nor plotly.js needs eval.
DIRECTIVES = {
    "default-src": "'none'",
    # blob: the JavaScript of our components, which the front end imports from blobs;
    # {scripts}: digests of the scripts in the head, Streamlit's and ours
    "script-src": "'self' blob: {scripts}",
    "script-src-attr": "'none'",
    # 'unsafe-inline': the front end (Emotion), plotly.js and st.html write <style> elements as the page runs
    "style-src": "'self' 'unsafe-inline'",
    # data: the page's icon, and heatmaps, which plotly.js draws as images; blob: a chart to download
    "img-src": "'self' data: blob:",
    # data: a symbol font inside the front end's style sheet
    "font-src": "'self' data:",
    # {sockets}: not every browser takes 'self' to include the websocket
    "connect-src": "'self' {sockets}",
    # what the projector of a class shows: other pages of the app
    "frame-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    # Sites that may embed the app; see docs/hosting.md.
    "frame-ancestors": "'self' https://*.streamlit.app https://*.hf.space https://huggingface.co",
}
PERMISSIONS = "camera=(), display-capture=(), geolocation=(), microphone=(), midi=(), payment=(), usb=()"
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"permissions-policy", PERMISSIONS.encode()),
]
_TEMPLATE = "; ".join(f"{name} {value}" for name, value in DIRECTIVES.items())
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_HOST = re.compile(rb"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:]+\](:[0-9]+)?")


def content_security_policy(page: bytes = b"", host: bytes = b"") -> bytes:
    """Return the policy of a page, which allows its own inline scripts and its own server, and no others.

    Args:
        page: the HTML, if the response is a page.
        host: the Host header of the request; ignored if it is not a host.
    """
    at = host.decode() if _HOST.fullmatch(host) else ""
    sockets = f"ws://{at} wss://{at}" if at else ""
    return _TEMPLATE.format(scripts=_digests(page), sockets=sockets).replace(" ;", ";").encode()


@lru_cache(maxsize=8)
def _digests(page: bytes) -> str:
    digests = (base64.b64encode(hashlib.sha256(script).digest()) for script in _INLINE_SCRIPT.findall(page))
    return " ".join(f"'sha256-{digest.decode()}'" for digest in digests)


class SecurityHeaders:
    """Add HEADERS and a policy to every HTTP response, and let the browser cache plotly.js."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; change only the headers of its response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), *HEADERS]
                if not any(name == POLICY for name, _ in headers):
                    headers.append((POLICY, content_security_policy()))
                if "/vendor/" in scope["path"]:
                    headers.append((b"cache-control", b"public, max-age=86400"))
                message = {**message, "headers": headers}
            await send(message)

        await self.app(scope, receive, send_with_headers if scope["type"] == "http" else send)
