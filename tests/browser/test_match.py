"""Compare → Match in Chromium: examples, a cold link, stopping, files, and opening a result in Explore."""

import io
import re

import numpy as np
import pytest
from page_rest import at_rest, expect

import quantcore as qc
from quantcore import tensors


def opened(app, link=""):
    app.page.goto(link or f"{app.address}/match")
    settled(app.page)
    return app.page


def settled(page):
    at_rest(page, "Which rules made these integers?")


def example(page, i):
    page.locator(f".st-key-_match_card_{i} button").click()


def sentence(page, words):
    expect(page.get_by_test_id("stAlert").filter(has_text=re.compile(words))).to_have_count(1)
    settled(page)


def maps(page):
    """The maps that Plotly draws: given codes, reproduced codes, and their difference."""
    plot = "document.querySelector('.st-key-match_maps .js-plotly-plot')"
    drawn = f"{plot}?.calcdata?.filter(([trace]) => trace.z)"  # without the numbers in the cells
    page.wait_for_function(f"() => {drawn}?.length === 3")
    cells = page.evaluate(f"{drawn}.map(([trace]) => Array.from(trace.z, (row) => Array.from(row)))")
    return [np.array(rows) for rows in cells]


@pytest.mark.slow  # tested without a browser
def test_example_and_its_link(app):
    page = opened(app)
    example(page, 1)
    sentence(page, "All 8,192 integers are int4 symmetric, one scale per column \\(axis 1\\)")
    scheme = qc.Scheme.parse("int4 symmetric per_channel(1) torchao")
    codes = qc.apply(tensors.EXAMPLES["attention-query-64x128"].load(), scheme).codes.numpy()
    given, produced, apart = maps(page)
    np.testing.assert_array_equal(given, codes)
    np.testing.assert_array_equal(produced, codes)
    assert not apart.any()
    assert page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0


@pytest.mark.slow
def test_cold_link_shows_the_same(app, new_app):
    page = opened(app)
    example(page, 5)
    sentence(page, "The given zero_point has the opposite sign")
    app.expect_parameter("match_z", "-161")
    text = page.locator(".st-key-match_text textarea").input_value()
    other = new_app(app.address)
    there = opened(other, page.url)
    sentence(there, "The given zero_point has the opposite sign")
    expect(there.locator(".st-key-match_text textarea")).to_have_value(text)
    expect(there.locator(".st-key-match_scale input")).to_have_value("0.013148538")
    np.testing.assert_array_equal(maps(there)[0], maps(page)[0])


@pytest.mark.slow  # tested without a browser
def test_damaged_link_is_named(app):
    page = opened(app, f"{app.address}/match?match_q=1.abcdef&src=example")
    sentence(page, "can't be used.*match_q=1.abcdef")
    expect(page.locator(".st-key-match_text textarea")).to_have_value("")


@pytest.mark.slow
def test_open_in_explore(app):
    page = opened(app)
    example(page, 3)
    sentence(page, "codes out of range wrap around")
    page.get_by_role("button", name="Open in Explore").click()
    app.rest()
    # several libraries' arithmetic gives these codes; the page opens the first that is found
    x = tensors.EXAMPLES["ffn-output-64x128"].load()
    codes = qc.apply(x, qc.Scheme.parse("int8 per_channel(0) torchao(overflow=wrap)")).codes
    found = qc.match(x, codes).candidates[0].scheme
    assert qc.apply(x, found).codes.equal(codes)
    app.expect_scheme(str(found))
    page.get_by_role("button", name="Compare").click()
    page.locator("a[href$='/match']").click()
    settled(page)
    expect(page.locator(".st-key-match_text textarea")).not_to_have_value("")  # nothing typed was lost


@pytest.mark.slow  # tested without a browser
def test_upload(app):
    page = opened(app, f"{app.address}/match?src=example&ex=randn-seed-0-4x4&bits=8")
    codes = qc.apply(
        tensors.EXAMPLES["randn-seed-0-4x4"].load(), qc.Scheme.parse("int8 per_channel(1)")
    ).codes
    file = io.BytesIO()
    np.save(file, codes.numpy())
    page.locator(".st-key-match_src").get_by_role("radio", name="File").click()
    page.locator(".st-key-match_file input[type=file]").set_input_files(
        {"name": "codes.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()}
    )
    expect(page.get_by_text("codes.npy, shape (4, 4)")).to_be_visible()
    sentence(page, "All 16 integers are int8 symmetric, one scale per column \\(axis 1\\)")
    np.testing.assert_array_equal(maps(page)[0], codes.numpy())


@pytest.mark.slow  # stopping is tested without a browser
def test_stop_keeps_what_was_found(app):
    """With a million elements and noise as codes, the search takes many seconds."""
    page = opened(app, f"{app.address}/match?shape=1024x1024&dist=normal")
    page.locator(".st-key-match_src").get_by_role("radio", name="File").click()
    noise = np.random.default_rng(0).integers(-8, 8, (1024, 1024)).astype(np.int8)
    file = io.BytesIO()
    np.save(file, noise)
    page.locator(".st-key-match_file input[type=file]").set_input_files(
        {"name": "noise.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()}
    )
    page.locator(".st-key-match_go button").click()
    expect(page.get_by_test_id("stProgress")).to_contain_text("schemes tried")
    page.locator(".st-key-match_stop button").click()
    expect(page.get_by_text("Stopped at")).to_be_visible()
    settled(page)
    expect(page.get_by_test_id("stProgress")).to_have_count(0)
    expect(page.locator(".st-key-match_go")).to_be_visible()
