"""Outputs → Layer in Chromium: a click on an output shows its terms."""

import pytest
from page_rest import at_rest, expect


@pytest.mark.slow  # the terms are tested without a browser, and keys on maps in test_frame.py
def test_a_click_on_an_output_shows_its_terms(app):
    page = app.page
    page.goto(app.address + "/layer")
    at_rest(page, "What does quantization do to a layer's output?")
    maps = page.locator(".qs-maps")
    expect(maps).to_have_count(3)
    page.set_viewport_size({"width": 1280, "height": 720})
    for n in range(3):  # the cells have room for their numbers
        expect(maps.nth(n)).to_have_attribute("data-numbers", "64 64")
    last = maps.nth(2)
    last.focus()
    for _ in range(2):  # the first begins at the chosen output
        last.press("ArrowLeft")
    tip = last.locator(".qs-tip")
    expect(tip).to_contain_text("ŷ − y")
    element = tip.inner_text()
    last.press("Enter")
    at_rest(page)
    token, channel = (part.strip() for part in element[element.index("(") + 1 : element.index(")")].split(","))
    expect(page.get_by_text(f"y[{token}, {channel}]: token {token}, output channel {channel}")).to_be_visible()
    expect(page.get_by_label("Output", exact=True)).to_have_value(f"{token}, {channel}")
    expect(page.locator("[data-testid=stException]")).to_have_count(0)
