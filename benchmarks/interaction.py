"""From a key press on the Bits slider to the painted frame, in headless Chromium.

    python benchmarks/interaction.py

Each time is given as a multiple of the floor, measured in the same run: a page with only a slider and a line
of text (floor_page.py). Budgets: 3 times the floor for 4×4, 16×16 with numbers and 128×128, and 1 s for the
overview of 4096×4096. Exits with 1 if one is exceeded.
"""

import contextlib
import os
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

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
REST = "html:not(:has(#qs-first-view)) [data-testid=stApp][data-test-script-state=notRunning]"
PRESSES = sized(16, 2)
SIZES = {
    "4×4": ("4x4", 3.0),
    "16×16, numbers": ("16x16", 3.0),
    "128×128": ("128x128", 3.0),
    "4096×4096": ("4096x4096", None),
}

# Resolves to the milliseconds from the key's event to the frame after DONE first holds.
WATCH = """
() => { window.measured = new Promise((resolve) => {
  addEventListener("keydown", () => {
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
    page.evaluate(WATCH.replace("DONE", done))
    page.keyboard.press(key)
    milliseconds = float(page.evaluate("window.measured"))
    page.wait_for_selector(REST)
    page.wait_for_timeout(150)
    return milliseconds


def measure(page: Page, address: str, done: str) -> float:
    """Return the median over key presses up and down; the first two, which fill caches, are not counted."""
    page.goto(address)
    page.wait_for_selector(REST, timeout=120_000)
    page.wait_for_timeout(1500)
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
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        unit = measure(page, floor, "document.body.innerText.includes('painted-{bits}')")
        print("| page | event to frame, ms | times the floor | budget |\n|---|---:|---:|---:|")
        print(f"| floor: a slider and a line of text | {unit:.0f} | 1.0 | |")
        for name, (shape, budget) in SIZES.items():
            address = f"{app}/?" + urlencode({"dist": "normal", "shape": shape})
            time_ms = measure(page, address, "document.querySelector('[data-painted*=\" int{bits} \"]')")
            limit = budget * unit if budget else 1000.0
            failed |= time_ms > limit
            print(
                f"| {name} | {time_ms:.0f} | {time_ms / unit:.1f} | "
                f"{f'{budget:g} times' if budget else '1,000 ms'} |"
            )
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
