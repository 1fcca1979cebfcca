"""Two replicas behind the nginx of deploy/: visitors stay where they are, and go on elsewhere when a replica goes."""

import asyncio
import concurrent.futures
import contextlib
import io
import signal
import threading
import time
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from page_rest import expect
from places import ROOT
from replicas import NGINX, SKIP, Replica, cluster
from visitor import COOKIE, Visitor

from pages.serving.classroom import ClassStore, Question, place
from pages.serving.settings import Settings
from pages.serving.tensor_store import store as tensor_store
from quantcore import tensors
from quantcore.prediction import NumberKey

# two servers and nginx: by default, a page that loses its connection is tested in test_frame.py
pytestmark = [pytest.mark.slow, pytest.mark.skipif(NGINX is None, reason=SKIP)]
SESSIONS = 8
UPLOADS = 4
MAX_UPLOAD = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text("utf-8"))["server"][
    "maxUploadSize"
]
GOES_ON = 5.0  # s, from a loss to the page as it was; on a busy machine, beside what opening the pages took
LEFT_OUT = 4  # s; nginx waits 3 s for an answer before it leaves a replica out
LIMIT = 180  # s; a slow machine shall not fail a test

SCHEME = "int6 symmetric per_channel min_max textbook"
PASTED = np.array([[0.5, -1.25, 3], [0.1, 1e-7, -3e5]], np.float32)
LARGE = np.random.default_rng(0).normal(size=(200, 200)).astype(np.float32)  # does not fit into a link

Cluster = tuple[str, list[Replica]]
Do = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("replicas")) as those:
        yield those


@pytest.fixture
def behind_nginx(started: Cluster) -> Cluster:
    """The address and its replicas, all of them ready whatever a test did with them before."""
    for each in started[1]:
        each.start()
    for each in started[1]:
        each.wait()
    return started


@pytest.fixture(scope="module")
def do() -> Iterator[Do]:
    """Run a coroutine, in a thread of its own: in this one Playwright has an event loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(LIMIT)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def npy(x: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def link(number: int) -> dict[str, object]:
    """Of each visitor another: every second one's tensor is pasted."""
    if number % 2:
        x = np.random.default_rng(number).normal(size=(4, 6)).astype(np.float32)
        return {"src": "paste", "t": tensors.encode(x), "bits": 3 + number % 5}
    return {"seed": number, "bits": 3 + number % 5, "per": "channel"}


def shared(folder: Path) -> str:
    """Share a tensor that does not fit into a link; returns what a link says instead."""
    store = tensor_store.opened_at(Settings(store=str(folder)))
    assert store
    return "shared." + store.share(LARGE, "a visitor", LARGE.nbytes * 2)


@contextlib.asynccontextmanager
async def visitors(address: str, *links: dict[str, object]) -> AsyncIterator[list[Visitor]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [Visitor(address, **given) for given in links]
        await asyncio.gather(*(stack.enter_async_context(visitor) for visitor in made))
        yield made


async def work(visitor: Visitor, until: asyncio.Event) -> None:
    """Change the bits about once a second, there and back."""
    first = int(str(visitor.link["bits"]))
    while not until.is_set():
        for bits in (first + 1, first):
            await visitor.slide("bits", bits)
            assert visitor.scheme.startswith(f"int{bits} ")
            await asyncio.sleep(0.5)


def test_sessions_uploads_and_media_keep_to_their_replica(behind_nginx: Cluster, do: Do) -> None:
    address, replicas = behind_nginx

    async def check() -> None:
        links = [link(number) | {"tab": "Export"} for number in range(SESSIONS - UPLOADS)] + [
            {"src": "upload"}
        ] * UPLOADS
        async with visitors(address, *links) as those:
            assert Counter(visitor.replica for visitor in those) == {
                each.name: SESSIONS // 2 for each in replicas
            }
            *offered, elsewhere = await asyncio.gather(
                *(visitor.download() for visitor in those[:-UPLOADS]), stray(those[0])
            )
            assert {answer.status_code for answer in offered} == {200}
            assert elsewhere.status_code == 404
            file = npy(np.eye(3, 5, dtype=np.float32))
            uploads = await asyncio.gather(*(visitor.upload("x.npy", file) for visitor in those[-UPLOADS:]))
            assert {answer.status_code for answer in uploads} == {204}
            assert all(visitor.maps for visitor in those)
            assert len({visitor.maps for visitor in those[-UPLOADS:]}) == 1
            # the checkout's settings are in the image, and are read there
            assert {visitor.largest_upload for visitor in those[-UPLOADS:]} == {MAX_UPLOAD}

    async def stray(visitor: Visitor) -> requests.Response:
        """The same request with the other replica's name: this is what the cookie prevents."""
        other = next(each.name for each in replicas if each.name != visitor.replica)
        with Visitor(address).http as http:
            http.cookies.set(COOKIE, other)
            return await asyncio.to_thread(http.get, address + visitor.media[-1])

    do(check())


def test_without_cookies_the_address_decides(behind_nginx: Cluster, do: Do) -> None:
    address, _ = behind_nginx

    async def check() -> None:
        async with Visitor(address) as one:
            sessions = set()
            for _ in range(6):
                one.http.cookies.clear()
                await one.socket.close()
                one.http.get(f"{address}/_stcore/health")
                await one.connect()
                sessions.add(one.replica)
            assert len(sessions) == 1

    do(check())


def test_the_proxy_passes_on_what_the_app_judges(behind_nginx: Cluster) -> None:
    """Host and Origin, by which it knows its own pages, and links that are too long."""
    address, _ = behind_nginx
    _, port = address.removeprefix("http://").split(":")
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    upgrade |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    for host, origin, status in [
        (f"quant.example.org:{port}", f"https://quant.example.org:{port}", 101),
        (f"quant.example.org:{port}", "https://quant.example.org", 403),
        (f"quant.example.org:{port}", "https://evil.test", 403),
    ]:
        headers = upgrade | {"Host": host, "Origin": origin}
        with requests.get(f"{address}/_stcore/stream", headers=headers, stream=True, timeout=10) as answer:
            assert answer.status_code == status
            assert status == 101 or "server.corsAllowedOrigins" in answer.text
    long = requests.get(f"{address}/?t={'a' * 100_000}", timeout=10)
    assert long.status_code == 414
    assert "This link is too long: it has 100,004 characters" in long.text


def test_an_upload_reaches_its_replica_after_that_was_slow(behind_nginx: Cluster, do: Do) -> None:
    """nginx leaves a slow replica out for a while, and the body of an upload can be sent to one server only."""
    address, replicas = behind_nginx

    async def check() -> None:
        async with visitors(address, {"src": "upload"}) as (visitor,):
            (here,) = (each for each in replicas if each.name == visitor.replica)
            next(each for each in replicas if each is not here).kill()
            assert here.process
            here.process.send_signal(signal.SIGSTOP)
            with contextlib.suppress(requests.ReadTimeout):
                await asyncio.to_thread(visitor.http.get, f"{address}/_stcore/health", timeout=LEFT_OUT)
            here.process.send_signal(signal.SIGCONT)
            answer = await visitor.upload("x.npy", npy(LARGE))
            assert answer.status_code == 204
            assert visitor.maps

    do(check())


def test_an_upload_to_a_replica_that_is_gone_is_refused_at_once(behind_nginx: Cluster) -> None:
    address, replicas = behind_nginx
    replicas[0].kill()
    upload = f"{address}/_stcore/upload_file/session/file"
    gone = {"Cookie": f"{COOKIE}={replicas[0].name}.1"}
    answer = requests.put(upload, data=npy(LARGE), headers=gone, timeout=LEFT_OUT)
    assert answer.status_code == 503
    assert "Reload the page" in answer.text


def test_visitors_go_on_when_a_replica_is_killed_and_when_the_other_is_restarted(
    behind_nginx: Cluster, do: Do
) -> None:
    address, (first, second) = behind_nginx

    async def check() -> None:
        links = [*map(link, range(SESSIONS - 1)), {"src": "paste", "t": shared(first.store), "bits": 5}]
        async with visitors(address, *links) as those:
            assert all(visitor.maps for visitor in those)
            opened = max(visitor.opened for visitor in those)
            shown = [(visitor.scheme, visitor.maps) for visitor in those]
            assert {visitor.replica for visitor in those} == {first.name, second.name}
            await leave(those, first, first.kill, opened)
            first.start()
            await asyncio.to_thread(first.wait)
            await leave(those, second, second.stop, opened)
            for visitor in those:
                await visitor.run()
            assert [(visitor.scheme, visitor.maps) for visitor in those] == shown

    async def leave(those: list[Visitor], gone: Replica, go: Callable[[], object], opened: float) -> None:
        """Take a replica away while all work; every page is at the other soon."""
        there = [visitor for visitor in those if visitor.replica == gone.name]
        assert there
        until = asyncio.Event()
        working = [asyncio.create_task(work(visitor, until)) for visitor in those]
        await asyncio.sleep(1)
        await asyncio.to_thread(go)
        await asyncio.sleep(2)
        until.set()
        await asyncio.gather(*working)
        assert not [visitor for visitor in those if visitor.replica == gone.name]
        slowest = max(visitor.lost for visitor in there)
        print(f"{gone.name} gone: {slowest:.2f} s; opening took {opened:.2f} s")
        assert slowest < GOES_ON + opened

    do(check())


def students(address: str, code: str, over: threading.Event) -> tuple[int, int, list[str]]:
    """One student who changes the answer until it is over; returns how many were acknowledged, how many were not, and the last
    one that may have been counted: the last acknowledged, or one sent later.
    """
    acknowledged = refused = 0
    counted: list[str] = []
    with requests.Session() as http:

        def post(name: str, **content: object) -> dict[str, Any] | None:
            try:
                answer = http.post(f"{address}/class/{code}/{name}", json=content, timeout=LIMIT)
            except requests.ConnectionError:
                return None
            return dict(answer.json()) if answer.status_code == 200 else None

        joined = post("join")
        assert joined
        value = 0
        while not over.is_set():
            value += 1
            found = post("answer", browser=joined["browser"], round=joined["round"], typed=[str(value)])
            if found:
                acknowledged, counted = acknowledged + 1, [str(value)]
            else:
                refused, counted = refused + 1, [*counted, str(value)]
        last = post("state", browser=joined["browser"])
        assert last
        assert last["mine"][0] in counted
        return acknowledged, refused, counted


def test_no_acknowledged_answer_of_a_class_is_lost_when_a_replica_is_killed(behind_nginx: Cluster) -> None:
    """Twelve classes, so that the proxy sends some to either replica."""
    address, (first, second) = behind_nginx
    classes = ClassStore(first.store / place.NAME)
    asked = Question("Which code?", "", ("x = 0.3",), (NumberKey("1"),))
    begun = [classes.begin() for _ in range(12)]
    for code, secret in begun:
        classes.ask(code, secret, asked)
    over = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(36) as pool:
        working = [pool.submit(students, address, code, over) for code, _ in begun for _ in range(3)]
        time.sleep(3)
        first.kill()
        time.sleep(3)
        over.set()
        found = [each.result() for each in working]
    print(f"{sum(each[0] for each in found)} acknowledged, {sum(each[1] for each in found)} refused")
    assert second.process
    assert second.process.poll() is None
    assert all(acknowledged > 2 for acknowledged, _, _ in found)
    for number, (code, secret) in enumerate(begun):
        (tally,) = classes.tallies(code, secret)
        assert tally.answered == 3
        may = [counted for _, _, counted in found[3 * number : 3 * number + 3]]
        assert all(any(value in counted for counted in may) for value in tally.counts[0])
    classes.close()


# Notes when the connection was lost, and when the first run after it had ended
WATCH = """() => {
    const app = document.querySelector("[data-testid=stApp]");
    const seen = window.seen = {};
    let ran = false;
    new MutationObserver(() => {
        const { testConnectionState: connection, testScriptState: script } = app.dataset;
        if (connection !== "CONNECTED") seen.lost ??= performance.now();
        else if (seen.lost && script === "running") ran = true;
        else if (ran && script === "notRunning") seen.back ??= performance.now();
    }).observe(app, { attributes: true });
}"""


def replica_of(app: Any) -> str:
    (name,) = {cookie["value"] for cookie in app.page.context.cookies() if cookie["name"] == COOKIE}
    return str(name)


def upload(app: Any, name: str, x: np.ndarray) -> None:
    field = app.page.locator(".stSidebar input[type=file]")
    field.set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": npy(x)})


def test_pages_go_on_at_the_other_replica(new_app: Callable[..., Any], behind_nginx: Cluster) -> None:
    address, replicas = behind_nginx
    pasted, uploaded = new_app(address), new_app(address)
    begin = time.monotonic()
    pasted.open(src="paste", t=tensors.encode(PASTED), bits=6, per="channel", tab="Export")
    opened = time.monotonic() - begin
    uploaded.open(src="upload", bits=6, per="channel")
    upload(uploaded, "weights.npy", LARGE)
    for app in (pasted, uploaded):
        app.expect_scheme(SCHEME)
    expect(uploaded.page.get_by_test_id("stFileChip")).to_have_count(1)
    codes = pasted.map("codes")
    here = replica_of(pasted)
    for app in (pasted, uploaded):
        app.page.evaluate(WATCH)

    next(each for each in replicas if each.name == here).kill()
    for app in (pasted, uploaded):
        app.wait("window.seen.back")
        seconds = app.page.evaluate("(window.seen.back - window.seen.lost) / 1000")
        print(f"{seconds:.2f} s; opening took {opened:.2f} s")
        assert seconds < GOES_ON + opened
    assert replica_of(pasted) != here

    pasted.expect_scheme(SCHEME)
    np.testing.assert_array_equal(pasted.map("x"), PASTED)
    np.testing.assert_array_equal(pasted.map("codes"), codes)
    with pasted.page.expect_download() as download:
        pasted.button("NumPy .npz")
    with np.load(download.value.path()) as arrays:
        np.testing.assert_array_equal(arrays["codes"], codes)
    pasted.input("bits").focus()
    pasted.page.keyboard.press("ArrowRight")
    pasted.expect_scheme(SCHEME.replace("int6", "int7"))

    # nobody else has the file: the page asks for it by its name, in a field that is empty
    expect(uploaded.page.get_by_test_id("stAlert").filter(has_text="weights.npy")).to_be_visible()
    expect(uploaded.page.get_by_test_id("stFileChip")).to_have_count(0)
    upload(uploaded, "weights.npy", LARGE)
    uploaded.expect_scheme(SCHEME)
    np.testing.assert_array_equal(uploaded.map("x"), LARGE)
