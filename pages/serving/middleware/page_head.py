"""Our scripts, and what previews of a link show, in the head of every page that the server sends.

Chats and social networks take title, description and picture of a link from there, since their programs run
no scripts (the Open Graph protocol, ogp.me, and X's cards).
"""

import html
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config

from pages.browser.scripts import in_head, serve_in_head
from pages.serving.middleware.headers import HTML, POLICY, content_security_policy
from pages.serving.middleware.origins import DEFAULT_PORTS, host_port_of, own_address

# Request headers that make the response empty or compressed, and response headers about the unmodified file
CONDITIONS = {b"if-none-match", b"if-modified-since", b"accept-encoding"}
OF_THE_FILE = {b"etag", b"last-modified", b"content-length"}
PICTURE_NAME = "preview.png"
PICTURE = Path(__file__).parent / PICTURE_NAME
SIZE = (1200, 630)  # px
DESCRIPTION = (
    "See what quantization does to a tensor: the original, the integer codes, the dequantized values and "
    "the error side by side, and the arithmetic of every number."
)
ALTERNATIVE = "The four maps of a quantized image: original, codes, dequantized and error"


class Opening(NamedTuple):
    """What a link opens.

    Attributes:
        title: of the page.
        sidebar: whether the page opens with one; None if that is folded.
        maps: whether it opens with maps alone, for which the page must load plotly.js.
        told: what the link itself tells, which previews say first; empty if nothing.
    """

    title: str
    sidebar: bool | None
    maps: bool
    told: str = ""


class Pages:
    """Insert our scripts into the head of every page.

    Conditional requests are made unconditional: Streamlit's file does not change with our scripts, so a
    browser would keep a cached page without them, or with old ones.

    Args:
        app: the application behind this one.
        opens: what a link opens, by the last part of its path and its parameters.
        drawing: the address of the script that draws the maps.
    """

    def __init__(
        self, app: ASGIApp, opens: Callable[[str, dict[str, list[str]]], Opening], drawing: str
    ) -> None:
        self.app, self.opens = app, opens
        self.preloaded = f"<vendor/plotly.min.js>; rel=preload; as=script, <{drawing}>; rel=modulepreload"
        serve_in_head()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; hold back the headers of a page until its body arrives."""
        start: Message | None = None

        async def send_with_scripts(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                names = [name for name, _ in message["headers"]]
                # a page of Streamlit's; one that has a policy of its own is complete
                if (b"content-type", HTML) in message["headers"] and POLICY not in names:
                    start = message
                    return
            if start is not None:
                query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
                opening = self.opens(scope["path"].rpartition("/")[2], query)
                page = in_head(
                    message.get("body", b""), opening.sidebar, tags(opening.title, scope, opening.told)
                )
                headers = [(name, value) for name, value in start["headers"] if name not in OF_THE_FILE]
                policy = content_security_policy(page, dict(scope["headers"]).get(b"host", b""))
                headers.append((POLICY, policy))
                if opening.maps:
                    # which would otherwise be requested only when the maps are drawn
                    headers.append((b"link", self.preloaded.encode()))
                await send({**start, "headers": headers})
                start, message = None, {**message, "body": page}
            await send(message)

        if scope["type"] != "http" or "." in scope["path"].rpartition("/")[2]:
            await self.app(scope, receive, send)
            return
        asked = [(name, value) for name, value in scope["headers"] if name not in CONDITIONS]
        await self.app({**scope, "headers": asked}, receive, send_with_scripts)


async def picture(request: Request) -> FileResponse:
    """Return the response of the route to the picture."""
    return FileResponse(PICTURE, headers={"cache-control": "public, max-age=86400"})


def tags(title: str, scope: Scope, told: str = "") -> bytes:
    """Return the elements for the head of a page; without a picture if the app's address is not known.

    Args:
        title: of the page.
        scope: of its request.
        told: what the link itself tells, which comes first.
    """
    description = f"{told}. Quantscope checked what is shared here, line by line." if told else DESCRIPTION
    title = f"{told} · {title}" if told else title
    named = {"description": description, "twitter:card": "summary_large_image"}
    graph = {"type": "website", "site_name": "Quantscope", "title": title, "description": description}
    hosts = Headers(scope=scope).getlist("host")
    # where visitors find the app: at browser.serverAddress, if it is set, else where this request found it
    place = own_address() or (host_port_of(hosts[0]) if len(hosts) == 1 else None)
    if place is not None:
        port = "" if place.port in (None, DEFAULT_PORTS.get(scope["scheme"])) else f":{place.port}"
        base = config.get_option("server.baseUrlPath").strip("/")
        at = f"{scope['scheme']}://{place.name}{port}/{base}".rstrip("/")
        width, height = map(str, SIZE)
        graph |= {"image": f"{at}/{PICTURE_NAME}", "image:alt": ALTERNATIVE}
        graph |= {"image:width": width, "image:height": height}
    named_tags = [f'<meta name="{key}" content="{html.escape(text)}">' for key, text in named.items()]
    graph_tags = [f'<meta property="og:{key}" content="{html.escape(text)}">' for key, text in graph.items()]
    return "".join(named_tags + graph_tags).encode()
