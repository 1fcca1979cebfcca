"""From a key press on the Bits slider, and from a move of the pointer that drags it, to the painted maps.

    python benchmarks/interaction.py

In headless Chromium. A key's time is given as a multiple of the floor, measured in the same run: a page with
only a slider and a line of text (floor_page.py). Budgets: 0.8 times the floor for 4×4, 16×16 with numbers and
128×128, and 1 s for the overview of 4096×4096; for a drag, the 95th percentile in milliseconds. Exits with 1
if one is exceeded.
"""

import contextlib
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.smallest import sized
from tests.support import chromium

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
REST = "html:not(:has(#qs-first-view)) [data-testid=stApp][data-test-script-state=notRunning]"
PRESSES = sized(16, 2)
SIZES = {
    "4×4": ("4x4", 0.8),
    "16×16, numbers": ("16x16", 0.8),
    "128×128": ("128x128", 0.8),
    "4096×4096": ("4096x4096", None),
}
DRAGGED = {
    "8×8": ("8x8", 33),
    "64×128": ("64x128", 33),
    "128×128": ("128x128", 33),
    "512×512": ("512x512", 66),
}
ROUNDS = sized(4, 1)  # of a drag over all widths and back
PAINTED = "document.querySelector('[data-painted*=\" int{bits} \"]')"

# Resolves to the milliseconds from the event to the frame after DONE first holds.
WATCH = """
() => { window.measured = new Promise((resolve) => {
  addEventListener("EVENT", () => {
    const start = performance.now(), ready = () => DONE;
    const done = () => resolve(performance.now() - start);
    const look = () => requestAnimationFrame(ready() ? done : look);
    requestAnimationFrame(look);
  }, { once: true, capture: true });
}) }
"""


@contextlib.contextmanager
def server(script: str) -> Iterator[str]:
    """Run a Streamlit script on a free port; yield its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        script,
        "--server.headless=true",
        f"--server.port={port}",
    ]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/_stcore/health", timeout=1)
                break
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()


def press(page: Page, key: str, done: str) -> float:
    """Press a key on the slider and return the milliseconds until ``done`` is painted."""
    page.evaluate(WATCH.replace("EVENT", "keydown").replace("DONE", done))
    page.keyboard.press(key)
    milliseconds = float(page.evaluate("window.measured"))
    page.wait_for_selector(REST)
    page.wait_for_timeout(150)
    return milliseconds


def open_page(page: Page, address: str) -> None:
    """Open a page and let it come to rest."""
    page.goto(address)
    page.wait_for_selector(REST, timeout=120_000)
    page.wait_for_timeout(1500)


def drag(page: Page, address: str) -> list[float]:
    """Drag the slider over all widths and back, in sorted milliseconds from each move to the painted maps.

    The first way, on which the server computes each picture for the first time, counts as the others do.
    """
    open_page(page, address)
    box = page.locator(".st-key-bits [data-orientation]").last.bounding_box()
    assert box is not None
    at = lambda bits: (box["x"] + box["width"] * (bits - 2) / 14, box["y"] + box["height"] / 2)  # noqa: E731
    page.mouse.move(*at(4))
    page.mouse.down()
    times = []
    for bits in ROUNDS * [*range(5, 17), *range(15, 1, -1), 3, 4]:
        page.evaluate(WATCH.replace("EVENT", "pointermove").replace("DONE", PAINTED.format(bits=bits)))
        page.mouse.move(*at(bits))
        times.append(float(page.evaluate("window.measured")))
    page.mouse.up()
    page.wait_for_selector(REST)
    return sorted(times)


def measure(page: Page, address: str, done: str) -> float:
    """Return the median over key presses up and down; the first two, which fill caches, are not counted."""
    open_page(page, address)
    page.locator(".st-key-bits input[type=range]").focus()
    times, bits = [], 4
    for i in range(PRESSES + 2):
        up = bits < 16 and i < 12
        bits += 1 if up else -1
        times.append(press(page, "ArrowRight" if up else "ArrowLeft", done.format(bits=bits)))
    return statistics.median(times[2:])


def main() -> int:
    """Print the table; return 1 if a budget is exceeded."""
    failed = False
    with (
        server("app.py") as app,
        server("benchmarks/floor_page.py") as floor,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        unit = measure(page, floor, "document.body.innerText.includes('painted-{bits}')")
        print("| page | event to frame, ms | times the floor | budget |\n|---|---:|---:|---:|")
        print(f"| floor: a slider and a line of text | {unit:.0f} | 1.0 | |")
        for name, (shape, budget) in SIZES.items():
            address = f"{app}/?" + urlencode({"dist": "normal", "shape": shape})
            time_ms = measure(page, address, PAINTED)
            limit = budget * unit if budget else 1000.0
            failed |= time_ms > limit
            print(
                f"| {name} | {time_ms:.0f} | {time_ms / unit:.1f} | "
                f"{f'{budget:g} times' if budget else '1,000 ms'} |"
            )
        print("\n| dragged | move to frame, ms: median | 95th percentile | budget |\n|---|---:|---:|---:|")
        for name, (shape, most) in DRAGGED.items():
            times = drag(page, f"{app}/?" + urlencode({"dist": "normal", "shape": shape}))
            p95 = times[int(0.95 * len(times))]
            failed |= p95 > most
            print(f"| {name} | {statistics.median(times):.0f} | {p95:.0f} | {most} ms |")
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
