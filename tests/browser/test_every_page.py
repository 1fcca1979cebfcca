"""What holds on every page: it opens without moving, has one scale of type, follows the theme, and has its navigation on a
phone, and Link in one place.
"""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from contrast import PALE
from page_rest import at_rest, expect
from parts import in_parts
from playwright.sync_api import TimeoutError
from type_scale import CELL, NOTE, ROW, cells, odd

from pages.browser.streamlit_dom import NAMES
from pages.registry import PAGES

MINILM = "ck=example:minilm-gptq&ck_original=example:minilm"
TENSOR = f"checkpoint?{MINILM}&ck_tensor=encoder.layer.0.output.dense.weight&ck_cell=97,8"
MORE = [
    "?tab=Distribution",
    "?tab=Scales",
    "?tab=Code",
    f"checkpoint?{MINILM}",
    f"compare-checkpoints?{MINILM}",
    TENSOR,
]
MORE += ["learn-ptq-or-qat?learn_ptq_or_qat_step=rounding"]
LINKS = ["learn-granularity?learn_granularity_step=yours", *(page.url_path for page in PAGES), *MORE]
# How much moved without the visitor's doing, and what from where to where
SHIFTS = """(() => { window.shifted = 0; window.moved = []; new PerformanceObserver((list) => {
    const box = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
    for (const { hadRecentInput, value, startTime, sources } of list.getEntries()) if (!hadRecentInput) {
        window.shifted += value;
        for (const { node, previousRect, currentRect } of value > 0.01 ? sources : []) {
            const part = (node?.nodeType === 1 ? node : node?.parentElement)?.closest("[class*=st-key], [data-testid]");
            moved.push(`${Math.round(startTime)} ms: ${part?.className || part?.dataset.testid} ${box(previousRect)} -> ${box(currentRect)}`);
        }
    }
}).observe({ type: "layout-shift", buffered: true }); })()"""
COLORS = """[...document.querySelectorAll(".qs-maps svg.qs-scales stop, .js-plotly-plot text, .qs-cells .qs-cell")].map((e) =>
    e.getAttribute("stop-color") ?? getComputedStyle(e)[e instanceof SVGElement ? "fill" : "color"]).join()"""
# In this theme, all text is legible and, where there are maps or charts, their colors are these, or others than before
FOLLOWED = f"""([theme, colors, before]) => {{
    const app = document.querySelector("[data-testid=stApp]"), now = {COLORS};
    return getComputedStyle(app).colorScheme === theme && (colors === null ? !before || now !== before : now === colors)
        && !({PALE})().length;
}}"""
# Every chart and map is there, and nothing has changed since the last look
DRAWN = f"""() => {{
    const now = {COLORS}, last = window.seen;
    window.seen = now;
    return now === last && !document.querySelector("[data-testid=stSkeleton], .qs-empty")
        && [...document.querySelectorAll(".stPlotlyChart")].every((e) => e.querySelector(".js-plotly-plot text"));
}}"""


MARKED = """[...document.querySelectorAll("[data-testid=stTopNav] button")].filter((e) =>
    getComputedStyle(e).boxShadow.includes("inset")).map((e) => e.textContent)"""


def says_where_one_is(app: Any, link: str) -> None:
    """The app's name, the browser tab's title, the menu that holds the page, one heading of the first level."""
    page = next(page for page in PAGES if page.url_path == link.partition("?")[0])
    expect(app.page).to_have_title(f"{page.title} · Quantscope")
    expect(app.page.get_by_text("see what quantization does to a tensor", exact=True)).to_be_in_viewport(ratio=1)
    assert app.page.evaluate(MARKED) == [page.section], link
    assert app.page.get_by_role("heading", level=1).count() == 1, link


def charts_have_names(app: Any) -> None:
    """A screen reader says what each chart shows, and none of the numbers along its axes."""
    app.wait("""[...document.querySelectorAll(".stPlotlyChart")].every((e) => {
        const [chart, ...others] = e.querySelectorAll(".main-svg");
        return chart?.role === "img" && chart.ariaLabel.length > 20 && others.every((o) => o.ariaHidden === "true"); })""")


def switch(app: Any, theme: str, before: str, colors: str | None = None) -> None:
    """Change the theme and do nothing else; wait until everything has followed."""
    app.page.emulate_media(color_scheme=theme)
    try:
        app.page.wait_for_function(FOLLOWED, arg=[theme, colors, before])
    except TimeoutError:
        pytest.fail(f"{app.page.url} in {theme}: {app.page.evaluate(PALE)}")


def has_one_scale_of_type(app: Any) -> None:
    app.page.wait_for_function(DRAWN, polling=200)
    assert odd(app.page) == [], app.page.url
    assert cells(app.page) <= {CELL}, app.page.url


def follows_the_theme(app: Any) -> str:
    """From light to dark; returns the colors before."""
    light: str = app.page.evaluate(COLORS)
    switch(app, "dark", before=light)
    return light


def watched(app: Any) -> Any:
    """In a tab of its own: notes what moves, and the type of what is painted."""
    app.page.set_viewport_size({"width": 1280, "height": 720})
    app.page.add_init_script(SHIFTS)
    app.page.add_init_script(NOTE)
    return app


def opens_in_its_place(app: Any, link: str) -> None:
    """Open a link in a tab that is watched."""
    app.page.goto(f"{app.address}/{link}")
    at_rest(app.page)
    assert app.page.evaluate("window.shifted") < 0.1, (link, app.page.evaluate("window.moved"))
    says_where_one_is(app, link)
    if not link.startswith("learn"):
        charts_have_names(app)
    has_one_scale_of_type(app)


@pytest.mark.slow  # by default, one page is looked at in test_history.py, and a lesson in test_learn.py
def test_a_page_opens_in_its_place_and_follows_the_theme(new_app: Callable[..., Any], server: str) -> None:
    app = watched(new_app(server, own=True))
    places = set()
    for link in LINKS:
        opens_in_its_place(app, link)
        if link == "formats":  # a painted table of five rows and a header, in a frame of 1 px
            table = app.page.get_by_test_id("stDataFrame").bounding_box()
            assert (table["height"] - 2) / 6 == pytest.approx(ROW, abs=0.3)
        places.add(str(app.page.get_by_role("button", name="Link", exact=True).bounding_box()))
        light = follows_the_theme(app)
        switch(app, "light", before=light, colors=light)
    assert len(places) == 1


@pytest.mark.slow  # it waits as one does behind a slow line
def test_a_chart_whose_code_comes_late_has_its_name(app: Any) -> None:
    app.page.route("**/PlotlyChart*.js", lambda route: (time.sleep(12), route.continue_()))
    app.page.context.new_cdp_session(app.page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    app.page.goto(f"{app.address}/?tab=Distribution")
    app.wait("document.querySelector('.stPlotlyChart .main-svg')")
    charts_have_names(app)


@pytest.mark.slow  # by default, what stands above a page has keys, by which the style knows it
def test_the_title_has_its_place_before_the_code_of_what_stands_above_has_come(app: Any) -> None:
    app.page.route(re.compile(r"/(BidiComponent|Html)\.\w+\.js"), lambda route: (time.sleep(3), route.continue_()))
    app.page.context.new_cdp_session(app.page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    app.page.goto(f"{app.address}/libraries")
    title = "document.querySelector('[data-testid=stMain] h1')?.getBoundingClientRect().y"
    before = app.wait(f"!document.querySelector('.qs-name') && {title}")
    app.wait("document.querySelector('.qs-name')")
    at_rest(app.page)
    assert app.page.evaluate(title) == before


@pytest.mark.slow  # Streamlit's own; by default, a phone is tested in test_layout.py
@in_parts(20)
def test_a_phone_has_the_navigation(
    new_app: Callable[..., Any], server: str, part: Callable[[Any], list[str]]
) -> None:
    app = new_app(server, width=390)
    for page in part([page for page in PAGES if not page.used({})] + PAGES[:1]):
        app.page.goto(f"{server}/{page.url_path}")
        at_rest(app.page)
        app.wait(
            "document.querySelector('[data-testid=stExpandSidebarButton], [data-testid=stSidebarCollapseButton]')"
        )
        if app.page.get_by_test_id("stExpandSidebarButton").is_visible():  # else it was left open
            app.page.get_by_test_id("stExpandSidebarButton").click()
        formats = app.page.get_by_test_id("stSidebarNav").get_by_role("link", name="Formats", exact=True)
        if page.used({}):  # its controls stand before the list of pages
            formats.scroll_into_view_if_needed()
        expect(formats).to_be_in_viewport()


SOMETIMES = {
    "skeleton",
    "element_toolbar",
    "full_screen",
    "dialog",
    "popover_body",
    "tag",
    "code",
    "expand_sidebar",
    "table",
    "data_frame",
    "image",
    "empty",
    "spinner",
    *("file", "file_arriving", "file_refused", "drop_zone"),  # of a tensor that is uploaded
    *("sidebar_nav", "sidebar_links", "sidebar_line"),  # on a phone
}


@pytest.mark.slow  # by default, they are looked up in the front end's code
def test_streamlit_still_has_its_names(app: Any) -> None:
    """Those that are on the page without an act; all are looked up in the front end's code by another test."""
    app.open(tab="Distribution", bits="99")  # which a warning says can't be used
    app.wait("document.querySelector('.js-plotly-plot')")
    selectors = {name: written for name, written in NAMES.items() if written.startswith((".", "["))}
    found = {name for name, s in selectors.items() if app.page.locator(s).count()}
    assert selectors.keys() - found <= SOMETIMES
