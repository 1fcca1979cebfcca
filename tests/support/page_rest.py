"""How browser tests wait for a page; Playwright's `expect` would, after its first looks, look but once a second."""

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect as playwright_expect

WAIT = 60_000  # ms; a busy machine shall not fail a test, and a right page never takes it
# ms; in that time Playwright looks four times, and then it describes the page, which takes as long as a run of it
LOOKS = 900

# Run in every page before its own scripts: notes when it last asked for a run, and when one last began. The
# page itself shows that a run is under way only once the server has answered, and until then looks as if it
# were at rest
WATCH_RUNS = """(() => {
    const runs = window.qsRuns = { now: 0, asked: 0, begun: 0 }, RERUN = 11, NEW_SESSION = 4;  // fields of BackMsg and ForwardMsg
    const type = (data) => {  // of a message, the first field that is neither its hash (1) nor its metadata (2)
        if (typeof data === "string") return 0;
        const bytes = new Uint8Array(data.buffer ?? data, data.byteOffset ?? 0, data.byteLength);
        let at = 0;
        const number = () => { let found = 0, k = 1, byte; do { byte = bytes[at++]; found += (byte & 127) * k; k *= 128; } while (byte > 127); return found; };
        while (at < bytes.length) {
            const tag = number();
            if (tag >> 3 > 2 || (tag & 7) !== 2) return tag >> 3;
            const length = number();
            at += length;
        }
        return 0;
    };
    window.WebSocket = class extends window.WebSocket {
        constructor(...given) {
            super(...given);
            runs.socket = this;
            runs.reconnected = (runs.reconnected ?? -1) + 1;
            this.addEventListener("message", ({ data }) => { if (type(data) === NEW_SESSION) runs.begun = ++runs.now; });
        }
        send(data) {
            if (type(data) === RERUN) runs.asked = ++runs.now;
            super.send(data);
        }
    };
})()"""
# The maps that are painted are those of the latest run; so they are where the page has none
PAINTED = """[...document.querySelectorAll("[data-maps]")].every((e) => document.querySelector(`.qs-maps[data-number="${e.dataset.maps}"]`))"""
# The page is shown, every run that it asked for has ended, and the maps are painted
REST = f"""(document.querySelector("html:not(:has(#qs-first-view)) [data-testid=stApp][data-test-script-state=notRunning]")
    && !(window.qsRuns?.asked > window.qsRuns?.begun) && {PAINTED})"""
# The values drawn in a map, row by row; undefined while there is no map
SHOWN = """((map) => { const shown = document.querySelector(".qs-maps")?.shown, values = shown?.values[map];
    return values && Array.from({ length: values.length / shown.width }, (_, row) =>
        Array.from(values.subarray(row * shown.width, (row + 1) * shown.width))); })"""


def at_rest(page: Any, heading: str = "") -> None:
    """Wait until the page is at rest and a heading of its main part contains these words."""
    page.wait_for_function(
        f"""(words) => {REST} && (!words
            || [...document.querySelectorAll("[data-testid=stMain] :is(h1, h2, h3, h4)")]
                .some((e) => e.innerText.includes(words)))""",
        arg=heading,
        timeout=120_000,  # some pages take long to compute
    )


def expect(found: Any) -> Any:
    """Playwright's assertions about a locator or a page, which look again and again within a second."""
    return _Assertions(playwright_expect(found))


class _Assertions:
    def __init__(self, given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Callable[..., None]:
        assertion = getattr(self._given, name)

        def until_true(*wanted: Any, timeout: float = WAIT, **options: Any) -> None:
            last = time.monotonic() + timeout / 1000
            while True:
                try:
                    return assertion(*wanted, timeout=LOOKS, **options)
                except AssertionError:
                    if time.monotonic() > last:
                        raise

        return until_true
