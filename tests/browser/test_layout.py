"""What is visible without scrolling: all of the four maps, and the arithmetic of a clicked cell."""

from typing import Any

import pytest
from parts import some
from playwright.sync_api import expect

SIZES = [(1280, 720), (1366, 768), (1440, 900), (1920, 1080)]
SHAPES = ["3x3", "8x8", "16x16", "64x128", "3x200", "4096x4096", "8x4x3x3"]
# left, top, width and height of each map as Plotly has drawn it; null until it has adapted to the window
BOXES = """([width, height]) => {
    const plot = document.querySelector(".qs-plot"), box = plot.getBoundingClientRect(), full = plot._fullLayout;
    if (innerWidth !== width || innerHeight !== height || Math.abs(full.width - plot.clientWidth) > 2) return null;
    return ["", "2", "3", "4"].map((n) => {
        const x = full["xaxis" + n], y = full["yaxis" + n];
        return [box.left + x._offset, box.top + y._offset, x._length, y._length];
    });
}"""


def boxes(app: Any, size: tuple[int, int]) -> list[list[float]]:
    """The boxes of the maps, once these have not moved for 5 frames."""
    settled = f"""(size) => new Promise((done) => {{
        let last = "", same = 0;
        const look = () => {{
            const now = JSON.stringify(({BOXES})(size));
            same = now === last && now !== "null" ? same + 1 : 0;
            last = now;
            same < 5 ? requestAnimationFrame(look) : done(JSON.parse(now));
        }};
        look();
    }})"""
    return list(app.page.evaluate(settled, list(size)))


def check(shape: str, size: tuple[int, int], found: list[list[float]]) -> None:
    (width, height), rows = size, int(shape.split("x")[-2])
    for left, top, wide, high in found:
        assert 0 <= left < left + wide <= width, (shape, size)
        assert 0 <= top < top + high <= height, (shape, size)
        assert high >= min(170, 40 * rows), (shape, size)
    across = len({round(left) for left, *_ in found})
    assert across == 2 or width >= 1600, (shape, size)


@pytest.mark.parametrize("shape", some(SHAPES))
def test_four_maps_whole_in_the_window(new_app: Any, server: str, shape: str) -> None:
    app = new_app(server)
    app.open(shape=shape)
    app.expect_scheme("int4 symmetric per_tensor min_max textbook")
    for theme in ("light", "dark"):
        app.page.emulate_media(color_scheme=theme)
        app.wait("(theme) => getComputedStyle(document.querySelector('.stApp')).colorScheme === theme", theme)
        for width, height in SIZES if theme == "light" else SIZES[:1]:  # colors do not move maps
            app.page.set_viewport_size({"width": width, "height": height})
            check(shape, (width, height), boxes(app, (width, height)))
            if (width, height) == (1440, 900):
                steps = app.page.locator("pre.qs-arithmetic").bounding_box()
                assert steps["y"] + 20 <= height


@pytest.mark.parametrize(("width", "height"), [SIZES[0], SIZES[2]])
def test_the_arithmetic_of_a_clicked_cell_is_in_sight(app: Any, width: int, height: int) -> None:
    app.page.set_viewport_size({"width": width, "height": height})
    app.open(per="channel")
    app.expect_scheme("int4 symmetric per_channel min_max textbook")
    boxes(app, (width, height))
    steps = app.page.locator(".qs-steps")
    for number, (row, column) in enumerate([(0, 0), (7, 7), (3, 1), (6, 6)]):
        if steps.is_visible():  # it may cover the map that is clicked next
            steps.get_by_role("button").click()
            expect(steps).to_be_hidden()
        x, y = app.place(row, column, number)
        app.page.mouse.click(x, y)
        app.expect_parameter("cell", f"{row}, {column}")
        title = f"Arithmetic of element ({row}, {column}); scale of row {row}"
        inside = """([title, x, y]) => [...document.querySelectorAll("pre.qs-arithmetic, .qs-steps pre")].some((e) => {
            const box = e.getBoundingClientRect(), words = e.parentElement.innerText + document.body.innerText;
            return box.height && box.top >= 0 && box.bottom <= innerHeight && words.includes(title)
                && !(x >= box.left && x <= box.right && y >= box.top && y <= box.bottom);
        })"""
        app.wait(inside, [title, x, y])
