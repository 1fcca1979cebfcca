"""The frame around every page: keyboard navigation, the switch between light and dark, large mode, and Link."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from contrast import PALE
from page_rest import REST, expect

from pages.browser.streamlit_dom import NAMES
from quantcore.tensors import encode
from tests.browser.test_projector import SIZE
from tests.browser.test_sharing import (
    a_click_on_link_copies_the_address_and_says_so_and_a_qr_code_is_the_link,
)

DEFAULT = "int4 symmetric per_tensor min_max textbook"
# brightness of a color, from 0 to 1
LUMINANCE = "(c) => c.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 765"
FOCUSED = "document.activeElement"
# What Streamlit's own containers turned into layers during a run, by their keys; a run shorter than a frame shows none
FADES = """() => { window.fades = new Set();
    const key = (element) => element.closest("[class*=st-key-]")?.className.match(/st-key-(\\S+)/)[1] ?? element.outerHTML;
    const look = () => { requestAnimationFrame(look);
        for (const { transitionProperty: property, effect } of document.getAnimations())
            if (property === "opacity" && effect.target.matches(CONTAINER)) window.fades.add(key(effect.target)); };
    look(); }""".replace("CONTAINER", repr(NAMES["element"]))


def test_tab_a_lost_connection_the_theme_large_mode_and_link(app: Any, clipboard: None) -> None:
    """One visit; a failure names its step."""
    app.open(src="paste", t=encode(np.array([[1, 2, 3]], np.float32)), bits="5")
    app.expect_scheme(DEFAULT.replace("int4", "int5"))
    the_maps_are_reached_by_tab(app)
    a_page_that_lost_its_connection_goes_on(app)
    the_theme_is_chosen_on_the_page(app)
    large_mode_has_large_maps_and_text(app)
    a_click_on_link_copies_the_address_and_says_so_and_a_qr_code_is_the_link(app)


@pytest.mark.slow  # by default, Tab reaches the maps beside an open sidebar, and a theme is chosen without a reload
def test_a_folded_sidebar_is_not_reached_by_tab_and_a_reload_is_dark_at_once(
    new_app: Callable[..., Any], server: str
) -> None:
    app = new_app(server, own=True).open()
    app.expect_scheme(DEFAULT)
    a_folded_sidebar_is_not_reached_by_tab(app)
    the_theme_is_chosen_on_the_page(app)
    the_theme_is_kept(app)


def the_maps_are_reached_by_tab(app: Any) -> None:
    skip = app.page.get_by_role("button", name="Skip to the maps")
    expect(skip).not_to_be_in_viewport()
    app.page.keyboard.press("Tab")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    app.page.keyboard.press("Enter")
    for _ in range(6):
        if app.page.evaluate(f"!!{FOCUSED}.closest('.qs-maps')"):
            break
        app.page.keyboard.press("Tab")
    else:
        raise AssertionError("the maps are not reached within 5 Tabs")
    app.page.keyboard.press("ArrowRight")  # the maps handle keys
    app.page.keyboard.press("ArrowRight")
    app.page.keyboard.press("Enter")
    app.expect_parameter("cell", "0, 1")


def a_folded_sidebar_is_not_reached_by_tab(app: Any) -> None:
    app.page.get_by_test_id("stSidebarHeader").hover()
    app.page.get_by_role("button", name="Collapse sidebar").click()
    expect(app.page.get_by_test_id("stSidebar")).to_have_attribute("data-collapsed", "true")
    expect(app.input("bits")).to_be_hidden()
    app.page.evaluate(f"{FOCUSED}.blur()")
    reached = set()
    for _ in range(12):
        app.page.keyboard.press("Tab")
        assert not app.page.evaluate(f"!!{FOCUSED}.closest('.stSidebar')")
        reached.add(app.page.evaluate(f"{FOCUSED}.outerHTML"))
    assert len(reached) > 10
    app.page.get_by_test_id("stExpandSidebarButton").click()
    expect(app.input("bits")).to_be_visible()
    assert not app.page.locator(".st-key-qs_unseen").is_visible()  # and it does not leave a gap


def a_page_that_lost_its_connection_goes_on(app: Any) -> None:
    codes = app.map("codes")
    app.expected += ["WebSocket"]
    run = "document.querySelector('[data-run]').dataset.run"
    before = app.page.evaluate(f"window.qsRuns.reconnected = 0, window.qsRuns.socket.close(), {run}")
    app.wait(
        f"(before) => {REST} && window.qsRuns.reconnected && {run} !== before", before
    )  # it asked for a run
    np.testing.assert_array_equal(app.map("codes"), codes)
    app.input("bits").focus()
    app.page.keyboard.press("ArrowRight")
    app.expect_scheme(DEFAULT.replace("int4", "int6"))


def expect_dark(app: Any, dark: bool) -> None:
    app.wait(
        """(dark) => {
            const of = LUMINANCE, style = (selector) => getComputedStyle(document.querySelector(selector));
            const ink = document.querySelector(".qs-plot .xtick text");
            return (of(style("[data-testid=stApp]").backgroundColor) < 0.2) === dark
                && (!document.querySelector(".qs-maps") || ink && (of(getComputedStyle(ink).fill) > 0.5) === dark);
        }""".replace("LUMINANCE", LUMINANCE),
        dark,
    )


def the_theme_is_chosen_on_the_page(app: Any) -> None:
    expect_dark(app, False)
    address, length = app.page.url, app.page.evaluate("window.stays = true, history.length")
    app.page.get_by_role("radio", name="Dark", exact=True).check(force=True)
    expect_dark(app, True)
    app.wait(f"{REST} && !({PALE})().length")
    assert (app.page.url, app.page.evaluate("history.length")) == (address, length)
    assert app.page.evaluate("window.stays")  # nothing was reloaded


def the_theme_is_kept(app: Any) -> None:
    # there is no flash of light: the first paint of the page is dark
    app.page.add_init_script(
        """window.addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
            const app = document.querySelector("[data-testid=stApp]");
            if (app) window.firstPaint ??= getComputedStyle(app).backgroundColor;
        }).observe(document, { childList: true, subtree: true }));"""
    )
    app.page.reload()
    app.expect_scheme(DEFAULT)
    expect_dark(app, True)
    assert app.page.evaluate(f"({LUMINANCE})(firstPaint)") < 0.2
    expect(app.page.get_by_role("radio", name="Dark", exact=True)).to_be_checked()
    app.page.get_by_role("radio", name="System", exact=True).check(force=True)
    expect_dark(app, False)


def large_mode_has_large_maps_and_text(app: Any) -> None:
    small = app.page.evaluate(SIZE)
    app.tick("learn_large")
    app.expect_parameter("learn_large", "true")
    app.wait(f"{SIZE} >= 1.25 * {small} && document.querySelector('.qs-maps.qs-large')")


@pytest.mark.slow  # how fast it is, not what it shows
def test_a_key_press_makes_no_layer_of_each_control(new_app: Callable[..., Any], server: str) -> None:
    app = new_app(server, own=True)
    app.page.emulate_media(reduced_motion="no-preference")
    app.open(shape="4096x4096", dist="normal")
    app.expect_scheme("int4 symmetric per_tensor min_max textbook")
    app.page.evaluate(FADES)
    app.input("bits").focus()
    app.page.keyboard.press("ArrowRight")
    app.expect_scheme("int5 symmetric per_tensor min_max textbook")
    app.rest()
    assert set(app.page.evaluate("[...window.fades]")) == {"maps", "summary"}


@pytest.mark.slow
def test_a_line_says_that_the_page_works_as_soon_as_it_is_asked_to(app: Any) -> None:
    app.open()
    app.expect_maps()
    # it moves only where motion is wanted, but appears everywhere
    line = "getComputedStyle(document.querySelector('[data-testid=stApp]'), '::after').animationName"
    app.wait(f"!{line}.includes('qs-seen')")
    for control, event in (
        (".st-key-bits input", "new Event('input', { bubbles: true })"),
        (".st-key-shape input", "new KeyboardEvent('keydown', { key: 'Enter', bubbles: true })"),
        (".st-key-_bring button", "new MouseEvent('click', { bubbles: true })"),
    ):
        works = app.page.locator(control).first.evaluate(f"(e) => {{ e.dispatchEvent({event}); return {line}; }}")
        assert "qs-seen" in works, control
        app.wait(f"!{line}.includes('qs-seen')")


@pytest.mark.slow
def test_no_sidebar_flashes_while_code_is_late(new_app: Callable[..., Any], server: str) -> None:
    """What hides it is an element, too, whose code a slow connection has not sent yet."""
    app = new_app(server, own=True)
    held: list[Any] = []
    app.page.route("**/static/js/Html.*.js", lambda request: held.append(request))
    app.page.goto(f"{server}/learn")
    app.page.locator("#qs-first-view").wait_for(state="detached", timeout=60_000)
    assert held
    sidebar = app.page.get_by_test_id("stSidebar")
    expect(sidebar).to_be_hidden()
    for request in held:
        request.continue_()
    app.page.locator("#qs-first-sidebar").wait_for(state="detached", timeout=60_000)
    expect(sidebar).to_be_hidden()
