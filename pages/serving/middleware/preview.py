"""What chats and social networks show for a link: title, description and picture, in the head of the page that is served,
since their programs run no scripts (the Open Graph protocol, ogp.me, and X's cards).
"""

import html
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.types import Scope
from streamlit import config

from pages.serving.middleware.origins import DEFAULT_PORTS, host_port_of, own_address

PICTURE, NAME = Path(__file__).parent / "preview.png", "preview.png"
SIZE = (1200, 630)  # px
DESCRIPTION = (
    "See what quantization does to a tensor: the original, the integer codes, the dequantized values and the error side by "
    "side, and the arithmetic of every number."
)
ALTERNATIVE = "The four maps of a quantized image: original, codes, dequantized and error"


async def picture(request: Request) -> FileResponse:
    """Return the response of the route to the picture."""
    return FileResponse(PICTURE, headers={"cache-control": "public, max-age=86400"})


def tags(title: str, scope: Scope) -> bytes:
    """Return the elements for the head of a page; without a picture if the app's address is not known.

    Args:
        title: of the page.
        scope: of its request.
    """
    named = {"description": DESCRIPTION, "twitter:card": "summary_large_image"}
    graph = {"type": "website", "site_name": "Quantscope", "title": title, "description": DESCRIPTION}
    at = _address(scope)
    if at:
        width, height = map(str, SIZE)
        graph |= {"image": f"{at}/{NAME}", "image:alt": ALTERNATIVE, "image:width": width, "image:height": height}
    named_tags = [f'<meta name="{key}" content="{html.escape(text)}">' for key, text in named.items()]
    graph_tags = [f'<meta property="og:{key}" content="{html.escape(text)}">' for key, text in graph.items()]
    return "".join(named_tags + graph_tags).encode()


def _address(scope: Scope) -> str:
    """Return the app's address: `browser.serverAddress`, if set, else that of this request; else ""."""
    hosts = Headers(scope=scope).getlist("host")
    place = own_address() or (host_port_of(hosts[0]) if len(hosts) == 1 else None)
    if place is None:
        return ""
    port = "" if place.port in (None, DEFAULT_PORTS.get(scope["scheme"])) else f":{place.port}"
    base = config.get_option("server.baseUrlPath").strip("/")
    return f"{scope['scheme']}://{place.name}{port}/{base}".rstrip("/")
