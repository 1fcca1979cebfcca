"""Explore → Ranges in Chromium: a cold link; a range is dragged, typed, slid, set from the table."""

import numpy as np
import pytest
from page_rest import at_rest, expect

import quantcore as qc
from tests.browser.test_images import a_chart_as_a_picture

LINK = "/ranges?dist=normal&shape=6x10&seed=3"


def opened(app, path=LINK):
    app.page.goto(app.address + path)
    settled(app)
    return app.page


def settled(app):
    at_rest(app.page, "Which range should the codes span?")


def shaded(page):
    """The range that Plotly shades in the histogram."""
    plot = "document.querySelector('.st-key-rng_histogram .js-plotly-plot')"
    page.wait_for_function(f"() => {plot}?._fullLayout?.shapes?.length >= 3")
    area = page.evaluate(f"{plot}._fullLayout.shapes.map((s) => [s.x0, s.x1])[0]")
    return tuple(area)


def expect_shaded(page, low, high):
    script = """([low, high]) => {
        const area = document.querySelector(".st-key-rng_histogram .js-plotly-plot")?._fullLayout?.shapes?.[0];
        return area && Math.abs(area.x0 - low) < 1e-4 && Math.abs(area.x1 - high) < 1e-4;
    }"""
    page.wait_for_function(script, arg=[low, high])


def drag(page, start, stop):
    """Drag across the histogram from one value to another."""
    page.locator(".st-key-rng_histogram").scroll_into_view_if_needed()
    script = """(value) => {
        const plot = document.querySelector(".st-key-rng_histogram .js-plotly-plot");
        const box = plot.getBoundingClientRect(), l = plot._fullLayout;
        return [box.left + l.xaxis._offset + l.xaxis.d2p(value), box.top + l.yaxis._offset + l.yaxis._length / 2];
    }"""
    shaded(page)
    page.mouse.move(*page.evaluate(script, start))
    page.mouse.down()
    page.mouse.move(*page.evaluate(script, stop), steps=8)
    page.mouse.up()


def test_cold_link_picture_and_drag(app):
    x = np.random.default_rng(0).normal(size=(16, 30)).astype(np.float32)
    page = opened(app, f"/ranges?src=paste&t={qc.tensors.encode(x)}&mode=asymmetric")
    low, high = float(x.min()), float(x.max())
    assert shaded(page) == pytest.approx((low, high), abs=1e-6)
    assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    a_chart_as_a_picture(app, "Ranges · Quantscope · pasted · 16×30 · int4 asymmetric")
    drag(page, -0.5, 1.0)
    app.expect_parameter("range", "fixed")
    settled(app)
    found = float(page.evaluate("new URLSearchParams(location.search).get('low')"))
    assert abs(found + 0.5) < (high - low) / 100  # within a pixel or two
    expect_shaded(page, found, float(page.evaluate("new URLSearchParams(location.search).get('high')")))
    expect(page.get_by_test_id("stException")).to_have_count(0)


@pytest.mark.slow
def test_number_slider_and_a_link_to_it(app, new_app):
    page = opened(app)
    app.type("rng_high", "1.5")
    app.expect_parameter("high", "1.5")
    expect_shaded(page, -1.5, 1.5)
    settled(app)  # the slider is redrawn around the typed number, and for a moment there are two
    page.locator(".st-key-rng_slider input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => Number(new URLSearchParams(location.search).get('high')) > 1.5")
    settled(app)
    there = new_app(app.address)
    other = opened(there, page.url.removeprefix(app.address))
    assert shaded(other) == pytest.approx(shaded(page), abs=1e-6)
    expect(other.locator(".st-key-rng_high input")).to_have_value(app.input("rng_high").input_value())


@pytest.mark.slow  # a click on the grid of Streamlit; what it sets is tested without a browser
def test_use_takes_what_a_method_finds(app):
    page = opened(app)
    grid = page.locator(".st-key-rng_table canvas").first
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    row = box["height"] / 8  # the header and seven methods
    page.mouse.click(box["x"] + box["width"] - 60, box["y"] + 2.5 * row)
    app.expect_parameter("range", "min MSE")
    x = qc.tensors.generate(qc.tensors.Generated("normal", (6, 10), seed=3))
    high = qc.choose_qparams(x, qc.Scheme.parse("int4 min_mse")).high.item()
    expect_shaded(page, -high, high)


@pytest.mark.slow  # tested without a browser
def test_the_maps_choose_the_block(app):
    page = opened(app, LINK + "&per=channel&cell=4%2C+2")
    page.get_by_role("button", name="Block 4, 0, which holds element (4, 2)").click()
    app.expect_parameter("rng_block", "4, 0")
    x = qc.tensors.generate(qc.tensors.Generated("normal", (6, 10), seed=3))
    reach = float(np.abs(x[4]).max())
    expect_shaded(page, -reach, reach)
    page.go_back()
    app.expect_parameter("rng_block", None)
    expect(page.locator(".st-key-rng_all")).to_have_count(0)
