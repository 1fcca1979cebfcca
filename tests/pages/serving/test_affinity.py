"""The cookie that names the replica: when it is set and with which attributes."""

from typing import Any

import pytest
from grid import for_each

from pages.serving.middleware.affinity import Affinity
from pages.serving.settings import SettingError, read

LAX = "quantscope_replica=app-1; Path=/; HttpOnly; SameSite=Lax"
FRAMED = "quantscope_replica=app-1.framed; Path=/; HttpOnly; SameSite=None; Secure; Partitioned"
PAGE = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/html; charset=utf-8")],
}
FILE = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/javascript")]}
ACCEPT = {
    "type": "websocket.accept",
    "subprotocol": "streamlit",
}  # no headers at all, which the server may send
REFUSAL = {"type": "websocket.close", "code": 1008}


def cookies(answer: dict[str, Any], replica: str = "app-1", scheme: str = "", **headers: str) -> list[str]:
    """The cookies that this response sets for a browser that sent these headers."""
    kind = "http" if answer is PAGE or answer is FILE else "websocket"
    scope = {
        "type": kind,
        "scheme": scheme or {"http": "http", "websocket": "ws"}[kind],
        "path": "/",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(answer)

    async def send(message: Any) -> None:
        sent.append(message)

    with pytest.raises(StopIteration):  # it never awaits anything, so it needs no event loop
        Affinity(app, replica)(scope, None, send).send(None)  # type: ignore[arg-type]
    (message,) = sent
    rest = [pair for pair in message.get("headers", []) if pair[0] != b"set-cookie"]
    assert {**message, "headers": rest} == {**answer, "headers": answer.get("headers", [])}
    return [value.decode() for name, value in message.get("headers", []) if name == b"set-cookie"]


@for_each("answer", [PAGE, ACCEPT])
def test_a_new_visitor_is_given_the_name(answer: dict[str, Any]) -> None:
    assert cookies(answer) == cookies(answer, cookie="a=b; _streamlit_xsrf=2|3|4|5") == [LAX]


@for_each("answer", [PAGE, ACCEPT])
def test_who_has_the_name_keeps_it(answer: dict[str, Any]) -> None:
    assert cookies(answer, cookie="quantscope_replica=app-1") == []
    assert cookies(answer, cookie="a=b; quantscope_replica=app-1.framed") == []


@for_each("other", ["app-2", "app-10", "app", "", "x; y", "app-1; quantscope_replica=app-2"])
def test_another_replicas_visitor_changes_over(other: str) -> None:
    assert cookies(PAGE, cookie=f"quantscope_replica={other}") == [LAX]
    assert cookies(ACCEPT, cookie=f"quantscope_replica={other}") == [LAX]


@for_each("answer", [FILE, REFUSAL])
def test_other_answers_do_not_move_a_visitor(answer: dict[str, Any]) -> None:
    assert cookies(answer) == cookies(answer, cookie="quantscope_replica=app-2") == []


def test_without_a_proxy_there_is_no_cookie() -> None:
    assert cookies(PAGE, replica="") == cookies(ACCEPT, replica="", cookie="quantscope_replica=app-2") == []


@for_each("destination", ["iframe", "frame", "embed", "object"])
def test_in_another_sites_frame(destination: str) -> None:
    """The request for the page says that it is in a frame; that for the websocket does not, but has the cookie."""
    assert cookies(PAGE, sec_fetch_dest=destination, sec_fetch_site="cross-site") == [FRAMED]
    assert cookies(ACCEPT, cookie="quantscope_replica=app-2.framed") == [FRAMED]
    assert cookies(PAGE, sec_fetch_dest=destination, sec_fetch_site="same-origin") == [LAX]
    assert cookies(PAGE, sec_fetch_dest="document", sec_fetch_site="cross-site") == [LAX]


def test_encrypted_pages_have_encrypted_cookies() -> None:
    assert cookies(PAGE, scheme="https") == cookies(ACCEPT, scheme="wss") == [f"{LAX}; Secure"]


@for_each("name", ["app 1", "app.1", "App-1", "a; Domain=x", "a" * 33])
def test_a_name_that_a_cookie_can_not_hold_is_refused(name: str) -> None:
    with pytest.raises(
        SettingError, match=r"QUANTSCOPE_REPLICA is .* up to 32 lowercase letters, digits and hyphens"
    ):
        read({"QUANTSCOPE_REPLICA": name})
    assert read({"QUANTSCOPE_REPLICA": "app-1"}).replica == "app-1"
