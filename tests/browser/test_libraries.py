"""Compare → Libraries in Chromium: examples where libraries differ, cold links, choosing from the table."""

import pytest
from page_rest import at_rest, expect
from parts import in_parts

EXAMPLES = {
    "x = 2.25, s = 0.3": "7.4999995 to 7",
    "Ties with a zero point": "x / s + z = 1.5 to 2",
    "4 × 4": "/ 127.5",
    "A constant row": "-127.5 to -128",
    "A group from 10.5": "range must include 0",
}


def opened(app, path):
    app.page.goto(app.address + path)
    settled(app.page)
    return app.page


def settled(page):
    at_rest(page, "Why do two libraries give different integers?")


@pytest.mark.slow  # tested without a browser
@in_parts()
def test_examples_say_why(app, part):
    page = opened(app, "/libraries")
    for title, why in part(EXAMPLES.items()):
        page.locator(".st-key-_lib_example input").click()
        page.get_by_role("option").filter(has_text=title).click()
        expect(page.get_by_text(why).first).to_be_visible()
        settled(page)


@pytest.mark.slow  # tested without a browser
def test_cold_link(app):
    page = opened(
        app, "/libraries?src=example&ex=randn-seed-0-4x4&bits=8&lib_a=textbook&lib_b=aimet.Quantize"
    )
    expect(page.get_by_text("textbook and aimet.Quantize differ in")).to_be_visible()
    expect(page.locator(".st-key-lib_maps .js-plotly-plot")).to_be_visible()
    page.reload()
    settled(page)
    expect(page.get_by_text("textbook and aimet.Quantize differ in")).to_be_visible()


@pytest.mark.slow  # tested without a browser
def test_library_that_refuses_has_a_way_out(app):
    page = opened(app, "/libraries?lib_b=hqq")
    expect(page.get_by_text("unsigned asymmetric codes only")).to_be_visible()
    page.get_by_role("button", name="Use uint4 asymmetric").click()
    expect(page.get_by_text("onnxruntime and hqq")).to_be_visible()


@pytest.mark.slow  # tested without a browser
def test_equal_libraries(app):
    page = opened(app, "/libraries?lib_a=onnx&lib_b=onnxruntime")
    expect(page.get_by_text("onnx and onnxruntime give the same codes for all 64 elements.")).to_be_visible()
