"""The server's HTTP responses."""

import asyncio
import contextlib
import http.client
import importlib
import json
import re
import struct
import time
import urllib.error
import urllib.request
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urljoin

import plotly
import pytest
import visitor
import websockets
from grid import for_each
from loops import finish
from places import ROOT
from served import Server, free_port, serve
from streamlit.runtime.scriptrunner import magic
from streamlit.runtime.scriptrunner.script_cache import ScriptCache

from benchmarks.processes import processor_time
from benchmarks.visitor import Visitor, visit
from pages.serving import settings
from pages.serving.metrics import serve as serve_metrics
from pages.serving.middleware import page_head
from pages.serving.middleware.headers import content_security_policy
from pages.serving.settings import SettingError
from tests.quantcore.tensors.test_images import bomb


@pytest.fixture(scope="module")
def server(served: Server) -> str:
    return served.address


def get(address: str) -> tuple[int, Message, bytes]:
    try:
        with urllib.request.urlopen(address, timeout=120) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def check_headers(headers: Message) -> None:
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "camera=()" in headers["permissions-policy"]
    assert re.fullmatch(r"[0-9a-f]{16}", headers["x-request-id"])
    assert len(headers.get_all("content-security-policy") or []) == 1
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["frame-ancestors"].startswith("'self'")
    for sources in policy.values():
        assert "*" not in sources.split()  # not open to everyone
        assert "unsafe-eval" not in sources
    assert "unsafe-inline" not in policy["script-src"]


@for_each(
    ("path", "status"),
    [
        ("/", 200),
        ("/learn-scale?bits=5", 200),
        ("/nothing-here", 200),  # Streamlit treats it as a page and says that there is none
        ("/vendor/plotly.min.js", 200),
        ("/vendor/nothing.js", 404),
        ("/arithmetic/nothing?at=0", 204),
        ("/live/nothing?bits=5", 204),
        ("/favicon.png", 200),
        ("/static/nothing", 200),
        ("/media/nothing.csv", 404),
        ("/component/nothing/index.html", 404),
        ("/_stcore/bidi-components/nothing/index.js", 404),
        ("/_stcore/upload_file/a/b", 200),
        ("/_stcore/health", 200),
        ("/_stcore/host-config", 200),
        ("/_stcore/metrics", 404),
        ("/_stcore/agent/openapi.json", 200),
        ("/vendor/..%2f__init__.py", 400),
    ],
)
def test_headers_of_every_answer(server: str, path: str, status: int) -> None:
    found, headers, _ = get(server + path)
    assert found == status
    check_headers(headers)


def test_headers_of_an_upload_and_of_media(server: str) -> None:
    refused = urllib.request.Request(f"{server}/_stcore/upload_file/a/b", data=b"", method="PUT")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(refused, timeout=120)
    assert error.value.code == 403
    check_headers(error.value.headers)

    async def first_media() -> str:
        async with Visitor(server.removeprefix("http://"), "", "tab=Export") as visitor:
            await visitor.run()
            assert visitor.media
            status, headers, _ = await asyncio.to_thread(get, server + visitor.media[0])
            assert status == 200
            check_headers(headers)
            return visitor.media[0]

    assert finish(first_media()).startswith("/media/")


def test_a_page_allows_its_own_scripts_and_its_own_websocket(server: str) -> None:
    _, headers, body = get(f"{server}/")
    policy = headers["content-security-policy"]
    host = server.removeprefix("http://")
    assert policy == content_security_policy(body, host.encode()).decode()
    assert policy.count("'sha256-") == body.count(b"<script>") == 2
    assert f"ws://{host} " in policy
    assert "sha256" not in get(f"{server}/_stcore/health")[1]["content-security-policy"]


def test_a_host_header_brings_nothing_into_the_policy() -> None:
    assert b"evil" not in content_security_policy(b"", b"a; script-src evil")
    assert b"evil" not in content_security_policy(b"", b"a evil")
    assert b"ws://[::1]:8501 " in content_security_policy(b"", b"[::1]:8501")


@for_each("path", ["/learn-scale?bits=5", "/formats", "/ranges", "/?tab=Scales"])
def test_a_page_without_maps_alone_does_not_ask_for_plotly_js(server: str, path: str) -> None:
    assert get(server + path)[1]["link"] is None


@for_each("path", ["/", "/?tab=Code", "/checkpoint?ck=none"])
def test_a_page_with_maps_asks_for_what_draws_them_at_once(server: str, path: str) -> None:
    _, headers, _ = get(server + path)
    plotly, *how = headers["link"].partition(", ")[0].split("; ")
    assert how == ["rel=preload", "as=script"]
    assert urljoin(server + path, plotly.strip("<>")) == f"{server}/vendor/plotly.min.js"
    assert get(f"{server}/vendor/plotly.min.js")[1]["link"] is None
    drawing, *how = headers["link"].partition(", ")[2].split("; ")
    assert how == ["rel=modulepreload"]
    status, headers, body = get(urljoin(server + path, drawing.strip("<>")))
    assert status == 200
    assert "javascript" in headers["content-type"]
    assert "immutable" in headers["cache-control"]
    assert b"export default function" in body


def test_plotly_js_is_that_of_the_installed_wheel(server: str) -> None:
    status, headers, body = get(f"{server}/vendor/plotly.min.js")
    assert status == 200
    assert "javascript" in headers["content-type"]
    assert "max-age" in headers["cache-control"]
    assert body == (Path(plotly.__file__).parent / "package_data" / "plotly.min.js").read_bytes()


class Head(HTMLParser):
    """What a program that runs no scripts finds in the head of a page."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "meta" and "content" in given:
            self.found[given.get("property") or given.get("name", "")] = given["content"]


@for_each(
    ("path", "title"),
    [
        ("/?src=example&ex=landscape-128x192", "Explore · Quantscope"),
        ("/ranges", "Ranges · Quantscope"),
        ("/learn-scale?learn_large=true", "Scale · Quantscope"),
        ("/match?match_src=code&match_v=2-56-74", "2 mistakes, lines 56 and 74 · Match · Quantscope"),
        ("/match?match_v=0", "No known mistake found · Match · Quantscope"),
        ("/match?match_v=<b>1-2", "Match · Quantscope"),  # only numbers are put into words
    ],
)
def test_a_preview_of_a_link_has_title_description_and_picture(server: str, path: str, title: str) -> None:
    _, _, page = get(server + path)
    found = Head(page).found
    assert (found["og:title"], found["twitter:card"]) == (title, "summary_large_image")
    assert found["og:description"] == found["description"]
    assert 50 < len(found["description"]) < 200
    assert found["og:image"] == f"{server}/preview.png"  # crawlers need an absolute address
    status, headers, picture = get(found["og:image"])
    assert (status, headers["content-type"]) == (200, "image/png")
    assert "max-age" in headers["cache-control"]
    check_headers(headers)
    size = struct.unpack(">2I", picture[16:24])
    assert size == (1200, 630) == (int(found["og:image:width"]), int(found["og:image:height"]))
    assert len(picture) < 300_000  # what chats accept


@for_each(
    ("host", "picture"),
    [
        ("quant.example.org", "http://quant.example.org/preview.png"),
        ("Quant.example.org:8443", "http://quant.example.org:8443/preview.png"),
        ("[::1]:8501", "http://[::1]:8501/preview.png"),
        ('evil"><script>alert(1)</script>', None),
        ("evil.example/path?", None),
        ("you@evil.example", None),
        ("", None),
    ],
)
def test_a_host_header_brings_nothing_else_into_the_preview(
    served: Server, host: str, picture: str | None
) -> None:
    connection = http.client.HTTPConnection(served.host, timeout=120)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    page = connection.getresponse().read()
    connection.close()
    assert Head(page).found.get("og:image") == picture
    assert b"evil" not in page


def test_the_picture_of_a_preview_is_where_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    config = importlib.import_module("streamlit.config")
    given = {
        "browser.serverAddress": "quant.example.org",
        "browser.serverPort": 443,
        "server.baseUrlPath": "/q/",
    }
    monkeypatch.setattr(config, "get_option", given.__getitem__)
    monkeypatch.setattr(config, "is_manually_set", lambda name: name in given)
    scope = {"type": "http", "scheme": "https", "headers": [(b"host", b"10.0.0.7:8501")]}
    found = Head(page_head.tags('<"Explore">', scope)).found
    assert found["og:image"] == "https://quant.example.org/q/preview.png"
    assert found["og:title"] == '<"Explore">'


@for_each(
    "path",
    [
        "/vendor/../__init__.py",
        "/vendor/%2e%2e/__init__.py",
        "/vendor/..%2f__init__.py",
        "/vendor//etc/passwd",
        "/vendor/",
    ],
)
def test_nothing_else_is_served(server: str, path: str) -> None:
    status, _, body = get(server + path)
    assert status in (400, 404) or b"<!doctype html>" in body[:200].lower()  # Streamlit's own page
    assert b"plotly" not in body
    assert b"root:" not in body


@for_each("path", ["/", "/learn-scale?bits=5"])
def test_a_page_brings_our_scripts_before_streamlits_and_is_never_an_old_one(server: str, path: str) -> None:
    """Even for a browser that accepts compressed pages and asks only for changed ones."""
    asked = {"Accept-Encoding": "gzip, br", "If-Modified-Since": "Thu, 01 Jan 2099 00:00:00 GMT"}
    with urllib.request.urlopen(urllib.request.Request(server + path, headers=asked), timeout=120) as answer:
        headers, body = answer.headers, answer.read()
    assert (answer.status, headers["etag"]) == (200, None)
    page = body.decode()
    assert page.count("oneStepPerAct = true") == page.count('"quantscope-theme"') == 1
    assert page.index("oneStepPerAct") < page.index("static/js/index.")


def test_a_run_of_a_page_is_followed_by_no_collection() -> None:
    """The option is hidden and may disappear in a new version of Streamlit; it must have the file's value."""
    config = importlib.import_module("streamlit.config")
    assert "runner.postScriptGC" in config.get_config_options()
    assert config.get_option("runner.postScriptGC") is False
    assert config.get_option("server.fileWatcherType") == "none"


def test_a_page_is_compiled_without_a_syntax_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.7 fails where two threads make trees at once, as visitors of a new server do."""
    monkeypatch.setattr(magic, "add_magic", lambda *_: pytest.fail("the page becomes a syntax tree"))
    assert ScriptCache().get_bytecode(str(ROOT / "pages" / "explore" / "explore" / "page.py"))


def test_only_the_community_cloud_may_send_messages_to_the_app(server: str) -> None:
    """This option is hidden, too; without it the browser compares 16 origins at every key press."""
    with urllib.request.urlopen(f"{server}/_stcore/host-config", timeout=120) as answer:
        assert json.load(answer)["allowedOrigins"] == ["https://*.streamlit.app"]


# Metrics


def numbers(metrics: str) -> dict[str, float]:
    text = get(f"http://{metrics}/metrics")[2].decode()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    }


def test_metrics_count_sessions_and_time_runs_by_page(served: Server, metrics: str) -> None:
    run = 'quantscope_run_seconds_count{page="/ranges"}'
    deadline = time.monotonic() + 300
    while (before := numbers(metrics))["quantscope_sessions"]:
        assert time.monotonic() < deadline, "the sessions of earlier visitors do not end"
        time.sleep(0.05)

    async def look() -> dict[str, float]:
        async with Visitor(served.host, "ranges") as visitor:
            await visitor.run()
            return numbers(metrics)

    during = finish(look())
    assert during[run] == before.get(run, 0) + 1
    assert during['quantscope_run_seconds_sum{page="/ranges"}'] > before.get(
        'quantscope_run_seconds_sum{page="/ranges"}', 0
    )
    assert during["quantscope_sessions"] == before["quantscope_sessions"] + 1
    for idle in ("uploaded_bytes", "queue_length", "work_bytes"):
        assert during[f"quantscope_{idle}"] == 0
    assert during["quantscope_cached_bytes"] > 0
    assert during["process_resident_memory_bytes"] > 1e8
    versions = next(name for name in during if name.startswith("quantscope_build_info"))
    assert re.search(r'streamlit="\d+\.\d+.*version="\d+\.\d+', versions)


def test_a_page_that_is_none_has_no_label_of_its_own(served: Server, metrics: str) -> None:
    finish(visit(served.host, "what a visitor typed"))
    assert numbers(metrics)['quantscope_run_seconds_count{page="other"}'] >= 1


@pytest.mark.slow  # by default, the reader alone gets it
def test_a_bomb_of_pixels_takes_no_memory(served: Server) -> None:
    """An uploaded PNG of 190 kB that unpacks to 192 MB; after the metrics, as the server keeps it a while."""
    data = bomb(8000)
    assert len(data) < 10**6

    Path(f"/proc/{served.process.pid}/clear_refs").write_text("5")  # the peak is now what it holds

    def peak() -> int:
        status = Path(f"/proc/{served.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]

    async def upload(name: str, content: bytes) -> int:
        async with visitor.Visitor(served.address, src="upload") as page:
            return (await page.upload(name, content)).status_code

    assert finish(upload("small.png", bomb(8))) == 204  # what reading an image imports
    before = peak()
    assert finish(upload("photo.png", data)) == 204
    assert peak() - before < 50 * 10**6


def test_metrics_are_not_served_by_the_app(server: str) -> None:
    assert b"quantscope_" not in get(f"{server}/metrics")[2]


@for_each("address", ["soon", "127.0.0.1:99999", "192.0.2.1:9100"])
def test_metrics_need_an_address_of_this_machine(address: str) -> None:
    with pytest.raises(
        SettingError, match=f"QUANTSCOPE_METRICS is '{address}', where the metrics can't be served"
    ):
        serve_metrics(address, TOKEN)


TOKEN = "correct horse battery staple".replace(" ", "-")


@for_each("host", ["0.0.0.0", "[::]", "192.0.2.1"])
def test_metrics_that_other_machines_can_reach_need_a_token(host: str) -> None:
    with pytest.raises(
        SettingError, match="which other machines can reach: set QUANTSCOPE_METRICS_TOKEN too"
    ):
        serve_metrics(f"{host}:{free_port()}")


@for_each("host", ["0.0.0.0", "[::1]"])
def test_metrics_are_read_with_the_token_alone(host: str) -> None:
    port = free_port()
    serve_metrics(f"{host}:{port}", TOKEN)
    address = f"http://{host.replace('0.0.0.0', '127.0.0.1')}:{port}/metrics"
    for sent in ({}, {"Authorization": "Bearer nothing"}, {"Authorization": TOKEN}):
        with pytest.raises(urllib.error.HTTPError, match="401") as refused:
            urllib.request.urlopen(urllib.request.Request(address, headers=sent), timeout=120)
        assert b"quantscope_" not in refused.value.read()
    right = urllib.request.Request(address, headers={"Authorization": f"Bearer {TOKEN}"})
    assert b"quantscope_sessions" in urllib.request.urlopen(right, timeout=120).read()


def test_a_token_that_cant_be_used_is_not_shown() -> None:
    with pytest.raises(
        SettingError, match="QUANTSCOPE_METRICS_TOKEN is not valid; it must be 16 to 256"
    ) as refused:
        settings.read({"QUANTSCOPE_METRICS_TOKEN": "too short"})
    assert "too short" not in str(refused.value)


@pytest.mark.slow  # the sentences are tested without a server
def test_a_setting_that_cant_be_used_ends_the_start_with_one_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match="Quantscope can't start: QUANTSCOPE_METRICS is 'soon'") as ended,
        serve(tmp_path, QUANTSCOPE_METRICS="soon"),
    ):
        pass
    assert "Traceback" not in str(ended.value)


# Strangers


async def work(server: Server) -> float:
    """The processor time of the server while it runs a page in three new sessions.

    They are of another address than the stranger's. What holds up others is work, and how long they wait
    depends on the machine.
    """
    began = processor_time(server.process.pid)
    for _ in range(3):
        await seconds(server.host)
    return processor_time(server.process.pid) - began


async def seconds(host: str) -> float:
    """How long a run of a page takes in a new session, from another address than the stranger's."""
    began = time.perf_counter()
    async with Visitor(host, "ranges", headers={"X-Forwarded-For": "203.0.113.7"}) as visitor:
        await visitor.run()
    return time.perf_counter() - began


# s of processor time: more than a busy machine adds, and less than what holds up the server takes
HELD_UP = 5.0


@pytest.fixture(scope="module")
def undisturbed(served: Server) -> float:
    """That work while nothing else is asked."""
    return finish(work(served))


async def median(host: str) -> float:
    return sorted([await seconds(host) for _ in range(5)])[2]


def test_a_link_of_1_mb_is_refused_and_others_notice_nothing(served: Server, undisturbed: float) -> None:
    with pytest.raises((urllib.error.HTTPError, OSError)) as refused:
        urllib.request.urlopen(f"{served.address}/?t={'a' * 10**6}", timeout=120)
    assert getattr(refused.value, "code", 400) == 400  # or the connection is closed during the request

    async def in_the_session() -> float:
        async with Visitor(served.host, "", f"t={'a' * 10**6}&bits=5") as stranger:
            run = asyncio.create_task(stranger.run())
            during = await work(served)
            await run
        return during

    assert finish(in_the_session()) < 3 * undisturbed + HELD_UP


def test_a_page_of_another_site_opens_no_session(served: Server) -> None:
    async def connect(origin: str) -> None:
        async with websockets.connect(
            f"ws://{served.host}/_stcore/stream",
            origin=websockets.Origin(origin),
            subprotocols=[websockets.Subprotocol("streamlit")],
            proxy=None,
        ):
            pass

    finish(connect(served.address))
    with pytest.raises(websockets.InvalidStatus) as refused:
        finish(connect("http://evil.test"))
    assert refused.value.response.status_code == 403
    assert b"server.corsAllowedOrigins" in (refused.value.response.body or b"")
    assert any("http://evil.test may not open a session" in line for line in served.lines())
    assert "handshake" not in served.log.read_text()
    assert f"The pages are at {served.address}" in served.log.read_text()
    assert "A class " in served.log.read_text()


def test_idle_connections_are_noticed_by_nobody(served: Server, undisturbed: float) -> None:
    async def during() -> float:
        name, _, port = served.host.partition(":")
        idle = [await asyncio.open_connection(name, int(port)) for _ in range(300)]
        deadline = time.monotonic() + 300  # the system accepts connections before the server does
        while served.look_inside()["files"] <= 300:
            assert time.monotonic() < deadline, "the server did not accept 300 connections"
            await asyncio.sleep(0.1)
        found = await work(served)
        for _, writer in idle:
            writer.close()
        return found

    assert finish(during()) < 3 * undisturbed + HELD_UP


@pytest.mark.slow  # by default, idle connections are tested
def test_100_reconnects_a_second_are_noticed_by_nobody(served: Server, metrics: str) -> None:
    async def reconnect() -> None:
        with contextlib.suppress(OSError, websockets.WebSocketException):
            async with Visitor(served.host, headers={"X-Forwarded-For": "198.51.100.9"}) as stranger:
                await stranger.ask()

    async def during() -> tuple[float, float]:
        before, tasks = await median(served.host), []
        measured = asyncio.create_task(median(served.host))
        for _ in range(500):
            tasks.append(asyncio.create_task(reconnect()))
            await asyncio.sleep(0.01)
        found = await measured
        await asyncio.gather(*tasks, return_exceptions=True)
        return before, found

    before, found = finish(during())
    assert numbers(metrics)['quantscope_refused_total{limit="sessions of one address"}'] > 200
    assert found < 3 * before + 0.5


@pytest.mark.slow
def test_1000_idle_connections_are_given_up(served: Server) -> None:
    async def idle() -> int:
        name, _, port = served.host.partition(":")
        connections = [await asyncio.open_connection(name, int(port)) for _ in range(1000)]
        await asyncio.sleep(25)
        left = served.look_inside()["files"]
        for _, writer in connections:
            writer.close()
        return int(left)

    assert finish(idle()) < 500


@pytest.mark.slow
def test_a_minute_of_reconnects_is_noticed_by_nobody(served: Server) -> None:
    async def reconnect() -> None:
        with contextlib.suppress(OSError, websockets.WebSocketException):
            async with Visitor(served.host, headers={"X-Forwarded-For": "198.51.100.10"}) as stranger:
                await stranger.run()

    async def during() -> tuple[float, float]:
        before, found, tasks = await median(served.host), [], []
        for second in range(60):
            for _ in range(100):
                tasks.append(asyncio.create_task(reconnect()))
                await asyncio.sleep(0.01)
            if second > 10:  # the burst that is allowed, as for a class, is over
                found.append(await seconds(served.host))
        await asyncio.gather(*tasks)
        return before, sorted(found)[len(found) // 2]

    before, found = finish(during())
    assert found < 3 * before + 0.5
