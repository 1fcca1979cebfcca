"""The server's limits for strangers, and its warm-up, on a server with low limits and small pages."""

import asyncio
import contextlib
import http.client
import socket
import struct
import time
import urllib.request

import pytest
from grid import for_each
from loops import finish
from places import ROOT
from served import serve
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from benchmarks.visitor import Visitor, visit
from pages.serving.middleware.limits import Rate
from pages.serving.network import network

# what these pages do not need takes 4 s of processor time: torch, which quantcore imports at once, and pandas
APP = f"""
import asyncio, sys, types
import streamlit as st
sys.modules["quantcore"] = types.ModuleType("quantcore")
sys.modules["quantcore"].__path__ = [{str(ROOT / "quantcore")!r}]
sys.modules["pandas"] = types.ModuleType("pandas")
from contextlib import asynccontextmanager
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from pages.serving import log, warm
from pages.serving.middleware.limits import Limits, UploadLimits
from pages.serving.middleware.patience import Patience
from pages.serving.middleware.requests import Requests
from pages.serving.middleware.headers import SecurityHeaders

@asynccontextmanager
async def lifespan(app):
    log.configure()
    behind = asyncio.create_task(warm.open_other_pages(await warm.open_first_page()))
    yield {{}}
    behind.cancel()

async def broken(request):
    raise ValueError("what a visitor sent")

async def read(request):
    return PlainTextResponse(f"{{len(await request.body())}} bytes")

app = st.App(
    "pages/main.py",
    lifespan=lifespan,
    on_script_error=log.report_failure,
    routes=[Route("/broken", broken), Route("/read", read, methods=["POST"])],
    middleware=[
        Middleware(Patience, seconds=1.5),
        Middleware(SecurityHeaders),
        Middleware(Requests),
        Middleware(Limits, uploads=UploadLimits(session_mb=3, total_mb=5, idle=2.5), address_sessions=12,
                   body_seconds=1.5),
    ],
)
"""
FIRST = """
import wave
import streamlit as st
st.file_uploader("File")
"""
MAIN = """
import streamlit as st
st.navigation([st.Page(f"{name}.py", url_path=name) for name in ("first", "broken", "last")]).run()
"""
LAST = """
import chunk
import streamlit as st
one, two = st.tabs(["One", "Two"], key="tab", bind="query-params", on_change="rerun")
if two.open:
    import sndhdr
"""
CLASS, STRANGER = "203.0.113.7", "198.51.100.9"  # uvicorn trusts the address given by a local proxy


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    (folder / "app.py").write_text(APP)
    (folder / "pages").mkdir()
    (folder / "pages" / "main.py").write_text(MAIN)
    (folder / "pages" / "first.py").write_text(FIRST)
    (folder / "pages" / "broken.py").write_text("raise TypeError('what a visitor pasted')")
    (folder / "pages" / "last.py").write_text(LAST)
    options = ("browser.gatherUsageStats", "logger.enableRich")
    more = [*(f"--{option}=false" for option in options), "--server.fileWatcherType=none"]
    with serve(folder, folder / "app.py", *more) as server:
        server.await_warm()
        yield server


def connect(server):
    host, _, port = server.host.partition(":")
    return socket.create_connection((host, int(port)), timeout=120)


def wait_until_closed(connection):
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(4096):
            pass


def is_well(server):
    with urllib.request.urlopen(f"{server.address}/_stcore/health", timeout=120) as answer:
        return answer.read() == b"ok"


def test_a_page_that_fails_in_the_warm_up_is_one_line_in_the_log(server):
    """The first test of this server, on which nobody has been yet."""
    inside = server.look_inside()
    assert {"wave", "chunk", "sndhdr"} <= set(inside["modules"])
    assert inside["sessions"] == 0  # the warm-up's sessions are closed
    finish(visit(server.host, "last"))
    assert server.look_inside()["sessions"] == 1
    problems = [line for line in server.lines() if "TypeError" in line]
    assert len(problems) == 1
    assert "page=/broken request=- TypeError at" in problems[0]
    assert "broken.py:1" in problems[0]
    assert "pasted" not in server.log.read_text()


# Connections and requests


def test_a_connection_that_says_nothing_is_closed(server):
    began = time.monotonic()
    with connect(server) as silent:
        wait_until_closed(silent)  # or its time-out ends the test
    assert time.monotonic() - began > 1.4


@for_each("before", [b"", b"GET /_stcore/health HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_a_head_that_never_ends_is_given_up(server, before):
    """Even if it trickles in, and after a request that was answered."""
    began, head, sent = time.monotonic(), b"GET / HTTP/1.1\r\nX-Slow: " + b"a" * 1000, 0
    with connect(server) as slow:
        slow.sendall(before)
        with contextlib.suppress(ConnectionError):
            for byte in head:  # a minute
                slow.sendall(bytes([byte]))
                sent += 1
                time.sleep(0.06)
    assert sent < len(head)
    assert time.monotonic() - began > 1.4


POST = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"


def test_a_body_that_trickles_in_is_given_up_in_words(server):
    with connect(server) as slow:
        began, sent = time.monotonic(), 0
        slow.sendall(POST)
        with contextlib.suppress(ConnectionError):
            for _ in range(99):  # a minute
                slow.sendall(b"a")
                sent += 1
                time.sleep(0.6)
    assert sent < 99
    assert time.monotonic() - began > 1.4
    with connect(server) as slow:
        slow.sendall(POST + b"a")
        answer = b"".join(iter(lambda: slow.recv(4096), b""))  # until the server closes the connection
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(b"The request did not arrive within 1.5 seconds: try again.")
    with connect(server) as quick:
        quick.sendall(POST + b"a" * 100)
        assert quick.recv(4096).startswith(b"HTTP/1.1 200 ")


def test_who_leaves_in_the_middle_of_a_request_is_no_line_in_the_log(server):
    before = server.log.read_text()
    for sent in (POST, POST + b"a" * 50, POST + b"a" * 100):
        with connect(server) as phone:
            phone.sendall(sent)
            phone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it is reset
        time.sleep(0.1)
    assert is_well(server)
    time.sleep(1.7)  # past the time of a body
    assert server.log.read_text() == before


def test_a_websocket_outlives_the_deadline_of_a_request(server):
    async def stay():
        async with Visitor(server.host) as visitor:
            await visitor.run()
            await asyncio.sleep(1.9)
            await visitor.run()

    finish(stay())


def test_many_idle_connections_are_closed_and_others_are_answered(server):
    idle = [connect(server) for _ in range(300)]
    assert is_well(server)
    for connection in idle:
        wait_until_closed(connection)
        connection.close()
    assert is_well(server)


@for_each("piece", [10**6, 20_000])
@for_each(("length", "status"), [(65_536, 200), (65_537, 414), (100_000, 414), (129_000, 414)])
def test_a_link_beyond_64_kb_is_refused_in_words(server, length, status, piece):
    """However it arrives."""
    head = f"GET /?t={'a' * (length - 4)} HTTP/1.1\r\nHost: a\r\nX-Long: {'b' * 1500}\r\n\r\n".encode()
    with connect(server) as connection:
        for start in range(0, len(head), piece):
            connection.sendall(head[start : start + piece])
            time.sleep(0.01)
        found, text = answer_of(connection)
    assert found == status
    if status == 414:
        assert f"it has {length:,} characters after the server's name, and at most 65,536" in text


def test_a_head_beyond_128_kb_is_refused(server):
    reader = http.client.HTTPConnection(server.host, timeout=120)
    reader.request("GET", f"/?t={'a' * 10**6}")
    assert reader.getresponse().status == 400
    assert is_well(server)


def test_a_route_that_fails_answers_one_sentence_and_logs_one_line(server):
    reader = http.client.HTTPConnection(server.host, timeout=120)
    reader.request("GET", "/broken?secret=1")
    answer = reader.getresponse()
    request = answer.headers["x-request-id"]
    assert answer.status == 500
    assert answer.headers["content-security-policy"]
    assert request in answer.read().decode()
    lines = [line for line in server.lines() if "ValueError" in line]
    assert len(lines) == 1
    assert f"route=/broken request={request}" in lines[0]
    assert "broken" in lines[0]
    assert "secret" not in server.log.read_text()
    assert "visitor sent" not in server.log.read_text()


def test_streamlits_own_metrics_are_closed(server):
    reader = http.client.HTTPConnection(server.host, timeout=120)
    reader.request("GET", "/_stcore/metrics")
    assert reader.getresponse().status == 404


# Sessions


def test_a_rate_lets_a_burst_through_and_then_its_average():
    rate = Rate(burst=3, per_second=2)
    assert [rate.allows("a", 0.0) for _ in range(5)] == [True, True, True, False, False]
    assert rate.allows("b", 0.0)
    assert [rate.allows("a", 0.5) for _ in range(2)] == [True, False]
    assert [rate.allows("a", 100.0) for _ in range(4)] == [True, True, True, False]


def test_a_rate_forgets_addresses():
    rate = Rate(burst=1, per_second=1)
    for number in range(10_000):
        rate.allows(str(number), 0.0)
    rate.allows("new", 100.0)
    assert len(rate._used) == 1


@for_each(
    ("address", "one"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_what_counts_as_one_address(address, one):
    assert network(address) == one


async def opened(server, address, count):
    """Open ``count`` sessions at once, close those that are let in, and return their number."""

    async def come():
        for _ in range(50):
            # this process was too busy to ask in time, and not yet heard
            with contextlib.suppress(InvalidMessage, ConnectionError):
                return await Visitor(server.host, headers={"X-Forwarded-For": address}).__aenter__()
        raise AssertionError("never heard")

    results = await asyncio.gather(*(come() for _ in range(count)), return_exceptions=True)
    let_in = [result for result in results if isinstance(result, Visitor)]
    assert all(isinstance(r, (Visitor, InvalidStatus, ConnectionClosed)) for r in results), results
    for visitor in let_in:
        await visitor.__aexit__(None, None, None)
    return len(let_in)


def test_reconnects_of_one_address_are_limited_and_those_of_others_are_not(server):
    async def connect_all():
        strangers = await opened(server, STRANGER, 40)
        return strangers, await opened(server, CLASS, 4)

    strangers, others = finish(connect_all())
    assert 4 <= strangers < 12
    assert others == 4
    assert is_well(server)


# Uploads


class Uploader:
    """Uploads files to a page."""

    def __init__(self, server, visitor):
        self.server, self.session = server, visitor.session
        with urllib.request.urlopen(f"{server.address}/_stcore/health", timeout=120) as answer:
            self.token = answer.headers["set-cookie"].partition("=")[2].partition(";")[0]

    def head(self, name, length, method="PUT"):
        return (
            f"{method} /_stcore/upload_file/{self.session}/{name} HTTP/1.1\r\nHost: {self.server.host}\r\n"
            f"Cookie: _streamlit_xsrf={self.token}\r\nX-Xsrftoken: {self.token}\r\n"
            f"Content-Length: {length}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\nConnection: close\r\n\r\n"
        ).encode()

    def body(self, size):
        start = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x.npy"\r\n\r\n'
        return start + b"0" * size + b"\r\n--b--\r\n"

    def upload(self, name, size):
        """Upload a file of ``size`` bytes; returns status and text of the response."""
        body = self.body(size)
        with connect(self.server) as connection:
            connection.sendall(self.head(name, len(body)) + body)
            return answer_of(connection)

    def remove(self, *names):
        """Remove files, which would otherwise stay for two minutes after their page is closed."""
        for name in names:
            with connect(self.server) as connection:
                connection.sendall(self.head(name, 0, "DELETE"))
                assert answer_of(connection)[0] == 204


def answer_of(connection):
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    return answer.status, answer.read().decode()


def with_pages(server, count, act):
    """Call ``act`` with the uploaders of ``count`` open pages."""

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            uploaders = []
            for number in range(count):
                headers = {"X-Forwarded-For": f"192.0.2.{number}"}
                visitor = await stack.enter_async_context(Visitor(server.host, headers=headers))
                await visitor.run()
                uploaders.append(Uploader(server, visitor))
            await asyncio.to_thread(act, *uploaders)

    finish(run())


def test_a_page_holds_so_many_bytes_of_files(server):
    def act(page):
        assert page.upload("1", 1_900_000)[0] == 204
        status, text = page.upload("2", 1_900_000)
        assert (status, text) == (413, "One page may hold 3 MB of files: remove one, or reload the page.")
        assert page.upload("3", 900_000)[0] == 204
        page.remove("1")
        assert page.upload("2", 1_900_000)[0] == 204
        page.remove("2", "3")

    with_pages(server, 1, act)


def test_all_pages_hold_so_many_bytes_of_files(server):
    def act(first, second, third):
        assert first.upload("1", 2_400_000)[0] == second.upload("1", 2_400_000)[0] == 204
        status, text = third.upload("1", 2_400_000)
        assert status == 413
        assert "as many files as it can" in text
        second.remove("1")
        assert third.upload("1", 2_400_000)[0] == 204
        first.remove("1")
        third.remove("1")

    with_pages(server, 3, act)


def test_an_upload_that_stops_is_given_up_and_its_room_is_free_again(server):
    def act(page):
        with connect(page.server) as connection:
            connection.sendall(page.head("1", 2_900_000) + page.body(2_000)[:1_000])
            assert page.upload("2", 900_000)[0] == 413  # the space is reserved
            assert answer_of(connection) == (413, "The upload stalled or took too long: try again.")
        assert page.upload("2", 900_000)[0] == 204
        page.remove("2")

    with_pages(server, 1, act)


def test_an_upload_to_a_page_that_is_not_open_reserves_nothing(server):
    def act(page):
        page.session = "11111111-1111-1111-1111-111111111111"
        assert page.upload("1", 100)[0] == 400

    with_pages(server, 1, act)
