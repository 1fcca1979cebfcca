"""The script that draws the maps: one file, which the browser keeps, under a name that changes with it."""

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pages.browser import streamlit_dom

_HERE = Path(__file__).parent
# in any order: together they are one module
_SCRIPT = "\n".join(map(streamlit_dom.read, sorted((_HERE / "drawing").glob("*.js")))).encode()
NAME = f"maps.{hashlib.sha256(_SCRIPT).hexdigest()[:16]}.js"
# the component's own script
LOADER = (_HERE / "loader.js").read_text(encoding="utf-8").replace("%maps_script%", NAME)


def route(below: str) -> Route:
    """Return the server's route, below this path; without it, Streamlit's charts stand for the maps."""
    return Route(f"{below}/{NAME}", respond)


async def respond(request: Request) -> Response:
    """Return the script."""
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(_SCRIPT, media_type="text/javascript", headers=headers)
