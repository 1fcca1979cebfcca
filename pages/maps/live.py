"""Maps that follow a control of the sidebar while it is dragged, before the page runs.

The browser asks a route for the picture under the values that the controls stand at; the page's own run
follows when the hand rests. Both make the picture with `LiveView.picture`, so the run draws what is already
seen.
"""

import asyncio
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import streamlit as st
from anyio import CapacityLimiter, to_thread
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

import quantcore as qc
from pages.maps import arithmetic, component, foreseen
from pages.maps.beside import Beside, BesideMaps, nothing
from pages.maps.picture import Picture, as_bytes
from pages.serving import warm
from pages.serving.activity import VISITORS
from pages.serving.work.admission import WorkKind
from pages.shared.computing import cache, needs, turn
from pages.shared.state.selection import Controls, Current, PageTensor
from quantcore.analysis import View, steps
from quantcore.diagnosis import Box

PATH = "live"  # of the route
HELD = "held"  # the parameter that names the original that the browser has
PART = "part"  # the parameter that asks for something else than the picture now
RESTING = "resting"  # its value: for `BesideMaps.resting` alone
AHEAD = "ahead"  # the parameter that asks for pictures that may be needed: a control and its values
_KEY = "_live"  # of the session's maps that follow, by the key of their component
_WAY = 0.15  # seconds that a run gives way to a picture at most
_DRAWN = 0.05  # seconds in which a browser draws it; what the run sends would come between
_REMEMBERED = 600_000  # bytes of answers per session
_TOLD = 64  # answers per session whose pictures the browser may show, remembered or not
_AT_ONCE = CapacityLimiter(turn.CORES)  # threads, so that other routes need not wait for pictures


class FollowingView(Protocol):
    """What maps show of whatever tensor and scheme the controls stand at."""

    @property
    def large(self) -> bool:
        """Whether the page's text is enlarged."""

    def shown(
        self,
        tensor: PageTensor,
        scheme: qc.Scheme,
        pointer: arithmetic.Offer,
        element: tuple[int, ...] | None,
    ) -> tuple[Picture, BesideMaps]:
        """Return the picture, and what of the page follows with it; ``element``: chosen by what was moved.

        Raises:
            QuantError: scheme or view do not fit the tensor.
        """


@dataclass(frozen=True)
class LiveView:
    """What a page's maps show, whatever the tensor and the scheme.

    Attributes:
        chosen: the element that the visitor chose; None for the one with the largest |error|.
        found: boxes that are outlined; ``found_in``: for this tensor, by its key, and scheme alone; None
            for any.
        against: the scheme that the error map is compared with.
        beside: what else of the page follows.
        rms: whether the error map shows the RMS of each cell, where cells stand for several elements.
    """

    view: View
    chosen: tuple[int, ...] | None
    borders: bool
    numbers: bool
    theme: str
    large: bool
    found: tuple[Box, ...] = ()
    found_in: tuple[str, qc.Scheme] | None = None
    against: qc.Scheme | None = None
    beside: Beside = nothing
    rms: bool = False

    def picture(
        self,
        tensor: PageTensor,
        scheme: qc.Scheme,
        pointer: arithmetic.Offer,
        element: tuple[int, ...] | None = None,
    ) -> Picture:
        """Return what the maps show of a tensor under a scheme.

        Args:
            element: chosen instead of ``chosen``.

        Raises:
            QuantError: scheme or view do not fit the tensor.
        """
        result = cache.result(tensor, scheme)
        element = self.chosen if element is None else element
        if element is None:
            element = arithmetic.worst_of(cache.report(tensor, scheme), tensor.shape)
        shown = arithmetic.of(tensor, scheme, element)
        rms = self.rms and steps(tensor.shape, self.view) != (1, 1)
        return Picture(
            result,
            cache.drawn(tensor, result.scheme, self.view, self.against, rms=rms),
            self.view,
            identity=tensor.key,
            element=shown.trace.index,
            borders=self.borders,
            numbers=self.numbers,
            theme=self.theme,
            found=self.found if self.found_in in (None, (tensor.key, scheme)) else (),
            arithmetic=shown,
            pointed=pointer.token(tensor, result.scheme),
            against=str(self.against) if self.against else "",
            grey=tensor.is_image,
        )

    def shown(
        self,
        tensor: PageTensor,
        scheme: qc.Scheme,
        pointer: arithmetic.Offer,
        element: tuple[int, ...] | None,
    ) -> tuple[Picture, BesideMaps]:
        """Return `picture`, and what of the page follows with it."""
        picture = self.picture(tensor, scheme, pointer, element)
        assert picture.arithmetic is not None
        return picture, self.beside(tensor, scheme, picture.arithmetic)


@dataclass(eq=False, kw_only=True)
class Followed:
    """What one component of a session can be asked for while a hand moves, and the requests of its browser.

    Attributes:
        token: names it in a request, and nobody can guess it.
        newest: number of the newest request; earlier ones that still wait are not answered.
        idle: whether no request is under way.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    newest: int = 0
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    idle: threading.Event = field(default_factory=threading.Event)

    def answer(self, values: Mapping[str, str], held: str) -> bytes:
        """Return what is shown with the controls at these values.

        Args:
            held: names what the browser has of it, and need not be sent.

        Raises:
            QuantError: a control does not have such a value.
        """
        raise NotImplementedError

    def ahead(self, values: Mapping[str, str], held: str) -> bytes:
        """Return `answer` before a control is moved there; empty if that can't be remembered, as here.

        Raises:
            QuantError: as `answer`.
        """
        return b""

    def resting(self, values: Mapping[str, str]) -> bytes:
        """Return what follows less often, with the controls at these values, as JSON; here nothing does.

        Raises:
            QuantError: as `answer`.
        """
        return b"{}"


_Answer = tuple[bytes, arithmetic.ShownTensor | None]  # with what the pointer may ask for then


@dataclass(eq=False)
class LiveMaps(Followed):
    """The maps of one component: what its latest run showed.

    Attributes:
        answers: to what was asked since the latest run, the newest last; of large ones, only what the pointer
            may ask for.
    """

    view: FollowingView
    current: Current
    pointer: arithmetic.Offer
    answers: dict[str, _Answer] = field(default_factory=dict)

    def show(self, view: FollowingView, current: Current) -> None:
        """Take over what a run shows."""
        self.view, self.current, self.answers = view, current, {}

    def resting(self, values: Mapping[str, str]) -> bytes:
        """Return the HTML of `BesideMaps.resting` with the controls at these values, by its keys."""
        with turn.of_run(None):
            # the pointer asks for what the maps show, and they may show a newer picture by now
            _, beside, _ = self._shown(values, arithmetic.Offer())
            return json.dumps({key: make() for key, make in beside.resting.items()}).encode()

    def answer(self, values: Mapping[str, str], held: str) -> bytes:
        """Return as `content`, which is remembered: a hand goes to and fro."""
        found, self.pointer.shown = self._made(values, held, self.pointer)
        return found

    def ahead(self, values: Mapping[str, str], held: str) -> bytes:
        """Return `answer` before a control is moved there; empty if the pointer could not ask for it then.

        The pointer asks for what the maps show until then.
        """
        found, _ = self._made(values, held, arithmetic.Offer())
        return found if _asked(values, held) in self.answers else b""

    def _made(self, values: Mapping[str, str], held: str, pointer: arithmetic.Offer) -> _Answer:
        """Return an answer, which is remembered if it is small, or the pointer asks for this run's tensor."""
        found, shown = self.answers.pop(_asked(values, held), (b"", None))
        if not found:
            pointer.shown = shown or pointer.shown
            found, shown = self.content(values, held, pointer), pointer.shown
        fits = len(found) + sum(len(other) for other, _ in self.answers.values()) <= _REMEMBERED
        if fits or shown is None or shown.tensor is self.current.tensor:
            self.answers[_asked(values, held)] = (found if fits else b""), shown
        if len(self.answers) > _TOLD:
            del self.answers[next(iter(self.answers))]
        return found, shown

    def content(self, values: Mapping[str, str], held: str, pointer: arithmetic.Offer) -> bytes:
        """Return the picture with the controls at these values, and what else of the page follows.

        Args:
            pointer: what may be asked for of the picture.

        Raises:
            QuantError: a control does not have such a value, or the scheme does not fit the tensor.
        """
        with turn.of_run(None):
            picture, beside, controls = self._shown(values, pointer)
        sent = component.content(picture, large=self.view.large)
        live = {"at": f"{PATH}/{self.token}", "controls": {**beside.controls, **controls}}
        return as_bytes(sent | {"live": live, "beside": beside.content()}, held)

    def _shown(
        self, values: Mapping[str, str], pointer: arithmetic.Offer
    ) -> tuple[Picture, BesideMaps, Controls]:
        warm.one_thread()
        tensor, scheme, controls, element = self.current.moved(values)
        return *self.view.shown(tensor, scheme, pointer, element), controls


def _asked(values: Mapping[str, str], held: str) -> str:
    return f"{sorted(values.items())} {held}"


T = TypeVar("T", bound=Followed)
# what sessions hold, and no longer than they do
_live: WeakValueDictionary[str, Followed] = WeakValueDictionary()
_served = False


def route(below: str) -> Route:
    """Return the server's route, below this path; without it, maps wait for the page's run."""
    global _served
    _served = True
    return Route(f"{below}/{PATH}/{{token}}", respond)


def offer(
    view: FollowingView, current: Current, key: str = "maps", *, quick: bool = True
) -> dict[str, Any] | None:
    """Return for the component where its maps can be asked for, and what the controls stood at in this run.

    There is no place to ask, ``at`` is empty, for tensors that have to wait for their turn.

    Args:
        key: of the component.
        quick: whether the maps are made quickly, if the tensor is small.
    """
    if not _served or not current.controls or current.tensor is None or current.scheme is None:
        return None
    held = _of_session(key)
    if not isinstance(held, LiveMaps):
        held = _kept(key, LiveMaps(view, current, arithmetic.offer()))
    held.show(view, current)
    need = int(needs.of(current.scheme, current.tensor.shape) * current.tensor.nbytes)
    at_once = quick and turn.GATE.kind(need) is WorkKind.SMALL
    return {"at": f"{PATH}/{held.token}" if at_once else "", "controls": {**current.controls}}


def follow(key: str, shown: Followed) -> str:
    """Return where the browser can ask for what is shown, until a component with this key shows another.

    Empty: nowhere, since this server does not serve the route.
    """
    if not _served:
        return ""
    before = _of_session(key)
    if before is not None:
        shown.token = before.token  # what is under way is answered by the newer one
    return f"{PATH}/{_kept(key, shown).token}"


def _of_session(key: str) -> Followed | None:
    every: dict[str, Followed] = st.session_state.setdefault(_KEY, {})
    return every.get(key)


def _kept(key: str, shown: T) -> T:
    shown.idle.set()
    st.session_state[_KEY][key] = _live[shown.token] = shown
    return shown


async def respond(request: Request) -> Response:
    """Return the picture with the controls at the request's values; no content if nobody shows it any more.

    One picture per session is made at a time, and of the requests that wait, only the newest is answered.
    """
    maps = _live.get(request.path_params["token"])
    if maps is None:
        return Response(status_code=204)
    values = dict(request.query_params)
    held = values.pop(HELD, "")
    part, ahead = values.pop(PART, ""), values.pop(AHEAD, None)
    if part == RESTING:  # no picture waits for it
        async with maps.one_at_a_time:
            return await _made(partial(maps.resting, values))
    if ahead is not None:
        return await _ahead(maps, values, held, ahead)
    maps.newest = mine = maps.newest + 1
    maps.idle.clear()
    try:
        answer = await _answer(maps, mine, values, held)
    except BaseException:
        maps.idle.set()
        raise
    if mine == maps.newest:
        answer.background = BackgroundTask(maps.idle.set)  # once it is sent
    return answer


async def _answer(maps: Followed, mine: int, values: dict[str, str], held: str) -> Response:
    async with maps.one_at_a_time:
        if mine != maps.newest:
            return Response(status_code=204)
        return await _made(partial(maps.answer, values, held))


async def _ahead(maps: Followed, values: dict[str, str], held: str, asked: str) -> Response:
    """Return pictures that nobody waits for yet; no content while anybody waits for another or a run."""
    if VISITORS.runs or _AT_ONCE.borrowed_tokens or maps.one_at_a_time.locked():
        return Response(status_code=204)
    one = lambda key, end: maps.ahead({**values, key: end}, held)  # noqa: E731
    # one thread is its own
    free = lambda: maps.idle.is_set() and not VISITORS.runs and _AT_ONCE.borrowed_tokens < 2  # noqa: E731
    async with maps.one_at_a_time:
        return await _made(partial(foreseen.joined, one, asked, free))


async def _made(make: Callable[[], bytes]) -> Response:
    try:
        found = await to_thread.run_sync(make, limiter=_AT_ONCE)
    except qc.QuantError as error:
        return PlainTextResponse(str(error), 400)
    if not found:
        return Response(status_code=204)
    headers = {"cache-control": "no-store"}
    return Response(found, media_type="application/octet-stream", headers=headers)


def give_way() -> None:
    """Wait for pictures that this session's browser has asked for, so that the run that follows them does not
    compete with them: a key on a slider asks for both.
    """
    every: dict[str, Followed] = st.session_state.get(_KEY, {})
    until = time.monotonic() + _WAY
    under_way = [held for held in every.values() if not held.idle.is_set()]
    for held in under_way:
        held.idle.wait(max(0.0, until - time.monotonic()))
    if under_way:
        time.sleep(_DRAWN)
