"""The arithmetic of the element under the pointer, which the maps request while the pointer moves.

A request is answered by a route, not by a run of the page: nothing is drawn again, and a run that a key press starts does
not wait for it. The server keeps nothing for the elements that a pointer passes over.
"""

import secrets
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import quantcore as qc
from pages.maps import arithmetic
from pages.maps.places import read_element
from pages.shared.state.selection import PageTensor

PATH = "arithmetic"
_KEY = "_pointed"


@dataclass(frozen=True, eq=False)
class ShownTensor:
    """What a visitor's maps show. ``token``: names it in a request, and nobody can guess it."""

    tensor: PageTensor
    scheme: qc.Scheme
    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))


# what sessions hold, and no longer than they do
_shown: WeakValueDictionary[str, ShownTensor] = WeakValueDictionary()
_served = False


def route(below: str) -> Route:
    """Return the server's route, below this path; without it, maps offer no arithmetic under the pointer."""
    global _served
    _served = True
    return Route(f"{below}/{PATH}/{{token}}", respond)


def offer(tensor: PageTensor, scheme: qc.Scheme) -> str:
    """Return the token for what this session's maps show, which ends the last; empty without the route."""
    if not _served:
        return ""
    last: ShownTensor | None = st.session_state.get(_KEY)
    if last is None or (last.tensor.key, last.scheme) != (tensor.key, scheme):
        st.session_state[_KEY] = last = ShownTensor(tensor, scheme)
        _shown[last.token] = last
    return last.token


async def respond(request: Request) -> Response:
    """Return the arithmetic of the element ``at``, as JSON; no content if nobody's maps show it any more."""
    shown = _shown.get(request.path_params["token"])
    if shown is None:
        return Response(status_code=204)
    try:
        content = await run_in_threadpool(_content, shown, request.query_params.get("at", ""))
    except qc.QuantError as error:
        return PlainTextResponse(str(error), 400)
    return JSONResponse(content, headers={"cache-control": "no-store"})


def _content(shown: ShownTensor, typed: str) -> dict[str, object]:
    element = read_element(typed, shown.tensor.shape)
    if element is None:
        raise qc.QuantError("The element is missing: write one index per axis, such as ?at=3,17.")
    return arithmetic.once(shown.tensor, shown.scheme, element).content()
