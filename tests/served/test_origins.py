"""Which pages may open a session, decided by a real server that can reach no other host."""

import contextlib
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from grid import for_each
from loops import finish
from places import ROOT
from served import Server, serve
from streamlit import config
from streamlit.config_option import ConfigOption

from pages.serving.middleware import origins
from pages.serving.settings import SettingError

APP = """
import streamlit as st
from starlette.middleware import Middleware
from pages.serving.middleware.origins import Origins

app = st.App("main.py", middleware=[Middleware(Origins)])
"""
# Python imports it at the start: it notes every host that is resolved or called, and answers for none
NO_NETWORK = """
import os, sys, time

def hook(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"):
        with open(os.environ["ASKED"], "a") as file:
            file.write(f"{event} {args[-1] if event == 'socket.connect' else args[:2]}\\n")
        time.sleep(20)

sys.addaudithook(hook)
"""
SETTINGS = [
    "--server.corsAllowedOrigins=https://listed.example",
    "--server.corsAllowedOrigins=http://[2001:DB8:0::5]:81",
    "--server.corsAllowedOrigins=app://desktop",
]


@contextlib.contextmanager
def lonely(folder: Path, *options: str) -> Iterator[tuple[Server, socket.socket, Path]]:
    """A server on all addresses whose proxy never answers; yields the proxy's socket and what was asked."""
    (folder / "app.py").write_text(APP)
    (folder / "main.py").write_text("import streamlit as st\nst.write('')")
    (folder / "sitecustomize.py").write_text(NO_NETWORK)
    shutil.copytree(ROOT / ".streamlit", folder / ".streamlit")
    asked = folder / "asked"
    asked.touch()
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.setblocking(False)
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy")
        environment = dict.fromkeys(names, address) | {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
        environment |= {"PYTHONPATH": f"{folder}:{ROOT}", "ASKED": str(asked)}
        every = "--server.address=0.0.0.0"  # where Streamlit's welcome would look the public address up
        with serve(folder, folder / "app.py", every, *options, **environment) as server:
            yield server, proxy, asked


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, socket.socket, Path]]:
    with lonely(tmp_path_factory.mktemp("lonely"), *SETTINGS) as found:
        yield found


def ask(server: Server, host: str, *pages: str) -> socket.socket:
    """Send the request that opens a session."""
    name, _, port = server.host.partition(":")
    connection = socket.create_connection((name, int(port)), timeout=120)
    head = ["GET /_stcore/stream HTTP/1.1", f"Host: {host}", *(f"Origin: {page}" for page in pages)]
    head += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
    head += ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: streamlit", "", ""]
    connection.sendall("\r\n".join(head).encode("latin-1"))
    return connection


def answer(connection: socket.socket) -> tuple[int, str]:
    with connection, HTTPResponse(connection) as response:
        response.begin()
        return response.status, "" if response.status == 101 else response.read().decode()


def check_nothing_was_asked(proxy: socket.socket, asked: Path) -> None:
    with pytest.raises(BlockingIOError):
        proxy.accept()
    assert asked.read_text() == ""


@pytest.mark.slow  # starts a server; by default, a foreign page on the server that tests share
def test_foreign_pages_hold_up_nobody_and_nothing_is_looked_up(
    started: tuple[Server, socket.socket, Path],
) -> None:
    server, proxy, asked = started
    foreign = [ask(server, server.host, f"http://{number}.evil.test") for number in range(20)]
    began = time.perf_counter()
    with urllib.request.urlopen(f"{server.address}/_stcore/health", timeout=120) as health:
        assert health.read() == b"ok"
    assert time.perf_counter() - began < 20  # as long as a single name takes to look up
    for connection in foreign:
        status, text = answer(connection)
        assert status == 403
        assert "server.corsAllowedOrigins" in text
    check_nothing_was_asked(proxy, asked)
    lines = [line for line in server.log.read_text().splitlines() if "evil.test" in line]
    assert 0 < len(lines) <= 5
    assert all("server.corsAllowedOrigins" in line for line in lines)


HERE = "here.example:8501"


OWN = [
    (HERE, "http://here.example:8501"),
    (HERE, "https://here.example:8501"),  # a proxy terminates TLS
    (HERE, "HTTP://HERE.example:8501"),
    ("HERE.example:8501", "http://here.example:8501"),
    ("here.example", "http://here.example"),
    ("here.example", "https://here.example"),
    ("here.example", "https://here.example:443"),
    ("here.example:443", "https://here.example"),
    ("here.example:80", "http://here.example"),
    ("here.example.", "http://here.example."),
    ("127.0.0.1:8501", "http://127.0.0.1:8501"),
    ("[::1]:8501", "http://[::1]:8501"),
    ("[0:0:0:0:0:0:0:1]:8501", "http://[::1]:8501"),
    ("[2001:DB8::A]", "https://[2001:db8::a]"),
    (HERE, "https://listed.example"),
    (HERE, "https://LISTED.example:443"),
    (HERE, "http://[2001:db8::5]:81"),
    (HERE, "app://desktop"),
]
OTHERS = [
    (HERE, ["http://evil.test"]),
    (HERE, ["http://here.example"]),  # another port
    (HERE, ["http://here.example:8502"]),
    (HERE, ["http://here.example:18501"]),
    (HERE, ["http://here.example.evil.test:8501"]),
    (HERE, ["http://not-here.example:8501"]),
    (HERE, ["http://here.example.:8501"]),  # another name than without the dot
    ("here.example.", ["http://here.example"]),
    (HERE, ["null"]),
    (HERE, [""]),
    (HERE, ["*"]),
    (HERE, ["here.example:8501"]),
    (HERE, ["//here.example:8501"]),
    (HERE, ["ftp://here.example:8501"]),
    (HERE, ["file://"]),
    (HERE, ["http://you@here.example:8501"]),
    (HERE, ["http://here.example:8501@evil.test"]),
    (HERE, ["http://here.example:8501/"]),
    (HERE, ["http://here.example:8501?a"]),
    (HERE, ["http://here.example:8501#a"]),
    (HERE, ["http://here.example:8501\\.evil.test"]),
    (HERE, ["http://here.example:08501"]),
    (HERE, ["http://here.example:"]),
    (HERE, ["http://here.example:8501 http://evil.test"]),
    (HERE, ["http://here.example:8501, http://evil.test"]),
    (HERE, ["http://here.example:8501", "http://evil.test"]),
    (HERE, ["http://evil.test", "http://here.example:8501"]),
    (HERE, ["http://here.example:8501", "http://here.example:8501"]),
    (HERE, ["http://h\xe9re.example:8501"]),
    ("here.example:80", ["https://here.example"]),
    ("here.example:443", ["http://here.example"]),
    ("here.example", ["http://here.example:443"]),
    ("[::1]:8501", ["http://[::2]:8501"]),
    ("[::1]:8501", ["http://::1:8501"]),
    ("[::1]:8501", ["http://[::1]"]),
    ("[::1%lo]:8501", ["http://[::1%lo]:8501"]),
    ("1:8501", ["http://[1]:8501"]),
    ("here.example:99999", ["http://here.example:99999"]),
    (HERE, ["http://listed.example:443"]),  # the scheme of a listed origin counts
    (HERE, ["http://listed.example"]),
    (HERE, ["https://listed.example.evil.test"]),
    (HERE, ["https://a.listed.example"]),
    (HERE, ["app://desktop:1"]),
    # Streamlit's own check allowed this machine's addresses, whatever the port and the Host header
    (HERE, ["http://localhost:8501"]),
    (HERE, ["http://127.0.0.1:8501"]),
    (HERE, ["http://0.0.0.0:8501"]),
    ("a b", ["http://here.example"]),
    ("you@here.example", ["http://you@here.example"]),
    ("", ["http://"]),
]


@pytest.fixture
def option() -> Iterator[Callable[[str, object], None]]:
    """Set an option of Streamlit, as a file or the command line does."""
    before = {}

    def choose(name: str, value: object) -> None:
        before.setdefault(name, config.get_option(name))
        config.set_option(name, value)

    yield choose
    for name, value in before.items():
        config.set_option(name, value, ConfigOption.DEFAULT_DEFINITION)


@pytest.fixture
def listed(option: Callable[[str, object], None]) -> None:
    """The settings of the server, in this process."""
    option(origins.SETTING, [setting.partition("=")[2] for setting in SETTINGS])


@for_each(("host", "page"), OWN)
def test_the_apps_own_pages_and_listed_ones_are_not_refused(listed: None, host: str, page: str) -> None:
    assert not origins.refusal([page], [host])


@for_each(("host", "pages"), OTHERS)
def test_other_pages_are_refused(listed: None, host: str, pages: list[str]) -> None:
    assert origins.refusal(pages, [host]).endswith(".")


def test_a_program_sends_no_origin_and_is_not_refused() -> None:
    assert not origins.refusal([], [HERE])


@pytest.mark.slow  # starts a server; by default, the decision is tested without one
@for_each(("host", "page"), OWN)
def test_the_apps_own_pages_and_listed_ones_open_sessions(
    started: tuple[Server, socket.socket, Path], host: str, page: str
) -> None:
    server, proxy, asked = started
    assert answer(ask(server, host, page))[0] == 101
    check_nothing_was_asked(proxy, asked)


@pytest.mark.slow  # starts a server; by default, the decision is tested without one
def test_a_program_sends_no_origin(started: tuple[Server, socket.socket, Path]) -> None:
    assert answer(ask(started[0], HERE))[0] == 101


@pytest.mark.slow  # starts a server; by default, the decision is tested without one
@for_each(("host", "pages"), OTHERS)
def test_other_pages_open_none(
    started: tuple[Server, socket.socket, Path], host: str, pages: list[str]
) -> None:
    server, proxy, asked = started
    status, text = answer(ask(server, host, *pages))
    assert status in (400, 403)  # 400: the parser refuses some of these headers itself
    assert status == 400 or text.endswith(".")
    check_nothing_was_asked(proxy, asked)


@pytest.mark.slow  # starts a server; by default, the answer is tested without one
@for_each(("page", "status"), [("http://evil.test", 403), ("http://here.example:8501", 200)])
def test_a_page_can_ask_a_server_why_it_is_refused(
    started: tuple[Server, socket.socket, Path], page: str, status: int
) -> None:
    """A refused websocket tells the page nothing."""
    address = f"{started[0].address}/_stcore/stream"
    question = urllib.request.Request(address, b"", {"Host": HERE, "Origin": page}, method="POST")
    try:
        with urllib.request.urlopen(question, timeout=120) as response:
            found, text = response.status, response.read().decode()
    except urllib.error.HTTPError as refused:
        found, text = refused.code, refused.read().decode()
    assert found == status
    assert ("server.corsAllowedOrigins" in text) == (status == 403)


@for_each(("page", "status"), [("http://evil.test", 403), ("http://here.example:8501", 200)])
def test_a_page_can_ask_why_it_is_refused(page: str, status: int) -> None:
    """A refused websocket tells the page nothing."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def unused(*_: Any) -> None:
        pytest.fail("the question is answered here")

    headers = [(b"host", HERE.encode()), (b"origin", page.encode())]
    scope = {"type": "http", "method": "POST", "path": "/_stcore/stream", "headers": headers}
    finish(origins.Origins(unused)(scope, unused, send))
    assert sent[0]["status"] == status
    assert (b"server.corsAllowedOrigins" in sent[1]["body"]) == (status == 403)


def test_without_the_protection_every_page_opens_sessions(option: Callable[[str, object], None]) -> None:
    option("server.corsAllowedOrigins", ["*"])  # does not matter then
    option("server.enableCORS", False)
    origins.check_settings()
    for page in (["http://evil.test"], ["null"], ["a", "b"], []):
        assert not origins.refusal(page, [HERE])
    option("server.enableCORS", True)
    assert origins.refusal(["http://evil.test"], [HERE])


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (origins.SETTING, ["example.org"], "server.corsAllowedOrigins contains 'example.org'"),
        (
            origins.SETTING,
            ["https://a.example", "https://b.example/"],
            "without a path or a slash at the end",
        ),
        (origins.SETTING, ["*"], "which is not an origin"),
        ("browser.serverAddress", "a b", "browser.serverAddress is 'a b', which is not a host"),
        ("browser.serverAddress", "[::1", "which is not a host"),
        ("browser.serverAddress", "", "which is not a host"),
    ],
)
def test_a_setting_that_names_no_origin_is_refused(
    option: Callable[[str, object], None], name: str, value: object, sentence: str
) -> None:
    option(name, value)
    with pytest.raises(SettingError) as refused:
        origins.check_settings()
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("address", "port", "page", "others"),
    [
        ("Quant.example.org", 443, "https://quant.example.org", ["http://quant.example.org"]),
        ("quant.example.org/app", 443, "https://quant.example.org:443", ["https://quant.example.org:8501"]),
        ("quant.example.org", 8501, "https://quant.example.org:8501", ["https://quant.example.org"]),
        ("https://quant.example.org:8443/app", 8501, "https://quant.example.org:8443", []),
        ("2001:db8::1", 8501, "http://[2001:db8:0::1]:8501", ["http://[2001:db8::2]:8501"]),
        ("[2001:db8::1]", 8501, "http://[2001:db8::1]:8501", ["http://[2001:db8::1]"]),
    ],
)
def test_pages_at_the_address_for_visitors_open_sessions(
    option: Callable[[str, object], None], address: str, port: int, page: str, others: list[str]
) -> None:
    assert origins.refusal([page], [HERE])
    option("browser.serverPort", port)
    option("browser.serverAddress", address)
    origins.check_settings()
    assert not origins.refusal([page], [HERE])
    for other in [*others, page.replace("quant", "evil").replace("::1]", "::9]")]:
        assert origins.refusal([other], [HERE])
