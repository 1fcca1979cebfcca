"""One server and one browser a session, windows of its own a test; whatever goes wrong in a page fails the test."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import IO, Any
from urllib.parse import urlencode, urlsplit

import chromium
import numpy as np
import pytest
from page_rest import REST, SHOWN, WAIT, WATCH_RUNS
from places import ROOT
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Locator,
    Page,
    Request,
    TimeoutError,
    WebSocket,
    sync_playwright,
)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--in-process-gpu",  # what draws without a GPU needs no process of its own: a sixth of the processor time
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",
    # One process draws all pages, and knows the scripts already: a page opens in 0.6 of the processor time. Only
    # one compiler optimizes, where errors come from is known without compiling once more, and memory is not looked
    # through before there is much of it: all journeys take 0.94 of the processor time and 0.9 of the time.
    "--process-per-site",
    "--js-flags=--no-flush-bytecode,--no-opt,--maglev,--single-threaded-gc,--no-enable-lazy-source-positions,"
    "--min-semi-space-size=16,--max-semi-space-size=64,--initial-old-space-size=1500",
]
_FUNCTION = re.compile(r"(async )?\([^()]*\) =>")
_STATE = """({ maps: [...document.querySelectorAll('.qs-maps')].map((e) => e.dataset.painted),
    runs: { ...window.qsRuns, socket: window.qsRuns?.socket?.readyState },
    app: document.querySelector('[data-testid=stApp]')?.dataset,
    says: document.querySelector('[data-testid=stMain]')?.innerText.slice(0, 600) })"""
_SCHEME = "document.querySelector('.qs-maps')?.dataset.painted"


class Tabs:
    """Tabs of a browser, which are used again: a page opens in two thirds of the time that it takes in a new one.

    A tab comes as if it were new: empty, without a history, and with nothing kept by the app.
    """

    def __init__(self, browser: BrowserContext) -> None:
        self.browser = browser
        self.apps: list[App] = []  # those that are open
        self._free: list[Page] = []

    def take(self, app: "App") -> Page:
        self.apps.append(app)
        page = self._free.pop() if self._free and not app.own else self.browser.new_page()
        page.bring_to_front()
        return page

    def give_back(self, app: "App") -> None:
        self.apps.remove(app)
        if not app.page.is_closed():
            try:
                self._empty(app.page)
            except Error:
                app.own = True
            if app.own:
                app.page.close()
            else:
                self._free.append(app.page)
        if self.apps:  # as when a tab is closed
            with contextlib.suppress(Error):
                self.apps[-1].page.bring_to_front()

    def _empty(self, page: Page) -> None:
        page.unroute_all()
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.goto("about:blank")
        page.mouse.move(0, 0)
        session = self.browser.new_cdp_session(page)
        session.send("Page.resetNavigationHistory")
        session.detach()


class App:
    """The app in one page of a browser: to open links, set controls, and read what is drawn.

    ``wrong`` collects what the page complained of; ``expected`` names the parts of complaints that the test
    provokes on purpose.
    """

    def __init__(self, tabs: Tabs, address: str, own: bool = False) -> None:
        self.tabs, self.address, self.own = tabs, address, own
        self.page = tabs.take(self)
        self.wrong: list[str] = []
        self.expected: list[str] = []
        self.page.set_default_timeout(WAIT)
        self._heard: dict[Any, Callable[..., None]] = {
            "pageerror": self._failed,
            "request": self._requested,
            "websocket": self._requested,
            "console": self._logged,
            "dialog": self._asked,
        }
        for event, hear in self._heard.items():
            self.page.on(event, hear)

    def close(self) -> None:
        """Leave the page; its session on the server ends."""
        if self in self.tabs.apps:
            self.wrong += self._exceptions()
            for event, hear in self._heard.items():
                self.page.remove_listener(event, hear)
            self.tabs.give_back(self)

    def _requested(self, request: Request | WebSocket) -> None:
        url = request.url
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.address).netloc:
            self.wrong.append(f"left the machine: {url[:200]}")

    def _failed(self, error: Error) -> None:
        # Streamlit's own chart, where one is taken away while its plotly.js draws it: nothing is seen of that
        own = error.message == "t.emit is not a function" and "/PlotlyChart." in (error.stack or "")
        if not own:
            self.wrong.append(f"page error: {error} {error.stack}")

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.wrong.append(f"console: {message.text[:300]} {message.location.get('url', '')}")

    def _asked(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _exceptions(self) -> list[str]:
        if self not in self.tabs.apps or self.page.is_closed():
            return []
        boxes = self.page.get_by_test_id("stException").all()
        return [f"exception box: {box.inner_text()[:300]}" for box in boxes]

    def complaints(self) -> list[str]:
        found = self.wrong + self._exceptions()
        return [text for text in found if not any(part in text for part in self.expected)]

    def open(self, link: str = "", /, **parameters: object) -> "App":
        """Open a link of the app, or its parameters, and wait until everything stands."""
        self.page.goto(link or self.address + (f"/?{urlencode(parameters)}" if parameters else "/"))
        self.rest()
        return self

    def another(self) -> "App":
        """Another tab of the same browser: a session of its own for the server. What goes wrong there counts here."""
        other = App(self.tabs, self.address)
        other.wrong, other.expected = self.wrong, self.expected
        return other

    def beside(self, link: str) -> "App":
        """Open a link in another tab."""
        return self.another().open(link)

    def rest(self) -> None:
        """Wait until the runs that were asked for have ended, the page stands and its maps are painted."""
        self.wait(f"{REST} && document.querySelector('.st-key-_scheme_text input')")

    def key(self, key: str) -> Locator:
        return self.page.locator(f".st-key-{key}")

    def input(self, key: str) -> Locator:
        return self.key(key).locator("input, textarea").first

    # Setting controls, as a visitor does

    def type(self, key: str, text: str) -> None:
        field = self.input(key)
        field.fill(text)
        field.press("Control+Enter" if field.evaluate("e => e.tagName") == "TEXTAREA" else "Enter")

    def choose(self, key: str, option: str) -> None:
        """In a selectbox."""
        self.input(key).click()
        self.page.get_by_role("option", name=option, exact=True).click()

    def press(self, key: str, name: str) -> None:
        """In a row of choices."""
        self.key(key).get_by_role("radio", name=name, exact=True).click()

    def tick(self, key: str) -> None:
        self.key(key).locator("label").first.click()

    def tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name, exact=True).click()

    def button(self, name: str) -> None:
        self.page.mouse.move(0, 0)  # what appears beside the pointer may cover the button for as long as it rests
        self.page.get_by_role("button", name=name, exact=True).click()

    # Reading

    def expect_scheme(self, scheme: str) -> None:
        """Wait until the maps of this scheme are painted and the page is at rest."""
        text = "document.querySelector('.st-key-_scheme_text input')?.value"
        self.wait(f"(scheme) => {_SCHEME} === ` ${{scheme}} ` && {text} === scheme && {REST}", scheme)

    def expect_maps(self, scheme: str = "") -> None:
        """Wait until the page is at rest with maps, of this scheme if one is given, on any page."""
        self.wait(
            f"(scheme) => (scheme ? {_SCHEME} === ` ${{scheme}} ` : {_SCHEME} !== undefined) && {REST}",
            scheme,
        )

    def expect_parameters(self, **parameters: str) -> None:
        """Wait until the link holds exactly these; a tensor's values may stand beside them."""
        script = """(wanted) => {
            const found = [...new URLSearchParams(location.search)].filter(([key]) => key !== "t");
            return JSON.stringify(found.sort()) === JSON.stringify(Object.entries(wanted).sort());
        }"""
        self.wait(script, parameters)

    def expect_parameter(self, key: str, value: str | None) -> None:
        """Wait until the link holds one, or does not (None)."""
        self.wait("([key, value]) => new URLSearchParams(location.search).get(key) === value", [key, value])

    def wait(self, script: str, arg: Any = None) -> Any:
        """Wait until a script is true, and return what it then gives; `expect` would look but once a second."""
        # of an expression Playwright would make a function anew at each look, which the page's policy forbids
        function = script if _FUNCTION.match(script) else f"() => {script}"
        try:
            return self.page.wait_for_function(function, arg=arg, polling=60).json_value()
        except TimeoutError:
            pytest.fail(f"At {self.page.url}, {self.page.evaluate(_STATE)}, never came {script} of {arg}")

    def map(self, name: str) -> np.ndarray:
        """The values whose colors are in one of the maps (x, codes, dequantized, error), once these are of the latest run."""
        return np.array(self.wait(f"(name) => {REST} && {SHOWN}(name)", name))

    def maps(self, script: str, arg: Any = None) -> Any:
        """What a function of the page reads from the maps, once these are of the latest run."""
        return self.wait(
            f"(arg) => {REST} && document.querySelector('.qs-maps[data-number]') && [({script})(arg)]", arg
        )[0]

    def place(self, row: float, column: float, number: int = 0) -> tuple[float, float]:
        """Where the middle of a cell stands in the window."""
        return self.places([(row, column)], number)[0]

    def places(self, cells: list[tuple[float, float]], number: int = 0) -> list[tuple[float, float]]:
        """As `place`, of many cells at once."""
        script = """([cells, number]) => {
            const plot = document.querySelector(".qs-plot"), box = plot.getBoundingClientRect();
            const name = number ? number + 1 : "";
            const xa = plot._fullLayout["xaxis" + name], ya = plot._fullLayout["yaxis" + name];
            return cells.map(([row, column]) => [box.left + xa._offset + xa.d2p(column), box.top + ya._offset + ya.d2p(row)]);
        }"""
        return [(x, y) for x, y in self.maps(script, [cells, number])]

    def point(self, row: float, column: float, number: int = 0) -> None:
        """Move the mouse over a cell."""
        self.page.locator(".qs-plot").scroll_into_view_if_needed()
        self.page.mouse.move(*self.place(row, column, number))

    def click(self, row: float, column: float, number: int = 0) -> None:
        self.point(row, column, number)
        self.page.mouse.down()
        self.page.mouse.up()

    def drag(self, start: tuple[float, float], stop: tuple[float, float]) -> None:
        """Draw a box with the mouse from one place in the first map to another."""
        self.point(*start)
        self.page.mouse.down()
        self.page.mouse.move(*self.place(*stop), steps=8)
        self.page.mouse.up()


@contextlib.contextmanager
def serve(script: str = "app.py", *options: str, below: str = "") -> Iterator[str]:
    """Run a script of the app on a free port, ``below`` this path; yield its address.

    Only the first page is warm: a test pays for the pages that it opens.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", script, "--server.headless=true"]
    command += [f"--server.port={port}", "--server.fileWatcherType=none", *options]
    environment = {"QUANTSCOPE_WARM_UP": "first", **os.environ}
    # a file: a pipe that nobody reads would stop the server once it is full
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment) as process,
    ):
        try:
            address = f"http://127.0.0.1:{port}{below}"
            answer(address, process, log)
            yield address
        finally:
            process.terminate()


def answer(address: str, process: "subprocess.Popen[bytes]", log: IO[str]) -> None:
    """Wait until a server answers."""
    for _ in range(1800):
        if process.poll() is not None:
            log.seek(0)
            pytest.fail(f"The server ended: {log.read()}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
            return
        time.sleep(0.1)  # there is no event to wait for before the port is open
    pytest.fail("The server does not answer")


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One profile for all tests: with what it keeps of the scripts, a page opens in half the time."""
    try:
        path = chromium.find()
    except chromium.NoChromium as error:
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    with sync_playwright() as playwright:
        profile = tmp_path_factory.mktemp("profile")
        # Playwright asks for motion unless told not to, whatever the browser's flags say: a picture read while its
        # colors glide is between two
        browser = playwright.chromium.launch_persistent_context(
            profile, executable_path=path, args=FLAGS, reduced_motion="reduce"
        )
        browser.add_init_script(WATCH_RUNS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tabs(browser: BrowserContext) -> Tabs:
    return Tabs(browser)


@pytest.fixture(scope="session")
def server(browser: BrowserContext) -> Iterator[str]:
    """The app, for all tests; after `browser`, so that none is started where nobody can look at it."""
    with serve() as address:
        # the first tab keeps the browser open, and the process that draws the app's pages
        browser.pages[0].goto(f"{address}/_stcore/health")
        yield address


@pytest.fixture
def serving(browser: BrowserContext) -> Callable[..., Any]:
    """`serve`, for tests of other entries."""
    return serve


@pytest.fixture
def fresh_server(browser: BrowserContext) -> Iterator[str]:
    """The app as nobody has opened it yet."""
    with serve() as address:
        yield address


@pytest.fixture
def new_app(tabs: Tabs) -> Iterator[Callable[..., App]]:
    """``new_app(address, width=1920, color_scheme="dark")``: the app at an address in a window of its own.

    What any page complained of (errors, exception boxes, requests to other hosts, dialogs) fails the test. A
    test that leaves in its tab what cannot be taken back, such as an init script, asks for ``own=True``.
    """
    apps: list[App] = []

    def make(address: str, width: int = 1280, color_scheme: Any = "light", own: bool = False) -> App:
        app = App(tabs, address, own)
        app.page.set_viewport_size({"width": width, "height": 900})
        app.page.emulate_media(color_scheme=color_scheme)
        apps.append(app)
        return app

    yield make
    complaints = [complaint for app in apps for complaint in app.complaints()]
    for app in tabs.apps[::-1]:
        app.close()
    tabs.browser.clear_cookies()
    assert complaints == []


@pytest.fixture
def clipboard(browser: BrowserContext) -> Iterator[None]:
    """Tabs may read and write the clipboard."""
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    yield
    browser.clear_permissions()


@pytest.fixture
def app(new_app: Callable[..., App], server: str) -> App:
    return new_app(server)
