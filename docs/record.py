"""Record what moves on the pages, as docs/moving.md shows it.

    python docs/record.py [bits] [value] [range] [paste]

In headless Chromium, of a server of its own, as animated WebP files beside this one.
"""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, TimeoutError, sync_playwright

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.interaction import FLAGS, REST, server  # noqa: E402
from tests.support import chromium  # noqa: E402

WIDTH, HEIGHT, HIGH = 1200, 700, 920  # px of a window, and the height of one where more is to be seen
SHOWN = 900  # px of a frame's width
STEP, REST_MS = 120, 1200  # ms of a frame of a movement, and of one to be read
FOLLOWED = 1000  # ms in which the maps follow a move, also on a busy machine
MOST = 400_000  # bytes of a file
QUALITY = 42
# A headless browser draws no pointer
POINTER = """() => {
    const at = document.createElement("div");
    const shape = `<path d="M3 2l14 9-6.5 1.2L7 19z" stroke="#fff"/>`;
    at.innerHTML = `<svg width="22" height="22" viewBox="0 0 22 22">${shape}</svg>`;
    at.style.cssText = "position:fixed;left:0;top:0;z-index:9999999;pointer-events:none";
    document.body.append(at);
    addEventListener("pointermove", (event) => {
        at.style.transform = `translate(${event.clientX - 3}px, ${event.clientY - 2}px)`;
    }, true);
}"""
PASTE = """(text) => {
    const data = new DataTransfer();
    data.setData("text/plain", text);
    const event = { clipboardData: data, bubbles: true, cancelable: true };
    document.body.dispatchEvent(new ClipboardEvent("paste", event));
}"""
CELL = """([row, column]) => {
    const plot = document.querySelector(".qs-plot"), box = plot.getBoundingClientRect();
    const { xaxis, yaxis } = plot._fullLayout;
    return [box.left + xaxis._offset + xaxis.d2p(column), box.top + yaxis._offset + yaxis.d2p(row)];
}"""
CHART = "document.querySelector('.st-key-distribution_chart .js-plotly-plot')?._fullLayout?.xaxis?._length"
NUMBER = "document.querySelector('.qs-maps').dataset.number"
PASTED = """tensor([[ 0.5000, -1.2500,  3.0000,  0.1000],
        [ 2.0000,  0.2500, -4.0000,  0.7500],
        [-0.5000,  1.5000,  0.0000, 24.0000]])"""
# What happens: yields the ms for which what is seen is shown
Scene = Callable[[Page], Iterator[int]]


def frame(shot: bytes) -> Image.Image:
    """Return a screenshot as wide as a page of documentation."""
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    return image.resize((SHOWN, round(image.height * SHOWN / image.width)), Image.Resampling.LANCZOS)


def glide(page: Page, start: tuple[float, float], end: tuple[float, float], steps: int) -> Iterator[int]:
    """Move the pointer, and let the maps follow each step."""
    for step in range(1, steps + 1):
        part = step / steps
        before = page.evaluate(NUMBER)
        page.mouse.move(*(a + (b - a) * part for a, b in zip(start, end, strict=True)))
        changed = f"() => {NUMBER} !== {before!r}"
        with contextlib.suppress(TimeoutError):  # a move within one value
            page.wait_for_function(changed, timeout=FOLLOWED)
        yield STEP


def at_rest(page: Page) -> int:
    """Wait for the page's run."""
    page.wait_for_timeout(300)
    page.wait_for_selector(REST)
    page.wait_for_timeout(300)
    return REST_MS


def center(page: Page, css: str, last: bool = False) -> tuple[float, float]:
    """Return the middle of an element."""
    every = page.locator(css)
    box = (every.last if last else every.first).bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def bits(page: Page) -> Iterator[int]:
    """Drag the Bits slider from 4 to 8, to 2, and back."""
    track = page.locator(".st-key-bits [data-orientation]").last
    track.scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    box = track.bounding_box()
    assert box is not None
    places = {n: (box["x"] + box["width"] * (n - 2) / 14, box["y"] + box["height"] / 2) for n in range(2, 9)}
    page.mouse.move(*places[4])
    yield REST_MS
    page.mouse.down()
    for start, end in ((4, 8), (8, 2), (2, 4)):
        yield from glide(page, places[start], places[end], abs(end - start))
        yield 6 * STEP
    page.mouse.up()
    yield at_rest(page)


def value(page: Page) -> Iterator[int]:
    """Drag the value of a cell of the original up with Alt held, and undo it."""
    at = cell(page, 2, 3)
    page.mouse.move(*at)
    yield REST_MS
    page.keyboard.down("Alt")
    page.mouse.down()
    up = (at[0], at[1] - 150)
    yield from glide(page, at, up, 8)
    yield REST_MS
    yield from glide(page, up, (at[0], at[1] - 60), 5)
    page.mouse.up()
    page.keyboard.up("Alt")
    yield at_rest(page)
    yield from undone(page)


def cell(page: Page, row: int, column: int) -> tuple[float, float]:
    """Return where a cell of the original is."""
    x, y = page.evaluate(CELL, [row, column])
    return x, y


def undone(page: Page) -> Iterator[int]:
    """Press Undo."""
    button = ".st-key-qs_brought button"
    page.mouse.move(*center(page, button))
    yield 6 * STEP
    page.locator(button).first.click()
    yield at_rest(page)


def ends(page: Page) -> Iterator[int]:
    """Drag both ends of the range in the histogram."""
    page.wait_for_function(CHART)
    page.locator(".st-key-distribution_chart").evaluate("(chart) => chart.scrollIntoView({ block: 'end' })")
    page.wait_for_timeout(500)
    for last, way in ((True, -150), (False, 90)):
        for y in (HIGH - 40, HIGH - 30):  # the grips come with the pointer
            page.mouse.move(WIDTH / 2, y)
            page.wait_for_timeout(300)
        at = center(page, ".qs-grip", last)
        page.mouse.move(*at)
        yield 6 * STEP
        page.mouse.down()
        yield from glide(page, at, (at[0] + way, at[1]), 8)
        yield 6 * STEP
        page.mouse.up()
        yield at_rest(page)


def paste(page: Page) -> Iterator[int]:
    """Paste a printed tensor anywhere on the page, and undo it."""
    yield REST_MS
    page.evaluate(PASTE, PASTED)
    yield 2 * at_rest(page)
    yield from undone(page)


# name of the file -> link and what happens there
SCENES: dict[str, tuple[str, Scene]] = {
    "bits": ("?per=channel", bits),
    "value": ("", value),
    "range": ("?tab=Distribution&dist=normal&shape=16x16&mode=asymmetric", ends),
    "paste": ("", paste),
}


def main() -> int:
    """Record the scenes that are named, or all; return 1 if a file became too large."""
    failed = False
    with server("app.py") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium.find(), args=FLAGS)
        for name in sys.argv[1:] or SCENES:
            query, scene = SCENES[name]
            page = browser.new_page(viewport={"width": WIDTH, "height": HIGH if name == "range" else HEIGHT})
            page.goto(f"{address}/{query}")
            page.wait_for_selector(".qs-maps[data-painted]")
            page.evaluate(POINTER)
            at_rest(page)
            frames, times = list[Image.Image](), list[int]()
            for time in scene(page):
                frames.append(frame(page.screenshot()))
                times.append(time)
            page.close()
            file = HERE / f"{name}.webp"
            frames[0].save(
                file,
                save_all=True,
                append_images=frames[1:],
                duration=times,
                loop=0,
                quality=QUALITY,
                method=6,
            )
            size = file.stat().st_size
            print(f"{file.name}: {len(frames)} frames, {size:,} bytes")
            failed |= size > MOST
        browser.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
