"""Lessons in a browser: every step, cold links, large mode, and picking cells."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from lesson_walk import beside, opened, stands, to_lesson
from page_rest import at_rest, expect
from parts import Part, in_parts, some
from type_scale import CELL, cells

import quantcore as qc
from pages.shared import curriculum
from quantcore import tensors
from quantcore.mistakes import CASES, compare
from quantcore.prediction import practice
from tests.browser.test_every_page import follows_the_theme, has_one_scale_of_type

LESSONS = list(curriculum.LESSONS)


@pytest.mark.slow
def test_opens_cold_by_its_link(fresh_server: str, new_app: Callable[..., Any]) -> None:
    """The first visit, also the first to this server, opens the last step of a lesson."""
    for name in LESSONS[::-3]:  # the last one needs the most; another test opens a link of each lesson
        first = new_app(fresh_server)
        steps = _steps(name)
        opened(first, name, **{curriculum.step_key(name): steps[-1], "bits": "5"})
        stands(first, name, steps[-1])
        expect(first.input("bits")).to_have_value("5")
        expect(first.page.get_by_role("dialog")).to_have_count(0)
        assert first.complaints() == []
        first.close()


def _steps(name: str) -> list[str]:
    return list(curriculum.LESSONS[name].steps)


@pytest.mark.slow  # by default, cells in a window that stays as it is are tested
def test_cells_fit_again_after_the_window_was_narrow(app: Any) -> None:
    opened(app, "mistakes", learn_mistakes_step="wraps-per-column")
    size = "getComputedStyle(document.querySelector('.qs-cells')).fontSize"
    before = app.wait(f"document.querySelector('.qs-cells figure') && {size}")
    app.page.set_viewport_size({"width": 390, "height": 900})
    app.wait(f"(before) => {size} !== before", before)
    app.page.set_viewport_size({"width": 1280, "height": 900})
    app.wait(f"(before) => {size} === before", before)


def rows_continue_in_a_phone(app: Any) -> None:
    """Eight cells with numbers of four digits are wider than a phone: none of a lesson's tables is cut."""
    app.page.set_viewport_size({"width": 390, "height": 844})
    app.wait(
        "(grids => grids.length === 4 && grids.every(grid => grid.offsetWidth <= grid.parentElement.clientWidth))"
        "([...document.querySelectorAll('.qs-grid')])"
    )
    lines = app.page.locator(".qs-grid").first.evaluate(
        "grid => [...grid.children].filter(e => e.offsetWidth).map(e => [Math.round(e.getBoundingClientRect().y), e.textContent])"
        ".sort((a, b) => a[0] - b[0]).reduce((all, [y, text]) => (all[y] = [...(all[y] ?? []), text], all), {})"
    )
    numbers, first, rest, second = list(lines.values())
    assert (numbers, rest) == (["0", "1", "2", "3"], ["4", "5", "6", "7"])
    assert (first[2], second[1]) == ("3.300", "7.500")
    app.page.set_viewport_size({"width": 1280, "height": 720})


def mercury_and_numbers_are_dragged(app: Any) -> None:
    """The picture follows before the button is released; then the page's run and the link do."""
    drawn = "JSON.parse(document.querySelector('.qs-hand')?.dataset.drawn ?? '{}')"
    app.wait(f"{drawn}.learn_scale_bits === 3")
    mouse = app.page.mouse
    box = app.page.locator(".qs-handle[data-key=learn_scale_reading]").first.bounding_box()
    x, y = box["x"] + 13, box["y"] + 13
    run = app.page.evaluate("document.querySelector('[data-run]').dataset.run")
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 90, y, steps=6)
    reading = app.wait(f"{drawn}.learn_scale_reading > 40 && {drawn}.learn_scale_reading")
    assert app.page.evaluate("document.querySelector('[data-run]').dataset.run") == run
    words = app.page.locator(".st-key-learn_hand_words")
    expect(words.locator("[data-key=learn_scale_reading]")).to_contain_text("°C")
    mouse.up()
    app.wait("location.search.includes('learn_scale_reading=')")
    at_rest(app.page)
    assert app.page.evaluate(f"{drawn}.learn_scale_reading") >= reading
    number = words.locator(".qs-scrub[data-key=learn_scale_bits]")
    number.press("ArrowRight")
    app.wait(f"{drawn}.learn_scale_bits === 4")
    app.expect_parameter("learn_scale_bits", "4")
    expect(number).to_be_focused()
    expect(app.page.locator(".st-key-learn_scale_bits input[type=range]")).to_have_value("4")


PLAIN = {  # steps that are only read, without a control of their own
    ("zero_point", "symmetric"), ("zero_point", "one-sided"), ("zero_point", "zero"), ("zero_point", "choose"),
    *(("granularity", step) for step in ("tensor", "rows", "columns", "trap", "cost")),
    *(("error", step) for step in ("signed", "means", "sqnr")),
    ("why_quantize", "size"), ("why_quantize", "product"), ("outliers", "channels"),
    *(("gptq", step) for step in ("inputs", "result", "loss", "inverse", "example")),
    ("rotation", "undo"), ("rotation", "layer"), ("small_floats", "cost"),
}  # fmt: skip
SCROLLS = {("ptq_or_qat", "curve")}  # its chart, figures and table together are longer than a window
_INSIDE = """() => ["lesson_picture", "lesson_control"].map((key) => {
    const place = document.querySelector(".st-key-" + key), box = place?.getBoundingClientRect();
    const seen = box && box.top >= 0 && box.left >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
    const drawn = place?.querySelector(".js-plotly-plot .main-svg, .qs-cells figure, table, [data-painted], .st-key-lesson_chart_row");
    const control = document.querySelector(":is(.st-key-lesson_control, .st-key-lesson_plan) :is(input, [role=slider], [role=radio])");
    return key === "lesson_picture" ? Boolean(seen && drawn) : Boolean(seen) && Boolean(control);
})"""


@pytest.mark.slow  # a lesson's step is looked at where wrong cells are found
@in_parts(13)
def test_every_step_shows_its_picture_and_its_control_in_one_window(app: Any, part: Part) -> None:
    """In large mode, from the first step to the last with one button; every size in the slow run."""
    sizes = part([(1280, 720), (1920, 1080)])
    lessons = part(LESSONS[::-1])  # the last one has tables that are wider than a phone
    opened(app, lessons[0], learn_large="true")
    for number, name in enumerate(lessons):
        for place, step in enumerate(_steps(name)):
            stands(app, name, step if place else None)
            app.wait(
                f"document.querySelector('h1')?.innerText.includes({curriculum.LESSONS[name].steps[step].headline!r})"
            )
            wanted = [True, (name, step) not in PLAIN]
            for width, height in sizes if (name, step) not in SCROLLS else ():
                app.page.set_viewport_size({"width": width, "height": height})
                app.wait(f"JSON.stringify(({_INSIDE})()) === '{str(wanted).lower().replace(' ', '')}'")
            assert cells(app.page) <= {CELL}
            if (name, step) == ("small_floats", "scales"):
                rows_continue_in_a_phone(app)
            if place + 1 < len(_steps(name)):
                app.button("Next")
                app.expect_parameter(curriculum.step_key(name), _steps(name)[place + 1])
        if number + 1 < len(lessons):
            opened(app, lessons[number + 1], learn_large="true")
    app.button("Previous")
    stands(app, lessons[-1], _steps(lessons[-1])[-2])


@pytest.mark.slow  # by default, that of Explore is tested in test_frame.py
@pytest.mark.parametrize("width", some([1280, 1920]))
def test_large_mode(new_app: Callable[..., Any], server: str, width: int) -> None:
    app = new_app(server, width=width)
    size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    opened(app, "scale", learn_scale_step="yours")
    app.expect_maps("int4 symmetric per_tensor min_max textbook")
    small, cell = app.page.evaluate(size), _cell(app)
    expect(app.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "false")
    app.tick("learn_large")
    app.expect_parameter("learn_large", "true")
    stands(app, "scale", "yours")
    expect(app.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")
    app.page.wait_for_function(f"() => {size} >= {1.25 * small}")
    expect(app.page.locator(".qs-maps.qs-large")).to_have_count(1)
    # titles, ticks and numbers grow, but maps limited by the window must not shrink because of that
    app.page.wait_for_function(f"() => {_CELL} >= {0.98 * cell}")
    assert app.page.evaluate("document.scrollingElement.scrollWidth") <= width
    to_lesson(app, 3)
    stands(app, "zero_point")
    app.expect_parameter("learn_large", "true")  # kept from lesson to lesson
    expect(app.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")
    app.tick("learn_large")
    app.expect_parameter("learn_large", None)
    expect(app.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "false")


_CELL = "(document.querySelector('.qs-plot')._fullLayout.xaxis._length * document.querySelector('.qs-plot')._fullLayout.yaxis._length)"


def _cell(app: Any) -> float:
    """The area of a map in square pixels."""
    app.page.wait_for_function(f"() => {_CELL} > 0")
    return float(app.page.evaluate(_CELL))


@pytest.mark.slow  # by default, a click in Explore is tested
def test_a_click_on_a_map_opens_the_arithmetic_and_stands_in_the_link(app: Any) -> None:
    x = tensors.generate(tensors.Generated())
    opened(app, "granularity", learn_granularity_step="yours", per="channel")
    app.expect_maps()
    app.click(3, 5)
    app.expect_parameter("learn_granularity_cell", "3, 5")
    expect(app.page.locator("strong").filter(has_text="Arithmetic of element (3, 5)")).to_be_visible()
    result = qc.apply(x, qc.Scheme.parse("int4 per_channel(axis=0)"))
    line = qc.trace(result, (3, 5)).steps()[-1].value
    expect(app.page.locator("pre.qs-arithmetic")).to_contain_text(line.replace("-", "−"))


def test_wrong_cells_are_found_by_mouse_and_keys_and_revealed(app: Any) -> None:
    wrong = compare(CASES["wraps-per-column"]).wrong_cells
    opened(app, "mistakes", learn_mistakes_step="wraps-per-column")
    cells = app.page.locator(".st-key-learn_mistakes_find figure").nth(2).locator("button.qs-cell")
    expect(cells).to_have_count(16)
    has_one_scale_of_type(app)
    follows_the_theme(app)
    right = int((~wrong.flatten()).nonzero()[0])
    first = int(wrong.flatten().nonzero()[0])
    cells.nth(first).click()
    expect(cells.nth(first)).to_have_attribute("aria-pressed", "true")
    cells.nth(right).focus()
    for said, pressed in (("2 cells", "true"), ("1 cell", "false")):  # the focus stays on the cell
        app.page.keyboard.press("Enter")
        expect(app.page.get_by_text(f"{said} chosen.")).to_be_visible()
        expect(cells.nth(right)).to_have_attribute("aria-pressed", pressed)
        at_rest(app.page)
    app.press("learn_mistakes_shown", "reveal")
    app.expect_parameter("learn_mistakes_shown", "reveal")
    table = app.page.locator(".st-key-learn_mistakes_wrong figure").first
    expect(table.locator(".qs-right")).to_have_count(1)
    expect(table.locator(".qs-missed")).to_have_count(int(wrong.sum()) - 1)
    expect(table.locator(".qs-false")).to_have_count(0)
    expect(app.page.get_by_text("you found 1, and marked 0 correct cells")).to_be_visible()


@pytest.mark.slow  # tested without a browser
def test_a_class_predicts_the_same_tensor(app: Any) -> None:
    opened(app, "predict")
    app.button("New tensor")
    app.expect_parameter("learn_predict_seed", "1")
    other = beside(app, "predict")
    read = "[...document.querySelectorAll('.st-key-learn_predict_x .qs-cell')].map((c) => c.textContent)"
    expect(other.page.locator(".st-key-learn_predict_x .qs-cell")).to_have_count(24)
    expect(app.page.locator(".st-key-learn_predict_x .qs-cell")).to_have_count(24)
    assert app.page.evaluate(read) == other.page.evaluate(read)
    other.close()
    x = [[float(text) for text in app.page.evaluate(read)]]
    found = practice(qc.INT4, True, 1, clipping=True)
    np.testing.assert_array_equal(
        np.array(x, np.float32).reshape(4, 6), found.x
    )  # the table shows all digits
    codes = (
        qc.apply(found.x, qc.Scheme(qc.INT4, range_setting=qc.Fixed(found.low, found.high))).codes[0].tolist()
    )
    fields = app.page.locator("[class*=st-key-learn_predict_answer_] input")
    expect(fields).to_have_count(6)
    for i, code in enumerate(codes):
        fields.nth(i).fill(str(code if i else code + 7))
    app.button("Check")
    marks = app.page.locator("[class*=st-key-learn_predict_marks_]")
    expect(marks.locator(".qs-right")).to_have_count(5)
    expect(marks.locator(".qs-wrong")).to_have_count(1)
    expect(fields.first).to_have_value(str(codes[0] + 7))  # nothing typed is lost
    app.button("Show of hands")
    hands = app.page.get_by_role("dialog")
    for label, count in ((str(codes[0]), "23"), ("another answer", "7")):
        hands.get_by_label(label, exact=True).fill(count)
        hands.get_by_label(label, exact=True).press("Enter")
    expect(hands.get_by_text(f"{codes[0]} · 23 of 30")).to_be_visible()
    app.page.keyboard.press("Escape")
    expect(hands).to_have_count(0)
    to_lesson(app, 6)
    stands(app, "mistakes")
    app.page.go_back()
    stands(app, "predict")
    expect(fields.first).to_have_value(str(codes[0] + 7))
