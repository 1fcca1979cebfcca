"""What students' phones ask for: one page, and four routes that answer in JSON.

Each way has at most 1 kB, but ``why``, which is asked once per question, a few.

None of it opens a session. Each route is sent what the page knows; `browser` is what `join` named it.

=========================  =====================================  ==========================================
``POST class/<code>/…``    sent                                   answered
=========================  =====================================  ==========================================
``join``                   ``browser`` (of an earlier visit)      the state, and ``browser``
``state``                  ``browser``                            the state
``answer``                 ``browser``, ``round``, ``typed``      the state
``why``                    ``browser``, ``round``                 why its answers are wrong, once revealed
=========================  =====================================  ==========================================

A state has ``code``, ``round`` (0 before the first question), ``vote``, ``phase``, the question, this
browser's answer ``mine``, and once the answers are revealed, what is ``right`` and the ``marks`` of its own.
Whatever is refused is answered with one sentence, ``problem``.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from pages.serving.classroom import place, words
from pages.serving.classroom.question import MOST_FIELDS, ClassError, as_json
from pages.serving.classroom.store import code_of
from pages.serving.metrics import REFUSED
from pages.serving.middleware.headers import POLICY, content_security_policy
from pages.serving.middleware.limits import Rate
from pages.serving.middleware.origins import refusal
from pages.serving.network import network

PATH = "class"
MOST_REASONS = 2  # for one answer
MOST_BYTES = 1024  # of what is sent to a route
SECONDS = 5.0  # until a thread is free
_TEMPLATE = (Path(__file__).parent / "student.html").read_text("utf-8")
_PAGE = _TEMPLATE.replace("{{languages}}", words.in_every_language()).encode()
_HEADERS = {POLICY.decode(): content_security_policy(_PAGE).decode(), "cache-control": "no-cache"}
_Content = dict[str, Any]

# Each network address for itself. A class of 300 behind one asks 150 times a second.
_requests = Rate(burst=2000, per_second=400)
_joins = Rate(burst=600, per_second=2)  # so slowly nobody finds a code of 40 bits by trying


def routes(below: str) -> list[Route]:
    """Return the routes of the server, below this path."""
    at = f"{below}/{PATH}"
    return [
        Route(at, page),
        Route(f"{at}/{{code}}", page),
        *(Route(f"{at}/{{code}}/{name}", _responder(work), methods=["POST"]) for name, work in _WORK.items()),
    ]


async def page(request: Request) -> Response:
    """Return the page of a student, the same for all classes."""
    return HTMLResponse(_PAGE, headers=_HEADERS)


def join(code: str, sent: _Content) -> _Content:
    """Let a browser in."""
    browser = place.current().join(code, _text(sent, "browser", needed=False))
    return state(code, {"browser": browser}) | {"browser": browser}


def state(code: str, sent: _Content) -> _Content:
    """Return what the page shows."""
    now, mine = place.current().state(code, _text(sent, "browser"))
    if now is None:
        return {"code": code, "round": 0}
    shown = {"code": code, "round": now.number, "vote": now.vote, "phase": now.phase, "mine": mine}
    shown |= now.question.shown()
    if now.phase != "revealed":
        return shown
    marks = [key.accepts(Decimal(text)) for key, text in zip(now.question.keys, mine or (), strict=False)]
    return shown | {"right": now.question.right, "marks": marks}


def answer(code: str, sent: _Content) -> _Content:
    """Count an answer."""
    number, typed = sent.get("round"), sent.get("typed")
    if type(number) is not int or not isinstance(typed, list) or len(typed) > MOST_FIELDS:
        raise ClassError(400, "This answer does not name its round and numbers; reload the page.")
    if not all(isinstance(text, str) for text in typed):
        raise ClassError(400, "An answer must be a list of texts; reload the page.")
    place.current().answer(code, _text(sent, "browser"), number, typed)
    return state(code, sent)


def why(code: str, sent: _Content) -> _Content:
    """Return the arithmetic of each number, for those who guessed too, and what explains a wrong answer."""
    now, mine = place.current().state(code, _text(sent, "browser"))
    if now is None or now.phase != "revealed" or sent.get("round") != now.number:
        raise ClassError(409, "The answers to this question are not revealed now; wait for them.")
    found = []
    for i, key in enumerate(now.question.keys):
        reasons = now.question.reasons(i, mine[i]) if mine else []
        found.append((i, key.how, [(mark.kind, mark.sentence) for mark in reasons[:MOST_REASONS]]))
    return {"why": found}


# While another process holds the database, what writes waits; the threads of what reads do not.
_THREADS = {
    reads: ThreadPoolExecutor(4, f"class-{'reads' if reads else 'writes'}") for reads in (False, True)
}
_WORK = {"join": join, "state": state, "answer": answer, "why": why}
_READS = (state, why)


def _responder(work: Callable[[str, _Content], _Content]) -> Callable[[Request], Any]:
    async def respond(request: Request) -> Response:
        try:
            content, status = await _answered(request, work), 200
        except ClassError as error:
            content, status = {"problem": str(error)}, error.status
        return Response(as_json(content), status, {"cache-control": "no-store"}, "application/json")

    return respond


async def _answered(request: Request, work: Callable[[str, _Content], _Content]) -> _Content:
    """Check what was sent, in the order of what the checks cost."""
    address = network(request.client.host if request.client else "")
    if not _requests.allows(address):
        REFUSED.labels("classes").inc()
        raise ClassError(429, "Too much is asked from your network; this page tries again by itself.")
    if refusal(request.headers.getlist("origin"), request.headers.getlist("host")):
        raise ClassError(403, "Another site's page can't take part in a class; open the class's own link.")
    sent, code = await _sent(request), code_of(request.path_params["code"])
    if not code:
        raise ClassError(404, "A class's code has 8 letters and digits; check it.")
    if work is join and not _joins.allows(address):
        REFUSED.labels("classes").inc()
        raise ClassError(
            429, "Too many from your network want to join at once; this page tries again by itself."
        )
    return await _in_thread(work, code, sent)


async def _in_thread(work: Callable[[str, _Content], _Content], code: str, sent: _Content) -> _Content:
    """Run it in one of the classes' own threads; give up if none is free in time."""
    future = _THREADS[work in _READS].submit(work, code, sent)
    waiting = asyncio.wrap_future(future)
    done, _ = await asyncio.wait({waiting}, timeout=SECONDS)
    if not done and future.cancel():  # it has not begun
        raise ClassError(503, "The classes here are busy now; nothing was counted. Try again in a moment.")
    return await waiting


async def _sent(request: Request) -> _Content:
    """Return the object that was sent as JSON."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ClassError(413, f"A class is sent at most {MOST_BYTES:,} bytes at once; reload the page.")
    try:
        sent = json.loads(body)
    except (ValueError, RecursionError):
        sent = None
    if not isinstance(sent, dict):
        raise ClassError(400, "What was sent is not a JSON object; reload the page.")
    return sent


def _text(sent: _Content, name: str, needed: bool = True) -> str:
    value = sent.get(name, "")
    if not isinstance(value, str) or len(value) > 40 or not value.isascii() or (needed and not value):
        raise ClassError(400, f"What was sent has no valid {name}; reload the page.")
    return value
