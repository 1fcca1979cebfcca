"""The four maps in the browser: hover, click, keyboard, zoom, dragging, themes, and what replaces them."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from page_rest import REST, SHOWN, expect

import quantcore as qc
from quantcore import figures, tensors
from quantcore.analysis import View, map_data
from quantcore.quantization import Quantized
from tests.browser.test_live import a_value_is_dragged_in_its_cell_and_undone

DEFAULT = "int4 symmetric per_tensor min_max textbook"
X = tensors.generate(tensors.Generated())


def assert_codes(app: Any, x: np.ndarray, scheme: str) -> None:
    app.expect_scheme(scheme)
    result = qc.apply(x, qc.Scheme.parse(scheme))
    np.testing.assert_array_equal(app.map("x"), x)
    np.testing.assert_array_equal(app.map("codes"), result.codes.numpy())
    np.testing.assert_array_equal(app.map("dequantized"), result.dequantized.numpy())
    np.testing.assert_array_equal(app.map("error"), result.error.numpy())


def test_cells_have_colors_and_are_hovered_clicked_dragged_and_zoomed(app: Any) -> None:
    """One visit; a failure names its step."""
    app.open()
    first_view(app)
    hover_outlines_the_cell_in_all_four_maps(app)
    a_value_is_dragged_in_its_cell_and_undone(app)
    click_follows_the_arithmetic_and_back_undoes_it(app)
    zoom_stays_when_a_control_changes(app)


@pytest.mark.filterwarnings("ignore:1 element becomes NaN")
@pytest.mark.slow  # by default, keys on maps are tested in test_frame.py, a box on an overview in test_checkpoint.py
def test_keys_borders_color_bars_overviews_and_what_is_not_finite(app: Any) -> None:
    """One visit; a failure names its step."""
    app.open()
    app.expect_scheme(DEFAULT)
    keyboard(app)
    block_borders(app)
    app.type("_scheme_text", "int5")
    app.expect_scheme(DEFAULT.replace("int4", "int5"))
    other_cells_are_shown_in_full(app)
    the_numbers_along_a_flat_bar_do_not_overlap(app)
    a_box_on_an_overview_opens_the_part(app)
    app.choose("src", "paste")
    color_bars_have_round_numbers_where_these_belong(app)
    of_a_tensor_with_nan_and_infinity_the_colors_of_the_cells(app)


def first_view(app: Any) -> None:
    assert_codes(app, X, DEFAULT)
    assert_colors(app, qc.apply(X, qc.Scheme.parse(DEFAULT)), "light", every_cell(X))
    app.expect_parameters()
    expect(app.page.get_by_role("application")).to_have_attribute(
        "aria-label", re.compile("Four maps of 8 by 8")
    )
    expect(app.page.get_by_test_id("stAlert")).to_have_count(0)
    # four titles, and a number in each cell of each map
    expect(app.page.locator(".qs-maps .qs-title")).to_have_count(4)
    expect(app.page.locator(".qs-maps")).to_have_attribute("data-numbers", "64 64 64 64")


# Red, green, blue and opacity of the canvas at these places in the window
PIXELS = """(places) => { const canvas = document.querySelector(".qs-maps canvas"), box = canvas.getBoundingClientRect();
    const pen = canvas.getContext("2d"), k = canvas.width / box.width;
    return places.map(([x, y]) => Array.from(pen.getImageData((x - box.left) * k, (y - box.top) * k, 1, 1).data)); }"""


def every_cell(x: np.ndarray) -> list[tuple[int, int]]:
    return [(int(row), int(column)) for row, column in np.ndindex(x.shape)]


def assert_colors(app: Any, result: Quantized, theme: str, cells: list[tuple[int, int]]) -> None:
    """At the places that Plotly's axes give, cells have the colors of their values, or none if not finite."""
    data = map_data(result, View())
    scales = figures.scales_of_maps(data, result.scheme.format, theme)
    for number, (name, scale) in enumerate(scales.items()):
        corners = app.places([(row - 0.5, column - 0.5) for row, column in cells], number)
        pixels = np.array(app.maps(PIXELS, [[x + 2.5, y + 2.5] for x, y in corners]))
        values = np.array([data.map(name)[cell] for cell in cells])
        stops = np.array([re.findall(r"\d+", color) for _, color in scale["colorscale"]], float)
        finite = np.isfinite(values)
        places = (values[finite] - scale["zmin"]) / (scale["zmax"] - scale["zmin"])
        at = [position for position, _ in scale["colorscale"]]
        wanted = np.stack([np.interp(places, at, channel) for channel in stops.T], axis=1)
        np.testing.assert_allclose(pixels[finite, :3], wanted, atol=2)
        np.testing.assert_array_equal(pixels[:, 3], np.where(finite, 255, 0))


@pytest.mark.filterwarnings("ignore:1 element becomes NaN")
@pytest.mark.slow  # by default, those of finite values are read in another visit, in the light theme
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colors_of_the_cells(new_app: Callable[..., Any], server: str, theme: str) -> None:
    x = X.copy()
    x[2, 3], x[5, 5] = np.nan, np.inf
    scheme = "int4 symmetric per_tensor given(0.1) onnxruntime"
    by_hand = {"library": "onnxruntime", "range": "by hand", "scale": "0.1"}
    app = new_app(server, color_scheme=theme).open(src="paste", t=qc.tensors.encode(x), **by_hand)
    app.expect_scheme(scheme)
    colors_of_the_cells(app, x, scheme, theme)


def colors_of_the_cells(app: Any, x: np.ndarray, scheme: str, theme: str) -> None:
    assert_colors(app, qc.apply(x, qc.Scheme.parse(scheme)), theme, every_cell(x))
    app.drag((1, 1), (5, 6))
    app.wait("document.querySelector('.qs-maps').dataset.numbers.split(' ')[0] < 64")
    assert_colors(app, qc.apply(x, qc.Scheme.parse(scheme)), theme, [(2, 2), (2, 3), (4, 5), (5, 5)])


def hover_outlines_the_cell_in_all_four_maps(app: Any) -> None:
    result = qc.apply(X, qc.Scheme.parse(DEFAULT))
    for number, (row, column) in {0: (0, 0), 3: (5, 7)}.items():
        app.point(row, column, number)
        expect(app.page.locator("rect.qs-hover")).to_have_count(4)
        texts = app.page.locator(".qs-tip:visible span")
        expect(texts.nth(1)).to_have_text(f"({row}, {column})")  # so the outlines are those of this cell
        outlines = [box.bounding_box() for box in app.page.locator("rect.qs-hover").all()]
        for map_number, box in enumerate(outlines):
            x, y = app.place(row, column, map_number)
            assert abs(box["x"] + box["width"] / 2 - x) < 2
            assert abs(box["y"] + box["height"] / 2 - y) < 2
        names, values = texts.all_inner_texts()[::2], texts.all_inner_texts()[1::2]
        assert names[:7] == ["element", "x", "q", "x̂", "error", "scale", "zero point"]
        assert names[7:] in ([], ["Alt + drag ↕"])  # on the original alone, whose values can be changed
        shown = np.array([float(value) for value in values[1:7]], np.float32)
        at = (row, column)
        expected = [X[at], result.codes[at], result.dequantized[at], result.error[at], result.scale[0, 0], 0]
        np.testing.assert_array_equal(shown, np.array([float(v) for v in expected], np.float32))
    app.page.mouse.move(5, 5)
    expect(app.page.locator("rect.qs-hover")).to_have_count(0)
    expect(app.page.locator(".qs-tip")).to_be_hidden()


def click_follows_the_arithmetic_and_back_undoes_it(app: Any) -> None:
    app.tab("Scales")
    app.expect_parameter("tab", "Scales")
    app.rest()
    app.click(2, 5, number=3)
    app.expect_parameter("cell", "2, 5")
    expect(app.page.locator("strong").filter(has_text="Arithmetic of element (2, 5)")).to_be_visible()
    expect(app.page.locator("rect.qs-selected")).to_have_count(4)
    expect(app.input("cell")).to_have_value("2, 5")
    arithmetic = app.page.locator("pre.qs-arithmetic")
    trace = qc.trace(qc.apply(X, qc.Scheme.parse(DEFAULT)), (2, 5))
    for step in trace.steps():
        expect(arithmetic).to_contain_text(step.name)
        expect(arithmetic).to_contain_text(str(step.value))
    app.page.go_back()
    app.expect_parameter("cell", None)
    expect(app.page.get_by_role("tab", name="Scales")).to_have_attribute("aria-selected", "true")


def keyboard(app: Any) -> None:
    maps = app.page.locator(".qs-maps")
    maps.focus()
    maps.press("ArrowDown")  # begins at the chosen element
    worst = qc.report(qc.apply(X, qc.Scheme.parse(DEFAULT))).max_abs_error_index
    live = app.page.locator(".qs-live")
    expect(live).to_contain_text("element ({}, {}),".format(*worst))
    for key in ["ArrowRight"] * 9 + ["ArrowUp"] * 9 + ["ArrowLeft", "ArrowDown"]:
        maps.press(key)
    expect(live).to_contain_text("element (1, 6),")
    expect(app.page.locator("rect.qs-hover")).to_have_count(4)
    maps.press("Enter")
    app.expect_parameter("cell", "1, 6")
    expect(app.page.locator("strong").filter(has_text="Arithmetic of element (1, 6)")).to_be_visible()
    maps.press("Escape")
    expect(app.page.locator("rect.qs-hover")).to_have_count(0)


ZOOM = "[..._quiet('xaxis'), ..._quiet('yaxis')]".replace(
    "_quiet(",
    "((name) => document.querySelector('.qs-plot')._fullLayout[name].range.map((v) => +v.toFixed(6)))(",
)


def zoom_stays_when_a_control_changes(app: Any) -> None:
    app.expect_scheme(DEFAULT)
    whole = app.maps(f"() => {ZOOM}")
    app.drag((1, 1), (5, 6))
    app.page.wait_for_function(f"() => JSON.stringify({ZOOM}) !== '{str(whole).replace(' ', '')}'")
    app.page.evaluate(
        """() => { const plot = document.querySelector(".qs-plot");
            plot.mark = "not made anew"; plot.drawn = 0; plot.on("plotly_afterplot", () => { plot.drawn += 1; }); }"""
    )
    place = "() => document.querySelector('.qs-maps').getBoundingClientRect().toJSON()"
    frame = app.maps(place)
    zoomed = app.maps(f"() => {ZOOM}")
    assert zoomed[1] - zoomed[0] < 6
    app.input("bits").focus()
    app.page.keyboard.press("ArrowRight")
    app.expect_scheme("int5 symmetric per_tensor min_max textbook")
    assert app.maps(f"() => {ZOOM}") == zoomed
    assert app.page.evaluate("document.querySelector('.qs-plot').mark")
    assert app.maps(place) == frame
    assert (
        app.page.evaluate("document.querySelector('.qs-plot').drawn") == 0
    )  # axes that stay are not drawn again
    app.click(3, 4)  # a click finds its cell in a zoomed map, too
    app.expect_parameter("cell", "3, 4")
    assert app.maps(f"() => {ZOOM}") == zoomed


def other_cells_are_shown_in_full(app: Any) -> None:
    app.drag((1, 1), (5, 6))
    app.wait(f"{ZOOM}[1] - {ZOOM}[0] < 7")
    app.type("shape", "64")
    app.wait(f"{REST} && {ZOOM}[1] - {ZOOM}[0] === 64")


def numbers_appear_where_a_zoom_makes_them_readable(app: Any, row: int, column: int) -> None:
    expect(app.page.locator(".qs-maps")).to_have_attribute("data-numbers", "0 0 0 0")
    app.drag((row, column), (row + 7, column + 7))
    expect(app.page.locator(".qs-maps")).to_have_attribute("data-numbers", re.compile(r"(\d{2} ?){4}"))
    ticks = app.maps(
        "() => [...document.querySelectorAll('.qs-plot .xtick text, .qs-plot .ytick text')].map((e) => e.textContent)"
    )
    assert ticks
    assert all(re.fullmatch(r"\d+", tick) for tick in ticks)


def a_box_on_an_overview_opens_the_part(app: Any) -> None:
    app.rest()  # a field that a run draws again would lose what is typed meanwhile
    app.type("shape", "300x300")
    app.wait(f"{REST} && {SHOWN}('x')?.length === 150")
    assert app.map("x").shape == (150, 150)
    expect(app.page.locator(".qs-maps")).to_have_attribute("data-numbers", "0 0 0 0")
    app.drag((50, 100), (90, 180))
    app.wait(f"{REST} && /rows=.*cols=|cols=.*rows=/.test(location.search)")
    for key in ("rows", "cols"):
        expect(app.input(key)).to_have_value(re.compile(r"\d+:\d+"))
    spans = [[int(n) for n in app.input(key).input_value().split(":")] for key in ("rows", "cols")]
    np.testing.assert_allclose(spans, [[50, 91], [100, 181]], atol=3)
    (top, bottom), (left, right) = spans
    app.wait(f"{REST} && {SHOWN}('x').length === {bottom - top}")
    x = tensors.generate(tensors.Generated(shape=(300, 300)))
    np.testing.assert_array_equal(app.map("x"), x[top:bottom, left:right])
    codes = qc.apply(x, qc.Scheme.parse(DEFAULT.replace("int4", "int5"))).codes.numpy()
    np.testing.assert_array_equal(app.map("codes"), codes[top:bottom, left:right])
    app.click(top + 3, left + 5)
    app.expect_parameter("cell", f"{top + 3}, {left + 5}")
    numbers_appear_where_a_zoom_makes_them_readable(app, top + 20, left + 30)
    app.button("Show all")
    app.expect_parameter("rows", None)
    app.wait(f"{REST} && {SHOWN}('x')?.length === 150")


@pytest.mark.slow  # what it tells is tested without a browser
def test_each_reduced_map_tells_of_the_element_that_it_shows(app: Any) -> None:
    app.open(shape="300x300", dist="normal", error_of="largest")
    x = tensors.generate(tensors.Generated("normal", (300, 300)))
    # fewer scales than cells, and more
    for text in ("int4 asymmetric per_channel percentile(95) textbook", "nf4 per_group(3, axis=1)"):
        app.type("_scheme_text", text)
        scheme = qc.Scheme.parse(text)
        app.expect_scheme(str(scheme))
        result = qc.apply(x, scheme)
        true = [array.numpy() for array in (result.x, result.codes, result.dequantized, result.error)]
        sizes = [np.abs(true[3 if number == 3 else 0]).reshape(150, 2, 150, 2) for number in range(4)]
        elements = set()
        for number, name in enumerate(["x", "codes", "dequantized", "error"]):
            app.point(101, 54, number)
            inside = np.unravel_index(sizes[number][50, :, 27, :].argmax(), (2, 2))
            at = (100 + int(inside[0]), 54 + int(inside[1]))
            elements.add(at)
            texts = app.page.locator(".qs-tip:visible span")
            expect(texts.nth(1)).to_have_text(f"({at[0]}, {at[1]})")
            shown = np.array([float(value) for value in texts.all_inner_texts()[3::2]], np.float32)
            own = [a[at] for a in true] + [result.scale.numpy()[at[0], at[1] // result.block[1]]]
            np.testing.assert_array_equal(shown[:5], np.array(own, np.float32))
            assert app.map(name)[50, 27] == true[number][at]
        assert len(elements) == 2  # in this example the two elements differ
        for name, number in (("x", 0), ("error", 3)):
            np.testing.assert_array_equal(np.abs(app.map(name)), sizes[number].max((1, 3)))
    legend = "the one with the largest |x|; in the error map, the one with the largest |error|."
    expect(app.page.get_by_text(legend)).to_be_visible()
    app.click(101, 54, 3)
    app.expect_parameter("cell", f"{at[0]}, {at[1]}")
    app.rest()
    maps, live = app.page.locator(".qs-maps"), app.page.locator(".qs-live")
    maps.press("Escape")
    for key, number in (("ArrowRight", 0), ("4", 3), ("2", 1)):  # begins at the chosen element
        maps.press(key)
        inside = np.unravel_index(sizes[number][50, :, 27, :].argmax(), (2, 2))
        expect(live).to_contain_text(f"element ({100 + inside[0]}, {54 + inside[1]}),")


def of_a_tensor_with_nan_and_infinity_the_colors_of_the_cells(app: Any) -> None:
    x = X.copy()
    x[2, 3], x[5, 5] = np.nan, np.inf
    scheme = "int4 symmetric per_tensor given(0.1) onnxruntime"
    app.type("_scheme_text", scheme)
    app.expect_scheme(scheme)
    app.type("_pasted", "\n".join(" ".join(map(str, row)) for row in x))
    app.wait(f"{REST} && {SHOWN}('x')?.length === 8")
    colors_of_the_cells(app, x, scheme, "light")


def block_borders(app: Any) -> None:
    app.rest()
    app.type("_scheme_text", "int4 per_block([4,2])")
    app.expect_scheme("int4 symmetric per_block([4,2]) min_max textbook")
    expect(app.page.locator("path.qs-border")).to_have_count(0)
    app.tick("borders")
    expect(app.page.locator("path.qs-border")).to_have_count(4)
    app.expect_parameter("borders", "true")
    border = "() => document.querySelector('path.qs-border').getAttribute('d')"
    line = app.maps(border)
    assert line.count("H") in (1, 3)  # with or without the lines at the edges
    assert line.count("V") in (3, 5)
    app.type("_scheme_text", "int4")
    app.expect_scheme(DEFAULT)
    assert app.maps(border) != line


def luminance(colour: str) -> float:
    if colour.startswith("#"):
        return sum(int(colour[i : i + 2], 16) for i in (1, 3, 5)) / 765
    return sum(float(n) for n in re.findall(r"[\d.]+", colour)[:3]) / 765


@pytest.mark.slow  # by default, a switch of the theme is tested in test_frame.py
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes(new_app: Callable[..., Any], server: str, scheme: str) -> None:
    app = new_app(server, color_scheme=scheme).open(tab="Distribution")
    app.expect_scheme(DEFAULT)
    expect(app.page.get_by_test_id("stPlotlyChart").locator(".main-svg").first).to_be_visible()
    back = app.page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    inks = app.page.evaluate(
        """[...document.querySelectorAll('.qs-maps .qs-title, .qs-maps .qs-tick, .qs-plot .xtick text, .stPlotlyChart .xtick text')]
        .map((e) => getComputedStyle(e).fill)"""
    )
    assert inks
    if scheme == "dark":
        assert luminance(back) < 0.2
        assert min(map(luminance, inks)) > 0.5
    else:
        assert luminance(back) > 0.9
        assert max(map(luminance, inks)) < 0.5


@pytest.mark.slow
def test_no_scrolling_sideways(app: Any) -> None:
    app.open(shape="2x16x16", per="group", group="4", range="by hand", borders="true", dist="normal")
    app.expect_scheme("int4 symmetric per_group(4, axis=2) given(0.1) textbook")
    for width, tabs in {
        1280: ["Arithmetic", "Distribution", "Scales", "Numbers", "Code", "Export"],
        1024: ["Code", "Scales"],
        1920: ["Numbers"],
    }.items():
        app.page.set_viewport_size({"width": width, "height": 900})
        for tab in tabs:
            app.tab(tab)
            app.expect_parameter("tab", None if tab == "Arithmetic" else tab)
            app.rest()
            app.page.wait_for_function(
                """(width) => document.querySelector(".qs-plot").getBoundingClientRect().right <= width
                    && [document.scrollingElement, ...document.querySelectorAll(
                        "[data-testid=stMain], [data-testid=stSidebarContent]"
                    )].every((e) => e.scrollWidth <= e.clientWidth)""",
                arg=width,
            )


@pytest.mark.slow  # the fallback, which waits for the script that never comes
def test_without_plotly_the_maps_are_a_chart_of_streamlit(app: Any) -> None:
    app.expected = ["plotly.min.js"]
    app.page.route("**/vendor/plotly.min.js", lambda route: route.abort())
    app.open(bits="5", tab="Code")
    chart = app.page.get_by_test_id("stPlotlyChart")
    expect(chart).to_have_count(1)
    expect(chart.locator(".heatmaplayer image, .heatmaplayer .hm").first).to_be_visible()
    app.input("bits").focus()
    app.page.keyboard.press("ArrowRight")
    expect(app.input("_scheme_text")).to_have_value("int6 symmetric per_tensor min_max textbook")
    app.type("cell", "3, 4")
    app.tab("Arithmetic")
    expect(app.page.locator("strong").filter(has_text="Arithmetic of element (3, 4)")).to_be_visible()


BARS = """() => { const root = document.querySelector(".qs-maps").getBoundingClientRect();
    const rects = [...document.querySelectorAll(".qs-scales rect")].map((e) => e.getBoundingClientRect());
    const ticks = [...document.querySelectorAll(".qs-scales .qs-tick")].map((e) => [e.textContent, e.getBoundingClientRect()]);
    return rects.map((bar) => ticks.filter(([, t]) => t.left >= bar.right && t.left < bar.right + 20 && t.bottom > bar.top - 8 && t.top < bar.bottom + 8)
        .map(([text, t]) => [text, (bar.bottom - (t.top + t.bottom) / 2) / bar.height, t.right <= root.right])); }"""


def color_bars_have_round_numbers_where_these_belong(app: Any) -> None:
    for x in [
        [[0.5, -1.0], [2.0, 0.1]], [[1e-6, 2e-6], [-3e-6, 0]], [[123456.0, -7e6], [1e7, 3]], [[0.0301, 0.0302], [0.0304, 0.03]],
        [[999.0, 1000], [995, 998]], [[5.0, 5], [5, 5]], [[1e-30, -2e-30], [0, 1e-30]],
    ]:  # fmt: skip
        app.type("_pasted", "\n".join(" ".join(map(str, row)) for row in x))
        # the numbers along the bars are redrawn together with the maps
        app.wait(f"(x) => {REST} && {SHOWN}('x')?.[0][0] === x", float(np.float32(x[0][0])))
        assert_color_bars(app, x)


def the_numbers_along_a_flat_bar_do_not_overlap(app: Any) -> None:
    script = """() => [...document.querySelectorAll(".qs-scales .qs-tick")].map((e) => {
        const { left, right, top, bottom } = e.getBoundingClientRect();
        return [left, right, (top + bottom) / 2, e.textContent]; })"""
    ticks = app.maps(script)
    for a, b in itertools.combinations(ticks, 2):
        beside = a[1] < b[0] or b[1] < a[0]
        assert beside or abs(a[2] - b[2]) >= 12, (a, b)
    assert {"−16", "15"} <= {text for *_, text in ticks}


def assert_color_bars(app: Any, x: list[list[float]]) -> None:
    result = qc.apply(x, qc.Scheme(qc.IntFormat(5)))  # as the visit has left it
    colors = figures.scales_of_maps(map_data(result, View()), result.scheme.format)
    for ticks, (name, scale) in zip(app.maps(BARS), colors.items(), strict=True):
        assert 2 <= len(ticks) <= 12, name
        values = [float(text.replace("−", "-")) for text, _, _ in ticks]
        steps = np.diff(values)
        if name != "codes":
            assert np.allclose(steps, steps[0], rtol=1e-6)
            assert f"{steps[0]:.0e}"[0] in "125"
        span = scale["zmax"] - scale["zmin"]
        for value, (_, place, inside) in zip(values, ticks, strict=True):
            assert inside
            # half a pixel and the height of a line of text are about 1 % of the bar
            assert abs((value - scale["zmin"]) / span - place) < 0.02, (name, value)
