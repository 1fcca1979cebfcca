"""One server and one browser a session, windows of its own a test; whatever goes wrong in a page fails the test."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
import pytest
from page_rest import REST, SHOWN
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Locator,
    Page,
    TimeoutError,
    expect,
    sync_playwright,
)

ROOT = Path(__file__).resolve().parent.parent.parent
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--renderer-process-limit=1",
    "--force-prefers-reduced-motion",
]
WAIT = 30_000  # ms; a slow machine shall not fail a test, and a right page never takes it
expect.set_options(timeout=WAIT)


class App:
    """The app in one page of a browser: to open links, set controls, and read what is drawn.

    ``wrong`` collects what the page complained of; ``expected`` names the parts of complaints that the test
    provokes on purpose.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address = page, address
        self.wrong: list[str] = []
        self.expected: list[str] = []
        page.set_default_timeout(WAIT)
        page.on("pageerror", self._failed)
        page.on("request", lambda request: self._requested(request.url))
        page.on("websocket", lambda socket: self._requested(socket.url))
        page.on("console", self._logged)
        page.on("dialog", self._asked)

    def _requested(self, url: str) -> None:
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

    def complaints(self) -> list[str]:
        boxes = [] if self.page.is_closed() else self.page.get_by_test_id("stException").all()
        found = self.wrong + [f"exception box: {box.inner_text()[:300]}" for box in boxes]
        return [text for text in found if not any(part in text for part in self.expected)]

    def open(self, link: str = "", /, **parameters: object) -> "App":
        """Open a link of the app, or its parameters, and wait until everything stands."""
        self.page.goto(link or self.address + (f"/?{urlencode(parameters)}" if parameters else "/"))
        self.rest()
        return self

    def beside(self, link: str) -> "App":
        """Open a link in another tab of the same browser: a session of its own for the server."""
        other = App(self.page.context.new_page(), self.address)
        other.open(link)
        self.wrong = other.wrong = self.wrong + other.wrong
        return other

    def rest(self) -> None:
        """Wait until the script is not running and the page stands."""
        self.wait(f"document.querySelector('{REST}') && document.querySelector('.st-key-_scheme_text input')")

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
        self.page.get_by_role("button", name=name, exact=True).click()

    # Reading

    def expect_scheme(self, scheme: str) -> None:
        """Wait until the maps of this scheme are painted and the script is at rest."""
        painted, text = ".qs-maps", ".st-key-_scheme_text input"
        self.wait(
            f"""(scheme) => document.querySelector("{painted}")?.dataset.painted === ` ${{scheme}} `
                && document.querySelector("{text}")?.value === scheme && document.querySelector("{REST}")""",
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

    def wait(self, script: str, arg: Any = None) -> None:
        """Wait until a script is true; `expect` would look but once a second."""
        # of an expression Playwright would make a function anew at each look, which the page's policy forbids
        function = script if script.startswith("(") else f"() => {script}"
        try:
            self.page.wait_for_function(function, arg=arg)
        except TimeoutError:
            shown = self.page.evaluate(
                "[...document.querySelectorAll('.qs-maps')].map((e) => e.dataset.painted)"
            )
            pytest.fail(f"At {self.page.url}, with maps of {shown}, never came {script} of {arg}")

    def map(self, name: str) -> np.ndarray:
        """The values whose colors are in one of the maps: x, codes, dequantized, error."""
        return np.array(self.page.evaluate(f"{SHOWN}({name!r})"))

    def place(self, row: float, column: float, number: int = 0) -> tuple[float, float]:
        """Where the middle of a cell stands in the window."""
        script = """([row, column, number]) => {
            const plot = document.querySelector(".qs-plot"), box = plot.getBoundingClientRect();
            const name = number ? number + 1 : "";
            const xa = plot._fullLayout["xaxis" + name], ya = plot._fullLayout["yaxis" + name];
            return [box.left + xa._offset + xa.d2p(column), box.top + ya._offset + ya.d2p(row)];
        }"""
        x, y = self.page.evaluate(script, [row, column, number])
        return x, y

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


def _chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@contextlib.contextmanager
def serve(script: str = "app.py", *options: str) -> Iterator[str]:
    """Run a script of the app on a free port; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", script, "--server.headless=true"]
    command += [f"--server.port={port}", "--server.fileWatcherType=none", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                pytest.fail(f"The server ended: {process.stdout.read() if process.stdout else ''}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                break
            time.sleep(0.1)  # there is no event to wait for before the port is open
        yield address
    finally:
        process.terminate()
        process.communicate()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """One profile for all tests: with what it keeps of the scripts, a page opens in half the time."""
    path = _chromium()
    if path is None or not Path(path).exists():
        reason = f"there is no Chromium{f' at {path}' if path else ''}: install chromium, or set CHROMIUM to its path"
        if os.environ.get("CI", "").lower() in ("true", "1"):
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        profile = tmp_path_factory.mktemp("profile")
        browser = playwright.chromium.launch_persistent_context(profile, executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(browser: BrowserContext) -> Iterator[str]:
    """The app, for all tests; after `browser`, so that none is started where nobody can look at it."""
    with serve() as address:
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
def new_app(browser: BrowserContext) -> Iterator[Callable[..., App]]:
    """``new_app(address, width=1920, color_scheme="dark")``: the app at an address in a window of its own.

    What any page complained of (errors, exception boxes, requests to other hosts, dialogs) fails the test.
    """
    apps: list[App] = []

    def make(address: str, width: int = 1280, color_scheme: Any = "light") -> App:
        page = browser.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=color_scheme)
        apps.append(App(page, address))
        return apps[-1]

    yield make
    complaints = [complaint for app in apps for complaint in app.complaints()]
    for page in browser.pages[1:]:  # the first keeps the browser open
        with contextlib.suppress(Error):
            page.evaluate("localStorage.clear()")
        page.close()
    browser.clear_cookies()
    assert complaints == []


@pytest.fixture
def app(new_app: Callable[..., App], server: str) -> App:
    return new_app(server)
