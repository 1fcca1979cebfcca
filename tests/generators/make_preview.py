"""Makes the picture that previews of links show, from the app's own maps: tests/generators/make_preview.py

It needs Chromium. The maps are those of an example image in 3 bits, as the page draws them for slides.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

import io
import tempfile

import chromium
from PIL import Image
from playwright.sync_api import sync_playwright
from served import serve

from pages.serving.middleware.page_head import PICTURE, SIZE
from pages.shared.identity import NAME, PURPOSE

LINK = "?src=example&ex=landscape-128x192&bits=3&codes=unsigned&mode=asymmetric&cell=127,191"
CARD = """async ([name, purpose]) => {
    const maps = await document.querySelector(".qs-maps").qsDrawn(), size = maps.viewBox.baseVal;
    const outlined = "[stroke='rgb(216, 27, 96)'], [stroke='rgba(255, 255, 255, 0.9)']";
    for (const outline of maps.querySelectorAll(outlined)) outline.remove();
    maps.setAttribute("style", `width: 780px; height: ${780 * size.height / size.width}px; flex: none`);
    const card = document.createElement("div");
    card.style = `position: fixed; inset: 0; z-index: 999999999; background: #fff; color: #31333f;
        display: flex; align-items: center; gap: 30px; padding-left: 50px; box-sizing: border-box`;
    card.innerHTML = `<div style="width: 330px; flex: none"><div
        style="font-size: 58px; font-weight: 700; letter-spacing: -1px"></div><div
        style="font-size: 34px; line-height: 1.3; margin-top: 14px"></div></div>`;
    card.firstChild.firstChild.textContent = name;
    card.firstChild.lastChild.textContent = purpose[0].toUpperCase() + purpose.slice(1);
    card.append(maps);
    document.body.append(card);
}"""


def main() -> None:
    """Serve the app, draw the card, and write it with 256 colors."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder)) as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium.find())
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.goto(f"{server.address}/{LINK}")
        page.locator(".qs-maps[data-painted]").wait_for()
        page.locator("#qs-first-view").wait_for(state="detached")
        page.evaluate(CARD, [NAME, PURPOSE])
        page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
        picture = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
