"""Outputs → Methods in Chromium: the slider over GPTQ's columns moves the picture, and links keep the choices."""

import pytest
from page_rest import at_rest, expect

import quantcore as qc

HEADING = "Which method loses least of a layer's output?"
TITLES = ".st-key-om_gptq .infolayer .annotation-text"
# the left edge of the frame around the column that is coded, in px of the page
FRAME = """() => Math.max(...[...document.querySelectorAll(".st-key-om_gptq .shapelayer path")].map((e) =>
    e.getBoundingClientRect().left))"""


@pytest.mark.slow  # the pictures of all columns are tested without a browser
def test_the_slider_moves_the_picture_and_the_link_keeps_it(app):
    page = app.page
    page.goto(app.address + "/methods?om_method=gptq&om_column=2")
    at_rest(page, HEADING)
    expect(page.locator(TITLES)).to_have_count(2)
    expect(page.get_by_text("Step 3 of 8", exact=False)).to_be_visible()
    before = page.evaluate(FRAME)
    numbers = page.locator(".st-key-om_gptq .textpoint").all_text_contents()
    run = page.locator("[data-run]").get_attribute("data-run")
    page.locator(".st-key-om_column").get_by_role("slider").press("ArrowRight")
    expect(page.get_by_text("Step 4 of 8", exact=False)).to_be_visible()
    at_rest(page, HEADING)
    page.wait_for_function(f"before => ({FRAME})() > before + 20", arg=before)
    assert page.locator(".st-key-om_gptq .textpoint").all_text_contents() != numbers
    step = qc.outputs.gptq(
        qc.tensors.generate(qc.tensors.Generated()), qc.outputs.activations(64, 8), "int4"
    ).steps[3]
    assert (
        f"{step.before[0]:.2f}".replace("-", "−")
        in page.locator(".st-key-om_gptq .textpoint").all_text_contents()
    )
    assert "om_column=3" in page.url
    # the slider draws its picture alone, and the address that Link shows follows
    assert page.locator("[data-run]").get_attribute("data-run") == run
    app.button("Link")
    expect(page.get_by_test_id("stPopoverBody").get_by_test_id("stCode")).to_contain_text("om_column=3")
    page.keyboard.press("Escape")
    # what stands in the folded panel of scripts is no message of the page
    expect(page.locator("[data-testid=stException]:visible, [data-testid=stAlert]:visible")).to_have_count(0)


@pytest.mark.slow  # tested without a browser
def test_a_large_layer_is_asked_for_and_can_be_stopped(app):
    page = app.page
    page.goto(app.address + "/methods?shape=1024x1024&om_tokens=512&om_method=awq")
    at_rest(page, HEADING)
    page.get_by_role("button", name="Run the methods").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Run the methods")).to_be_visible(timeout=60_000)
