"""What is visible without scrolling: all of the four maps, and the arithmetic of a clicked cell."""

from typing import Any

import pytest
from page_rest import expect
from parts import some

SIZES = [(1280, 720), (1366, 768), (1440, 900), (1920, 1080)]
SHAPES = ["64x128", "3x3", "8x8", "16x16", "3x200", "4096x4096", "8x4x3x3"]
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


@pytest.mark.slow  # by default, with 8 by 8 cells, whose arithmetic is tested as well
@pytest.mark.parametrize("shape", SHAPES)
def test_four_maps_whole_in_the_window(new_app: Any, server: str, shape: str) -> None:
    app = new_app(server)
    app.open(shape=shape)
    app.expect_scheme("int4 symmetric per_tensor min_max textbook")
    four_maps_are_whole(app, shape, SIZES)
    app.page.emulate_media(color_scheme="dark")
    app.wait("getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")
    four_maps_are_whole(app, shape, SIZES[:1])  # colors do not move maps


def four_maps_are_whole(app: Any, shape: str, sizes: list[tuple[int, int]]) -> None:
    for width, height in sizes:
        app.page.set_viewport_size({"width": width, "height": height})
        check(shape, (width, height), boxes(app, (width, height)))
        if (width, height) == (1440, 900):
            steps = app.page.locator("pre.qs-arithmetic").bounding_box()
            assert steps["y"] + 20 <= height


# The arithmetic that is shown over the page, and by how many px it covers the chosen cell of a map; null while there is none
OVER = f"""(size) => {{
    const found = ({BOXES})(size), steps = document.querySelector(".qs-steps"), box = steps.getBoundingClientRect();
    if (!found || steps.hidden) return null;
    return {{
        text: steps.innerText, box: [box.left, box.top, box.right, box.bottom], whole: steps.scrollHeight <= steps.clientHeight + 1,
        covered: [...document.querySelectorAll(".qs-over .qs-selected")].map((e) => e.getBoundingClientRect()).map((cell) =>
            Math.min(box.bottom - cell.top, cell.bottom - box.top, box.right - cell.left, cell.right - box.left)),
    }};
}}"""


def arithmetic_over(app: Any, size: tuple[int, int]) -> dict[str, Any]:
    boxes(app, size)
    return dict(app.page.evaluate(OVER, list(size)))


@pytest.mark.parametrize("shape", some(["8x8", "2x2", "64x128"]))
def test_arithmetic_leaves_the_maps_in_place(app: Any, shape: str) -> None:
    size, steps = SIZES[0], app.page.locator(".qs-steps")
    app.page.set_viewport_size({"width": size[0], "height": size[1]})
    app.open(shape=shape, mode="asymmetric", per="channel")
    app.expect_maps()
    four_maps_are_whole(app, shape, SIZES[2:3] + SIZES[:1])  # test_pointed.py has the widest
    before = boxes(app, size)
    for number, (row, column) in ((0, (0, 0)), (3, (1, 1))):
        x, y = app.place(row, column, number)
        app.page.mouse.click(x, y)
        app.expect_parameter("cell", f"{row}, {column}")
        app.wait(
            "(title) => document.querySelector('.qs-steps').innerText.includes(title)",
            f"element ({row}, {column})",
        )
        shown = arithmetic_over(app, size)
        left, top, right, bottom = shown["box"]
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]
        assert shown["covered"][number] <= 0
        assert boxes(app, size) == before  # another cell must not come under the pointer
        assert shown["whole"]
        if number % 2:
            app.page.keyboard.press("Escape")
        else:
            app.page.mouse.click(size[0] - 300, 20)  # the header
        expect(steps).to_be_hidden()
        assert boxes(app, size) == before


@pytest.mark.slow  # by default, tabs are opened without a browser
def test_tabs_leave_the_page_in_place(app: Any) -> None:
    app.page.set_viewport_size({"width": 1280, "height": 720})
    app.open(mode="asymmetric", per="channel")
    app.expect_maps()
    main = "document.querySelector('[data-testid=stMain]')"
    app.tab("Code")
    app.wait("document.querySelector('[data-testid=stCode]')")
    at = app.page.evaluate(f"({main}.scrollTop = 250, {main}.scrollTop)")
    assert at == 250
    for tab in ("Export", "Arithmetic"):  # the longest, and the one that the page opened with
        app.tab(tab)
        app.expect_parameter("tab", None if tab == "Arithmetic" else tab)
        app.rest()
        assert app.page.evaluate(f"{main}.scrollTop") == at


def test_a_phone_is_never_large_and_shows_the_arithmetic_of_a_cell_in_a_sheet(app: Any) -> None:
    size = (390, 844)
    app.page.set_viewport_size({"width": size[0], "height": size[1]})
    app.open(learn_large="true")  # by the address of a projector
    app.expect_scheme("int4 symmetric per_tensor min_max textbook")
    app.expect_parameter("learn_large", None)
    assert app.page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)") <= 16
    assert app.page.evaluate("document.scrollingElement.scrollWidth") <= 390
    finding = app.page.locator(".st-key-finding_line p")
    expect(finding).to_be_visible()
    lines = finding.evaluate(
        "e => [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight, e.clientHeight / parseFloat(getComputedStyle(e).lineHeight)]"
    )
    assert lines[:2] == [0, 0]
    assert 0.9 <= lines[2] <= 2.1
    assert not app.page.locator(".modebar-container").first.is_visible()
    app.click(6, 1, number=0)
    app.wait("document.querySelector('.qs-steps').innerText.includes('element (6, 1)')")
    left, top, right, bottom = app.page.locator(".qs-steps").evaluate(
        "e => Object.values(e.getBoundingClientRect().toJSON()).slice(0, 2).concat([innerWidth, e.getBoundingClientRect().bottom])"
    )
    assert (left, right, bottom) == (0, 390, 844)
    assert top > 844 / 2
    app.wait(
        "(top) => document.querySelectorAll('.qs-over .qs-selected')[0].getBoundingClientRect().bottom <= top",
        top,
    )
    app.page.locator(".qs-steps button").click()
    expect(app.page.locator(".qs-steps")).to_be_hidden()


@pytest.mark.slow  # the names alone are enough to choose
def test_names_of_granularities_have_pictures(app: Any) -> None:
    app.open(per="group")
    field, drawn = app.input("per"), "e => getComputedStyle(e, '::before').backgroundImage"
    field.scroll_into_view_if_needed()
    own = field.locator("xpath=..").evaluate(drawn)
    app.rest()
    field.click()
    options = app.page.get_by_role("option")
    expect(options).to_have_text(["tensor", "channel", "group", "flat group", "block"])
    app.wait("document.querySelectorAll('[role=option][data-per]').length === 5")
    pictures = [option.locator("> div").evaluate(drawn) for option in options.all()]
    assert all(picture.startswith('url("data:image/svg') for picture in pictures)
    assert len(set(pictures)) == 5
    assert own == pictures[2]
