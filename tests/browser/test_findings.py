"""Findings in the browser: affected cells are outlined, Back undoes a fix, and nothing moves."""

from typing import Any

import numpy as np
import pytest
from page_rest import expect
from parts import some

import quantcore as qc
from pages.explore.explore.findings import IMAGES, TITLES
from pages.shared.curriculum import LESSONS
from quantcore.diagnosis import KINDS, in_brief

EXAMPLES = {name: kind.example for name, kind in KINDS.items()}
DEFAULT = "int4 symmetric per_tensor min_max textbook"


def finding_button(app: Any, name: str) -> Any:
    return app.page.locator(".st-key-findings").get_by_role("button", name=name, exact=True)


def open_examples(app: Any) -> None:
    app.page.get_by_role("button", name=f"All {len(TITLES)} examples").click()


def show_outlines_the_cells_in_all_four_maps(app: Any) -> None:
    examples = app.page.locator(".st-key-finding_examples").get_by_role("radio")
    examples.filter(has_text=EXAMPLES["wrapped"].title).click()
    scheme = qc.Scheme.parse(EXAMPLES["wrapped"].scheme)
    app.expect_scheme(str(scheme))
    result = qc.apply(EXAMPLES["wrapped"].load(), scheme)
    codes = np.rint(result.x.numpy() / result.scale.numpy())
    expect(app.page.locator("rect.qs-found")).to_have_count(0)
    finding_button(app, "Show").click()
    outside = np.argwhere((codes < -128) | (codes > 127)).tolist()
    assert outside
    expect(app.page.locator("rect.qs-found")).to_have_count(4 * len(outside))
    middles = app.page.evaluate(
        """[...document.querySelectorAll("rect.qs-found")].map((e) => e.getBoundingClientRect())
        .map((box) => [box.x + box.width / 2, box.y + box.height / 2])"""
    )
    for number in range(4):
        for at in app.places(outside, number):
            assert any(abs(at[0] - x) < 3 and abs(at[1] - y) < 3 for x, y in middles)
    finding_button(app, "Hide").click()
    expect(app.page.locator("rect.qs-found")).to_have_count(0)


def fix_and_back_and_what_it_writes_late_into_the_link_is_the_same_step(app: Any) -> None:
    (finding,) = qc.diagnose(qc.apply(qc.tensors.generate(qc.tensors.Generated()), qc.Scheme.parse(DEFAULT)))
    frame = app.maps("() => document.querySelector('.qs-maps').getBoundingClientRect().toJSON()")
    before = app.page.url
    finding_button(app, "Fix").click()
    app.expect_scheme(str(finding.fix))
    expect(app.page.get_by_text("No known problems found.")).to_be_visible()
    assert app.maps("() => document.querySelector('.qs-maps').getBoundingClientRect().toJSON()") == frame
    # like a control that appears with the fix and writes its value only after the run
    late = "history.pushState({}, '', location.href + '&bits=5'), history.length"
    assert app.page.evaluate("history.length") == app.page.evaluate(late)
    app.page.go_back()
    app.expect_scheme(DEFAULT)
    expect(app.page).to_have_url(before)
    expect(finding_button(app, "Fix")).to_be_visible()


@pytest.mark.slow  # tested without a browser, but for the values in the maps
@pytest.mark.parametrize("kind", some(["zero_not_exact", "wrapped", "per_channel"]))
def test_the_link_of_a_loaded_example_shows_it_again(app: Any, kind: str) -> None:
    app.open()
    app.expect_scheme(DEFAULT)
    open_examples(app)
    app.button(EXAMPLES[kind].title)
    scheme = str(qc.Scheme.parse(EXAMPLES[kind].scheme))
    expect(app.input("_scheme_text")).to_have_value(scheme)
    app.rest()
    app.expect_scheme(scheme)
    x = app.map("x")
    finding = qc.diagnose(qc.apply(EXAMPLES[kind].load(), qc.Scheme.parse(EXAMPLES[kind].scheme)))[0]
    expect(app.page.get_by_text(finding.sentence[:60])).to_be_visible()
    other = app.beside(app.page.url)
    other.expect_scheme(scheme)
    assert (other.map("x") == x).all()
    expect(other.page.get_by_text(finding.sentence[:60])).to_be_visible()


@pytest.mark.slow  # each example is tested without a browser
def test_examples_are_offered_above_the_maps(app: Any) -> None:
    app.page.set_viewport_size({"width": 1280, "height": 720})
    app.open()
    row = app.page.locator(".st-key-finding_examples").get_by_role("radio")
    expect(row).to_have_count(5)
    for button in row.all():
        expect(button).to_be_in_viewport(ratio=1)
    app.wait("document.querySelector('.qs-maps').getBoundingClientRect().bottom <= innerHeight")
    for kind in ("wrapped", "zero_block", "wrapped"):  # also one that was clicked before
        row.filter(has_text=EXAMPLES[kind].title).click()
        app.expect_scheme(str(qc.Scheme.parse(EXAMPLES[kind].scheme)))
    row.filter(has_text=IMAGES["image"].title).click()
    app.expect_scheme(str(qc.Scheme.parse(IMAGES["image"].scheme)))
    app.expect_parameter("ex", IMAGES["image"].tensor)


@pytest.mark.slow  # the layout of one line; its buttons are tested without a browser
def test_a_long_finding_takes_one_line_and_leads_to_its_lesson(app: Any) -> None:
    app.open(shape="6x4x32", dist="outlier_channel", factor="12", bits="8", per="group", group="8")
    (first, *_) = qc.diagnose(
        qc.apply(
            qc.tensors.generate(qc.tensors.Generated("outlier_channel", (6, 4, 32))),
            qc.Scheme.parse("int8 per_group(8)"),
        )
    )
    assert len(first.sentence) > 140
    line, text = app.page.locator(".st-key-findings"), app.page.locator(".st-key-finding_line p")
    expect(text).to_contain_text(in_brief(first, 3))
    assert line.bounding_box()["height"] <= 40
    lesson_link = line.get_by_role("link", name="Lesson")
    for part in (text, finding_button(app, "Show"), lesson_link):
        box, outer = part.bounding_box(), line.bounding_box()
        assert outer["x"] <= box["x"] < box["x"] + box["width"] <= outer["x"] + outer["width"] + 1
        assert outer["y"] <= box["y"] < box["y"] + box["height"] <= outer["y"] + outer["height"] + 1
    line.get_by_role("button", name="All 3").click()
    expect(app.page.get_by_test_id("stPopoverBody").get_by_text(first.sentence)).to_be_visible()
    app.page.keyboard.press("Escape")
    lesson_link.click()
    # the lesson's first step, which is not in its link
    expect(app.page.get_by_text(LESSONS["granularity"].steps["tensor"].headline)).to_be_visible()
    app.expect_parameter("shape", "6x4x32")
