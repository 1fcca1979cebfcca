"""The arithmetic of one element, from x to its error, as lines of text with the numbers filled in.

The maps request that of the element under the pointer while the pointer moves. A route answers, not a run of
the page: nothing is drawn again, and a run that a key press starts does not wait for it. The server keeps
nothing for the elements that a pointer passes over.
"""

import re
import secrets
import unicodedata
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import quantcore as qc
from pages.maps import path
from pages.maps.places import index_text, read_element
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore.granularity import block_name

PLACE = "qs-arithmetic"  # CSS class of the lines on the page; the maps show a copy if these are out of sight
PATH = "arithmetic"  # of the route
_KEY = "_pointed"


@dataclass(frozen=True)
class ElementArithmetic:
    """The arithmetic of one element.

    Attributes:
        trace: its numbers.
        block: the name of its block.
        is_worst: whether it has the largest |error|.
        lines: its steps, one per line, preceded by the block's numbers as the library reports them, if any.
    """

    trace: qc.Trace
    block: str
    is_worst: bool
    lines: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The element and its block."""
        where = index_text(self.trace.index)
        worst = ", the largest |error|" if self.is_worst else ""
        return f"Arithmetic of element ({where}){worst}; scale of {self.block}"

    def content(self) -> dict[str, Any]:
        """Return heading and lines for the maps; ``at`` names the element there."""
        at = ",".join(map(str, self.trace.index))
        return {"at": at, "title": self.heading, "lines": self.lines}


def of(tensor: PageTensor, scheme: qc.Scheme, element: tuple[int, ...]) -> ElementArithmetic:
    """Return the arithmetic of an element of `cache.result`, computed once for everything that shows it."""
    return cache.cached_small(tensor, f"arithmetic {scheme} {element}", lambda: once(tensor, scheme, element))


def once(tensor: PageTensor, scheme: qc.Scheme, element: tuple[int, ...]) -> ElementArithmetic:
    """Do the same without keeping it: a pointer passes over hundreds, which would displace the results.

    Raises:
        QuantError: the element is not in the tensor.
    """
    result, worst = cache.result(tensor, scheme), cache.report(tensor, scheme).max_abs_error_index
    trace = qc.trace(result, element)
    lines, own = aligned(trace.steps()), qc.encoding(result)
    if own:
        numbers = ", ".join(f"{what} {values[trace.block].item():.7g}" for what, values in own.items())
        lines.insert(0, f"as {result.scheme.convention.library} reports it: {numbers}")
    block = block_name(trace.bounds, tensor.shape)
    return ElementArithmetic(trace, block, trace.index == worst, tuple(lines))


def worst_of(report: qc.Report, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the element with the largest |error|; the first element if that is undefined."""
    index = report.max_abs_error_index
    return (0,) * len(shape) if index is None else index


def markup(tensor: PageTensor, scheme: qc.Scheme, shown: ElementArithmetic, theme: str) -> str:
    """Write the arithmetic of an element as HTML: its lines, and beneath them its way in pictures."""
    pictures = path.markup(cache.result(tensor, scheme), shown.trace, theme)
    return messages.lines_markup(shown.lines, PLACE, heading=shown.heading) + pictures


def aligned(steps: list[qc.Step]) -> list[str]:
    """Write steps as lines, with name, formula and value in aligned columns."""
    name, formula = (
        max(len(_wide(part)) for part in parts)
        for parts in zip(*((s.name, s.formula) for s in steps), strict=True)
    )
    return [f"{_pad(s.name, name)}  {_pad(s.formula, formula)}  {s.value}" for s in steps]


HANG = 15  # columns of a line before its formula


def line(step: qc.Step) -> str:
    """Write a step as one line without columns, ``name  formula = value``, for a narrow place."""
    term, words = re.fullmatch(r"(.*?)(, [a-z ]+)?", step.formula).groups(default="")  # type: ignore[union-attr]
    value = term if term == step.value else " = ".join(filter(None, [term, step.value]))
    return f"{_pad(step.name, HANG - 1)} {value}{words}"


def parted(text: str) -> tuple[str, str]:
    """Return the name in a `line`, and the rest."""
    place = next(i for i in range(len(text)) if len(_wide(text[:i])) == HANG)
    return text[:place].rstrip(), text[place:]


def _wide(text: str) -> str:
    """Return the text without zero-width characters such as the hat of x̂."""
    return "".join(c for c in text if not unicodedata.combining(c))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - len(_wide(text)))


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


@dataclass(eq=False)
class Offer:
    """What the pointer of one session may ask for: what its maps showed last."""

    shown: ShownTensor | None = None

    def token(self, tensor: PageTensor, scheme: qc.Scheme) -> str:
        """Return the token for what the maps show now, which ends the last; empty without the route."""
        if not _served:
            return ""
        last = self.shown
        if last is None or (last.tensor.key, last.scheme) != (tensor.key, scheme):
            self.shown = last = ShownTensor(tensor, scheme)
            _shown[last.token] = last
        return last.token


def offer() -> Offer:
    """Return this session's."""
    held: Offer = st.session_state.setdefault(_KEY, Offer())
    return held


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
    return once(shown.tensor, shown.scheme, element).content()
