"""The browser's Back and Forward: one step per action of the visitor, each to the view seen before."""

from collections.abc import Callable
from typing import Any

import pytest
from page_rest import REST, expect
from playwright.sync_api import TimeoutError

from pages.shared.curriculum import LESSONS
from tests.browser.test_brought import (
    a_dropped_file_is_the_tensor,
    a_file_that_cannot_be_opened_is_refused_in_a_sentence,
    notes_when_pages_can_ask,
    pasted_text_is_the_tensor_and_undo_returns,
    what_is_pasted_before_the_page_is_drawn_is_taken_then,
)
from tests.browser.test_every_page import follows_the_theme, opens_in_its_place, watched
from tests.browser.test_findings import (
    fix_and_back_and_what_it_writes_late_into_the_link_is_the_same_step,
    show_outlines_the_cells_in_all_four_maps,
)

DEFAULT = "int4 symmetric per_tensor min_max textbook"

# The link, the scheme, the key figures, and the value of every control of the sidebar (an empty field may be drawn
# late); but not the reference that figures are compared with, which is different after Back
VIEW = """() => JSON.stringify([location.search,
    document.querySelector(".st-key-_scheme_text input")?.value,
    [...document.querySelectorAll(".qs-figures div:not(.qs-reference) dd")].map((e) => e.firstChild.textContent),
    [...document.querySelectorAll(".stSidebar :is(input, textarea)")].map((e) => e.type === "checkbox" ? e.checked : e.value)
        .filter((value) => value !== ""),
    [...document.querySelectorAll(".stSidebar [aria-checked=true]")].map((e) => e.innerText)])"""


def steps(app: Any) -> int:
    return int(app.page.evaluate("history.length"))


def first_view(app: Any) -> str:
    """The view once the shape field has its value, which it gets last."""
    app.wait("() => document.querySelector('.st-key-shape input')?.value")
    return str(app.page.evaluate(VIEW))


def expect_view(app: Any, view: str) -> None:
    """Wait until this view is shown again."""
    try:
        app.page.wait_for_function(f"(view) => {REST} && ({VIEW})() === view", arg=view)
    except TimeoutError:
        assert app.page.evaluate(VIEW) == view
        raise


def after(app: Any, act: Callable[[Any], None]) -> str:
    """Act, wait until the page's run has changed the link and what is shown, and return the view.

    What follows an act live changes the figures before the run that takes the step.
    """
    figures = f"(() => JSON.stringify(JSON.parse(({VIEW})()).slice(1, 3)))()"
    before = [app.page.evaluate("location.search"), app.page.evaluate(figures)]
    act(app)
    app.wait(f"(before) => {REST} && location.search !== before[0] && {figures} !== before[1]", before)
    view: str = app.page.evaluate(VIEW)
    return view


def arrows(app: Any, key: str = "ArrowRight", times: int = 1) -> None:
    app.input("bits").focus()
    for _ in range(times):
        app.page.keyboard.press(key)


ACTS: list[Callable[[Any], None]] = [
    arrows,
    lambda app: app.press("mode", "asymmetric"),
    lambda app: app.choose("per", "channel"),
    lambda app: app.type("seed", "3"),
    lambda app: app.type("outlier_channel_factor", "30"),
    lambda app: app.type("shape", "6x10"),
    lambda app: app.type("_scheme_text", "uint3 per_channel(axis=1) fixed(-1, 2)"),
    lambda app: app.choose("src", "paste"),
    lambda app: app.type("_pasted", "1.0, 2.0, 3.0\n4.0, 5.0, 60.0"),
    lambda app: app.tick("narrow"),
]


@pytest.mark.slow  # by default, two steps back are tested, and Back after a fix
def test_back_ten_times_returns_through_ten_views(app: Any) -> None:
    app.open(bits="99", codes="unsigned")  # 99 bits are invalid: correcting the link is not a step
    app.expect_scheme("uint4 symmetric per_tensor min_max textbook")
    app.rest()
    first = steps(app)
    assert first == 2  # the new window's empty page, and this one
    views = [first_view(app)]
    views += [after(app, act) for act in ACTS]
    assert len(set(views)) == len(views)
    assert steps(app) == first + len(ACTS)
    for view in reversed(views[:-1]):
        app.page.go_back()
        expect_view(app, view)
    for view in views[1:3]:
        app.page.go_forward()
        expect_view(app, view)
    after(app, arrows)
    assert steps(app) == first + 3  # undone steps are gone, and going back and forth added none


def test_a_page_opens_in_its_place_back_undoes_controls_and_a_fix_and_what_is_brought_is_taken(
    new_app: Callable[..., Any], server: str
) -> None:
    """One visit; a failure names its step."""
    app = watched(new_app(server, own=True))
    notes_when_pages_can_ask(app)
    opens_in_its_place(app, "?tab=Distribution")
    follows_the_theme(app)
    app.tab("Arithmetic")  # below the maps, so that the page scrolls
    app.page.get_by_test_id("stMain").evaluate("(main) => main.scrollTop = 0")
    app.expect_parameters()
    first, view = at_first(app)
    each_control_is_a_step(app, first, view)
    fix_and_back_and_what_it_writes_late_into_the_link_is_the_same_step(app)
    pasted_text_is_the_tensor_and_undo_returns(app)
    what_is_pasted_before_the_page_is_drawn_is_taken_then(app)
    a_dropped_file_is_the_tensor(app)
    a_file_that_cannot_be_opened_is_refused_in_a_sentence(app)


@pytest.mark.slow  # by default, steps on one page are tested; the cells of a finding are tested without a browser
def test_keys_pressed_quickly_pages_and_steps_of_a_lesson_are_undone_by_back_and_a_finding_is_shown(app: Any) -> None:
    """One visit; a failure names its step."""
    app.open()
    first, view = at_first(app)
    keys_pressed_quickly_are_not_a_step_each(app, first, view)
    each_control_is_a_step(app, first, view)
    back_over_pages_and_the_steps_of_a_lesson(app, first, view)
    show_outlines_the_cells_in_all_four_maps(app)


def at_first(app: Any) -> tuple[int, str]:
    """Wait for Explore as it opens; returns the steps of the history until then, and the view."""
    app.expect_scheme(DEFAULT)
    app.rest()
    return steps(app), first_view(app)


def keys_pressed_quickly_are_not_a_step_each(app: Any, first: int, view: str) -> None:
    arrows(app, times=3)  # faster than the page responds
    app.expect_scheme(DEFAULT.replace("int4", "int7"))
    app.rest()
    taken = steps(app) - first
    assert 1 <= taken < 3
    for _ in range(taken):
        app.page.go_back()
    expect_view(app, view)


def each_control_is_a_step(app: Any, first: int, view: str) -> None:
    app.press("mode", "asymmetric")
    app.press("codes", "unsigned")  # another control, before the page has responded
    app.expect_scheme("uint4 asymmetric per_tensor min_max textbook")
    app.rest()
    assert steps(app) == first + 2
    app.page.go_back()
    app.expect_scheme("int4 asymmetric per_tensor min_max textbook")
    app.page.go_back()
    expect_view(app, view)


def back_over_pages_and_the_steps_of_a_lesson(app: Any, first: int, view: str) -> None:
    app.button("Learn")
    app.page.get_by_role("menuitem", name="Scale").click()
    heading = app.page.get_by_test_id("stMain").locator("h1")
    expect(heading).to_contain_text("2 · Scale")  # Explore has a heading, too
    app.page.wait_for_function(f"() => {REST}")  # the step chosen while the lesson still opens is one act with it
    headings = [heading.inner_text()]
    run = "document.querySelector('[data-run]').dataset.run"
    before = app.page.evaluate(run)
    app.press("learn_scale_step", "Range")  # a teacher goes straight to a step
    expect(heading).to_contain_text(LESSONS["scale"].steps["range"].headline)
    headings.append(heading.inner_text())
    # by their number alone the history knows, on a slow machine, that what follows is another act
    app.wait(f"(before) => {REST} && {run} !== before", before)
    assert steps(app) == first + 2
    for text in reversed(headings[:-1]):
        app.page.go_back()
        expect(heading).to_have_text(text)
    app.page.go_back()
    expect_view(app, view)
