"""What a teacher presents with: the large mode, the keys of a clicker, the plan of a class, and links in large mode."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from lesson_walk import SCROLLS, opened, stands
from page_rest import at_rest, expect

from pages.shared import curriculum
from tests.browser.test_every_page import SHIFTS
from tests.browser.test_learn import mercury_and_numbers_are_dragged

SIZE = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
LARGE = {"learn_large": "true"}
NEXT = ".st-key-lesson_next :is(button, a)"


@pytest.fixture
def projector(new_app: Callable[..., Any], server: str) -> Any:
    app = new_app(server)
    app.page.set_viewport_size({"width": 1920, "height": 1080})
    return app


def shown(app: Any, name: str, step: str | None) -> None:
    """Wait until a step is drawn, with the controls that the keys press."""
    stands(app, name, step)
    app.wait(f"document.querySelector('{NEXT}')")


def test_a_key_of_a_clicker_goes_on_and_the_focus_stays_on_next(app: Any) -> None:
    opened(app, "scale", learn_scale_step="bits")
    shown(app, "scale", "bits")
    next_keeps_the_focus_at_the_last_step(app, "PageDown")


def next_keeps_the_focus_at_the_last_step(app: Any, key: str) -> None:
    """Beyond it lies the next lesson, and the focus is on Next there too."""
    app.page.locator(NEXT).first.focus()
    app.page.keyboard.press(key)
    shown(app, "scale", "yours")
    app.wait(
        f"document.activeElement === document.querySelector('{NEXT}') && document.activeElement.href.includes('/learn-zero-point')"
    )


@pytest.mark.slow  # by default, one press of a key is tested, and what follows the hand without a browser
def test_mercury_is_dragged_and_keys_are_held_stay_with_what_has_the_focus_and_lead_to_the_next_lesson(app: Any) -> None:
    """One visit; a failure names its step."""
    opened(app, "scale", learn_scale_step="code")
    mercury_and_numbers_are_dragged(app)
    at_rest(app.page)
    app.page.get_by_role("heading", level=1).first.click()  # until then, a number keeps the keys
    shown(app, "scale", "code")
    app.page.keyboard.press("ArrowRight")
    shown(app, "scale", "back")
    app.page.keyboard.down("PageDown")
    for _ in range(5):  # held: the browser repeats the key
        app.page.keyboard.down("PageDown")
    app.page.keyboard.up("PageDown")
    shown(app, "scale", "range")
    app.page.keyboard.press("PageDown")
    shown(app, "scale", "bits")
    next_keeps_the_focus_at_the_last_step(app, "Enter")
    keys_stay_with_what_has_the_focus(app)
    app.page.keyboard.press("PageDown")
    shown(app, "zero_point", None)
    app.page.keyboard.press("PageUp")
    shown(app, "scale", None)


def keys_stay_with_what_has_the_focus(app: Any) -> None:
    app.expect_maps()
    for place in (".st-key-learn_scale_cell input", ".st-key-bits :is([role=slider], input)", ".qs-maps"):
        app.page.locator(place).first.focus()
        for key in ("PageUp", "ArrowLeft"):
            app.page.keyboard.press(key)
    app.page.get_by_role("button", name="Link").click()
    expect(app.page.get_by_test_id("stPopoverBody")).to_be_visible()
    app.page.keyboard.press("PageUp")
    app.page.keyboard.press("Escape")
    expect(app.page.get_by_test_id("stPopoverBody")).to_have_count(0)
    at_rest(app.page)
    app.expect_parameter("learn_scale_step", "yours")
    app.page.evaluate("document.activeElement.blur()")


@pytest.mark.slow  # tested without a browser
def test_the_bits_that_a_class_is_asked_for_are_on_the_step(projector: Any) -> None:
    opened(projector, "ptq_or_qat", **LARGE, learn_ptq_or_qat_step="ptq")
    stands(projector, "ptq_or_qat")
    expect(projector.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")
    wrong = projector.page.locator(".qs-figures div").filter(has_text="newly misread").locator("b")
    before = wrong.inner_text()
    projector.press("learn_choice", "2")
    projector.wait(
        "(before) => document.querySelector('.qs-figures') && ![...document.querySelectorAll('.qs-figures b')].some((e) => e.innerText === before)",
        before,
    )
    projector.expect_parameter("train_weights", "int2 symmetric per_tensor min_max textbook")


# Visible text smaller than 20 px, by its words; tables on canvases aside
SMALL = """() => {
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const words = walk.currentNode.textContent.trim(), e = walk.currentNode.parentElement;
        if (!words || !e || e.closest("style, script, .qs-skip, sup, [baseline-shift]")) continue;
        const range = document.createRange();
        range.selectNodeContents(walk.currentNode);
        const { width, height } = range.getBoundingClientRect(), look = getComputedStyle(e);
        if (width < 3 || !height || look.visibility === "hidden" || look.clipPath !== "none") continue;
        if (parseFloat(look.fontSize) < 20) found.push(`${words.slice(0, 40)}: ${look.fontSize}`);
    }
    return found;
}"""


def large_is_large(app: Any) -> None:
    """In a window of 1920 × 1080."""
    small = app.page.evaluate(SIZE)
    app.tick("learn_large")
    app.expect_parameter("learn_large", "true")
    app.wait(f"{SIZE} >= 1.4 * {small} && document.querySelector('.qs-maps.qs-large')")
    app.rest()
    assert app.maps(SMALL) == []
    bottom = app.maps("() => document.querySelector('.qs-maps').getBoundingClientRect().bottom")
    assert 0.9 * 1080 < bottom <= 1080
    assert app.page.locator(".qs-question").evaluate("(e) => e.scrollWidth - e.clientWidth") <= 0  # the whole answer
    assert app.page.locator(".st-key-finding_examples").bounding_box()["y"] >= bottom  # the maps have their room


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    ["ranges", "formats", "libraries", "schemes", "match", "checkpoint", "compare-checkpoints", "sensitivity", "learn"],
)
def test_text_of_every_page_is_large(projector: Any, page: str) -> None:
    projector.page.goto(f"{projector.address}/{page}?learn_large=true")
    at_rest(projector.page)
    projector.wait(f"!document.querySelector('[data-testid=stSkeleton]') && {SIZE} > 20")
    assert [
        text for text in projector.page.evaluate(SMALL) if not text.split(":")[0].lstrip("−").isdigit()
    ] == []


# How much of the window is left blank: rows of pixels in which nothing is drawn, if they are more than the distance between
# two paragraphs
BLANK = """() => {
    const used = [], place = document.querySelector("[data-testid=stMain]");
    for (const e of place.querySelectorAll("p, h1, input, button, a, label, canvas, svg, td, .qs-cell, pre, b, small, [role=slider]")) {
        const { top, bottom, width } = e.getBoundingClientRect();
        if (width > 2 && bottom > top && getComputedStyle(e).visibility !== "hidden") used.push([top, bottom]);
    }
    used.push([0, document.querySelector("[data-testid=stHeader]").getBoundingClientRect().bottom], [innerHeight, innerHeight]);
    used.sort((a, b) => a[0] - b[0]);
    let end = 0, blank = 0;
    for (const [top, bottom] of used) {
        if (top - end > 40) blank += Math.min(top, innerHeight) - end;
        end = Math.max(end, Math.min(bottom, innerHeight));
    }
    return blank / innerHeight;
}"""
# Every figure of a step is there: on a busy machine its script comes late
DRAWN = """[...document.querySelectorAll(".st-key-lesson_picture :is(.st-key-lesson_chart, .qs-cells)")].every((e) =>
    e.querySelector(".js-plotly-plot .main-svg, figure"))"""
# What else a step shows, with the longest arithmetic
MORE = {
    "yours": [{"mode": "asymmetric"}, {"mode": "asymmetric", "per": "group"}],
    "ptq": [{"train_view": "weights"}, {"train_view": "weights", "train_weights": "int4 asymmetric"}],
}
DROPPED = {"bits": "99"}  # a warning stands above the step
SCREENS = {"normal": ((1280, 720), {}), "large": ((1920, 1080), LARGE)}


@pytest.mark.slow
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", curriculum.LESSONS)
def test_every_step_fits_and_fills_the_window(
    new_app: Callable[..., Any], server: str, name: str, screen: str
) -> None:
    (width, height), large = SCREENS[screen]
    app = new_app(server)
    app.page.set_viewport_size({"width": width, "height": height})
    wrong = []
    steps = [step for step in curriculum.LESSONS[name].steps if step != "curve"]
    for there, more in [(steps[0], DROPPED)] + [(step, more) for step in steps for more in ({}, *MORE.get(step, []))]:
        opened(app, name, **{curriculum.step_key(name): there}, **more, **large)
        app.wait(
            "!document.querySelector('[data-testid=stSkeleton]') && (!document.querySelector('.qs-maps') || document.querySelector('.qs-maps').dataset.painted)"
        )
        if there == "question":  # below it is room for the tables of its answer
            app.page.locator(".st-key-lesson_control [role=radio]").first.click()
            expect(app.page.locator(".st-key-lesson_control")).to_contain_text(re.compile("Right|Not quite"))
            at_rest(app.page)
        app.wait(DRAWN)
        app.page.wait_for_timeout(500)  # figures follow the size of their place
        beyond, blank = app.page.evaluate(SCROLLS), app.page.evaluate(BLANK)
        if beyond > 0 or (large and blank > 1 / 3):
            wrong.append(f"{there} {more}: {beyond} px beyond the window, {100 * blank:.0f} % blank")
        if large and there == "yours" and not more:
            app.wait("document.querySelector('.qs-maps').dataset.numbers === '64 64 64 64'")
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("lesson", ["scale", "error"])
def test_a_large_link_opens_with_the_sidebar_folded(
    new_app: Callable[..., Any], server: str, lesson: str
) -> None:
    app = new_app(server, own=True)
    app.page.add_init_script(SHIFTS)
    app.page.goto(f"{server}/learn-{lesson}?learn_{lesson}_step=yours&learn_large=true")
    app.page.locator("#qs-first-sidebar").wait_for(state="detached", timeout=60_000)
    at_rest(app.page)
    expect(app.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")
    assert app.page.evaluate("window.shifted") < 0.1, app.page.evaluate("window.moved")
    app.page.get_by_test_id("stExpandSidebarButton").click()
    expect(app.page.get_by_test_id("stSidebar")).to_be_visible()
