"""The maps follow controls as they are moved: no run stands between the hand and the picture."""

from typing import Any

import numpy as np
import pytest
from page_rest import expect

import quantcore as qc
from quantcore import tensors

RUN = "document.querySelector('[data-run]').dataset.run"
NUMBER = "document.querySelector('.qs-maps').dataset.number"
FIGURES = "['question', 'summary'].map((key) => document.querySelector(`.st-key-${key}`).innerText).join()"
# The codes that the maps show once they are painted under a scheme, with the line of figures above them
FOLLOWED = """([scheme, sqnr, lost]) => {
    const maps = document.querySelector(".qs-maps"), summary = document.querySelector(".st-key-summary").innerText;
    return maps.dataset.painted === ` ${scheme} ` && summary.includes(sqnr)
        && document.querySelector(".qs-question").innerText.includes(lost)
        && document.querySelector(".st-key-_scheme_text input").value === scheme && Array.from(maps.shown.values.codes);
}"""

# Collects what the maps are painted with, the run of the page then and how the canvas looks
WATCH_PAINTING = f"""() => {{
    const maps = document.querySelector(".qs-maps"), canvas = maps.querySelector("canvas");
    window.painting?.disconnect();
    window.painted = [];
    window.painting = new MutationObserver(() => painted.push([maps.dataset.painted, {RUN}, canvas.toDataURL()]));
    window.painting.observe(maps, {{ attributes: true, attributeFilter: ["data-painted"] }});
}}"""
# Plotly's buttons, which come with the pointer, end where the map does: its color bar has its top label on their right
BESIDE_THE_BAR = """() => {
    const plot = document.querySelector(".qs-maps .js-plotly-plot"), { xaxis2 } = plot._fullLayout;
    const ends = [...plot.querySelectorAll(".modebar-btn")].map((e) => e.getBoundingClientRect().right);
    return ends.length && Math.max(...ends) <= plot.getBoundingClientRect().left + xaxis2._offset + xaxis2._length + 1;
}"""
# What the changes are against takes no line of its own, however wide the window: the maps would jump under the hand
NO_LINE = """() => {
    const list = document.querySelector("dl.qs-figures"), reference = list.querySelector(".qs-reference");
    const height = (_, n) => { list.style.width = `${400 + 10 * n}px`; return list.offsetHeight; };
    const shown = String(Array.from({ length: 60 }, height));
    reference.style.display = "none";
    const hidden = String(Array.from({ length: 60 }, height));
    list.style.width = reference.style.display = "";
    return shown === hidden;
}"""
LOOK = "document.querySelector('.qs-maps canvas').toDataURL()"
FORESEEN = """(asked) => [...document.querySelector(".qs-maps").foreseen.keys()].some((other) => other.startsWith(`${asked}&`))"""
# The other signs, and before anything is heard of them the next width
UNSIGNED_AND_ON = """async () => {
    const unsigned = document.querySelector(".st-key-codes [role=radio][aria-checked=false]");
    unsigned.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
    unsigned.click();
    await new Promise((go) => queueMicrotask(() => queueMicrotask(go)));
    const slider = document.querySelector(".st-key-bits input[type=range]");
    slider.focus();
    slider.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
}"""
# A key that only the maps hear, on a slider that is disabled, and the frames in which they would be painted
DISABLED_ONE_ON = """async () => {
    const slider = document.querySelector(".st-key-bits input[type=range]");
    document.body.addEventListener("keydown", (event) => event.stopPropagation(), { capture: true, once: true });
    slider.disabled = true;
    slider.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }));
    slider.disabled = false;
    for (let n = 0; n < 3; n++) await new Promise(requestAnimationFrame);
}"""

RANGED = """([scheme, sqnr]) => {
    const maps = document.querySelector(".qs-maps");
    return maps.dataset.painted === ` ${scheme} ` && document.querySelector(".st-key-rng_figures").innerText.includes(sqnr)
        && Array.from(maps.shown.values.codes);
}"""


def text(bits: int) -> str:
    return f"int{bits} symmetric per_tensor min_max textbook"


def expect_followed(app: Any, x: np.ndarray, scheme: qc.Scheme) -> None:
    """Wait until maps and figures show this scheme, and compare the codes with quantcore's."""
    result = qc.apply(x, scheme)
    error, size = (float((values.double() ** 2).sum()) for values in (result.error, result.x))
    off = 100 * (error / size) ** 0.5
    lost = f"the error is {off:.{0 if off >= 9.95 else 1}f} % of the values"
    codes = app.wait(FOLLOWED, [str(scheme), qc.decibels(qc.report(result).sqnr_db, 2), lost])
    np.testing.assert_array_equal(codes, result.codes.numpy().reshape(-1))


def thumb(app: Any, bits: int) -> tuple[float, float]:
    """Where the slider's thumb stands at a width."""
    box = app.page.locator(".st-key-bits [data-orientation]").last.bounding_box()
    return box["x"] + box["width"] * (bits - 2) / 14, box["y"] + box["height"] / 2


@pytest.mark.slow  # what the route gives is tested without a browser
@pytest.mark.parametrize(
    ("parameters", "fixed"),
    [
        ({"tab": "Distribution", "dist": "normal"}, "symmetric fixed(-{0:g}, {0:g})"),
        ({"tab": "Distribution", "dist": "normal", "mode": "asymmetric"}, "asymmetric fixed({1:.6g}, {0:g})"),
    ],
)
def test_an_end_is_dragged_in_the_histogram(app: Any, parameters: dict[str, str], fixed: str) -> None:
    app.open(shape="6x10", **parameters)
    x, page = tensors.generate(tensors.Generated("normal", (6, 10))), app.page
    app.wait("document.querySelector('.st-key-distribution_chart .js-plotly-plot')?._fullLayout")
    page.mouse.move(640, 300)  # the grips come with the pointer
    grip = page.locator(".qs-grip").last
    grip.scroll_into_view_if_needed()
    page.mouse.move(640, 301)
    grip.hover()
    box, run = grip.bounding_box(), page.evaluate(RUN)
    page.mouse.down()
    seen = page.evaluate(NUMBER)
    for part in (60, 120):  # each in one move: the next picture is the one that stays
        page.mouse.move(box["x"] + box["width"] / 2 - part, box["y"] + box["height"] / 2)
        app.wait(f"() => {NUMBER} !== {seen!r} && document.querySelector('.qs-band')")
        high = float(
            page.evaluate("document.querySelector('.qs-maps').dataset.painted").split(", ")[-1].split(")")[0]
        )
        assert high < x.max()
        scheme = qc.Scheme.parse("int4 " + fixed.format(high, x.min()))
        app.wait("(text) => document.querySelector('.qs-maps').dataset.painted === ` ${text} `", str(scheme))
        seen = page.evaluate(NUMBER)
    assert page.evaluate(RUN) == run
    page.mouse.up()
    app.expect_parameter("high", f"{high:g}")
    app.expect_scheme(str(scheme))
    assert page.evaluate(NUMBER) == seen
    assert page.locator(".qs-band").count() == 0
    app.button("Undo")
    app.expect_scheme(f"int4 {parameters.get('mode', 'symmetric')} per_tensor min_max textbook")


@pytest.mark.slow  # what the route gives is tested without a browser
@pytest.mark.parametrize(
    ("mode", "fixed"), [("symmetric", "fixed(-{0:g}, {0:g})"), ("asymmetric", "fixed({1:g}, {0:g})")]
)
def test_ranges_follow_the_slider_with_figures_and_band(app: Any, mode: str, fixed: str) -> None:
    app.page.goto(f"{app.address}/ranges?dist=normal&shape=6x10&seed=3&mode={mode}")
    app.expect_maps()
    x, page = tensors.generate(tensors.Generated("normal", (6, 10), seed=3)), app.page
    track, run = page.locator(".st-key-rng_slider [data-orientation]").last, page.evaluate(RUN)
    track.hover()  # which waits until the page stands still
    box = track.bounding_box()
    for part in (0.65, 0.55, 0.6):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2, steps=3)
        page.mouse.down()  # where it is up: the nearest end moves there
        high = float(page.locator(".st-key-rng_slider input").last.input_value())
        scheme = qc.Scheme.parse(f"int4 {mode} {fixed.format(high, x.min())}")
        codes = app.wait(RANGED, [str(scheme), qc.decibels(qc.report(qc.apply(x, scheme)).sqnr_db, 2)])
        np.testing.assert_array_equal(codes, qc.apply(x, scheme).codes.numpy().reshape(-1))
    assert page.evaluate(RUN) == run
    seen = page.evaluate(NUMBER)
    assert page.locator(".qs-band").count() == 1
    page.mouse.up()
    app.expect_parameter("range", "fixed")
    app.expect_maps(str(scheme))
    assert page.evaluate(NUMBER) == seen
    assert page.locator(".qs-band").count() == 0


def the_maps_follow_a_drag_and_the_run_draws_what_is_seen(app: Any) -> None:
    """Of 64 by 128 elements, from 4 bits to 8."""
    x = tensors.generate(tensors.Generated(shape=(64, 128)))
    app.expect_scheme(text(4))
    run, steps = app.page.evaluate(f"[{RUN}, history.length]")
    app.page.mouse.move(*thumb(app, 4))
    app.page.mouse.down()
    for bits in (6, 9, 3):
        app.page.mouse.move(*thumb(app, bits), steps=3)
        expect_followed(app, x, qc.Scheme(qc.IntFormat(bits)))
    assert app.page.evaluate(RUN) == run
    assert app.page.evaluate(NO_LINE)
    seen = app.page.evaluate(NUMBER)
    app.page.mouse.up()
    app.expect_scheme(text(3))
    assert app.page.evaluate(RUN) != run
    assert app.page.evaluate(NUMBER) == seen
    app.expect_parameter("bits", "3")
    assert app.page.evaluate("history.length") == steps + 1
    app.input("bits").focus()
    for _ in range(4):  # faster than the runs that the keys ask for
        app.page.keyboard.press("ArrowRight")
    app.expect_scheme(text(7))
    expect_followed(app, x, qc.Scheme(qc.IntFormat(7)))
    expect_foreseen(app, x)


@pytest.mark.slow  # by default, one picture that was foreseen is tested in test_pointed.py
def test_what_is_foreseen_is_painted_only_where_it_is_asked_at_the_ends_and_of_options(app: Any) -> None:
    """One visit; a failure names its step."""
    app.open(shape="64x128", bits="7")
    app.expect_scheme(text(7))
    app.page.mouse.move(*thumb(app, 7))  # pictures of all widths are asked for ahead only under the pointer
    app.input("bits").press("ArrowRight")
    app.expect_scheme(text(8))
    expect_foreseen_only_where_asked(app)
    expect_ends_kept(app)
    expect_waited_for(app)
    expect_options_foreseen(app)


def expect_foreseen(app: Any, x: np.ndarray) -> None:
    """Go on from 7 bits by a key: what was foreseen is painted without asking."""
    page, blocked = app.page, "**/live/**"
    app.wait(FORESEEN, "bits=8")
    app.expected.append("Failed to load resource")
    page.route(blocked, lambda route: route.abort())
    run = page.evaluate(RUN)
    page.evaluate(WATCH_PAINTING)
    app.input("bits").press("ArrowRight")
    expect_followed(app, x, qc.Scheme(qc.IntFormat(8)))
    app.expect_scheme(text(8))
    first, *others = page.evaluate("painted")
    assert first == [f" {text(8)} ", run, page.evaluate(LOOK)]
    assert {painted for painted, *_ in others} <= {f" {text(8)} "}
    page.unroute(blocked)


def expect_foreseen_only_where_asked(app: Any) -> None:
    """Go on from 8 bits to unsigned 9: what was foreseen of the signed ones is not painted."""
    page, blocked = app.page, "**/live/**"
    app.wait(FORESEEN, "bits=9")
    app.expected.append("Failed to load resource")
    page.route(blocked, lambda route: route.abort())
    page.evaluate(WATCH_PAINTING)
    page.evaluate(UNSIGNED_AND_ON)
    unsigned = f"u{text(9)}"
    app.expect_scheme(unsigned)
    assert {painted.strip() for painted, *_ in page.evaluate("painted")} <= {unsigned, f"u{text(8)}"}
    page.unroute(blocked)


def expect_ends_kept(app: Any) -> None:
    """Go to the ends of the range by keys, and beyond them by keys and a drag."""
    page, slider, first, last = app.page, app.input("bits"), f"u{text(2)}", f"u{text(16)}"
    app.wait(FORESEEN, "bits=16")
    run = page.evaluate(RUN)
    page.evaluate(WATCH_PAINTING)
    slider.press("End")
    app.expect_scheme(last)
    assert page.evaluate("painted[0]")[:2] == [f" {last} ", run]
    slider.press("ArrowRight")
    page.mouse.move(*thumb(app, 16))
    page.mouse.down()
    page.mouse.move(*thumb(app, 18), steps=2)
    page.mouse.up()
    assert {painted.strip() for painted, *_ in page.evaluate("painted")} == {last}
    slider.press("Home")
    app.expect_scheme(first)
    assert {painted.strip() for painted, *_ in page.evaluate("painted")} == {first, last}


def expect_waited_for(app: Any) -> None:
    """Go on from 2 bits, not while the slider is disabled, and to a picture that is being asked for ahead: it is
    not asked for once more.
    """
    page, slider, asked, every = app.page, app.input("bits"), list[str](), "**/live/*bits=*"
    app.wait(FORESEEN, "bits=3")
    page.evaluate(WATCH_PAINTING)
    page.evaluate(DISABLED_ONE_ON)
    assert page.evaluate("painted") == []

    def hold(route: Any) -> None:
        if "ahead=bits:4,2" in route.request.url or "&ahead=" not in route.request.url:
            asked.append(route.request.url)
        else:
            route.continue_()  # of before the run

    page.route(every, hold)
    slider.press("ArrowRight")
    for _ in range(300):
        if any("ahead=bits:4,2" in url for url in asked):
            break
        page.wait_for_timeout(20)
    slider.press("ArrowRight")
    page.wait_for_timeout(100)
    (once,) = (url for url in asked if "part=resting" not in url)
    assert "ahead=bits:4,2" in once
    page.unroute(every)  # which lets go what is held
    app.expect_scheme(f"u{text(4)}")


def expect_options_foreseen(app: Any) -> None:
    """Choose a granularity as a finger does, which points at none before: it is painted without asking."""
    page, blocks, blocked = app.page, f"u{text(4)}".replace("per_tensor", "per_block([2,2])"), "**/live/**"
    app.input("per").focus()
    app.input("per").press("ArrowDown")
    app.wait(FORESEEN, "per=4")
    page.route(blocked, lambda route: route.abort())
    run = page.evaluate(RUN)
    page.evaluate(WATCH_PAINTING)
    page.get_by_role("option", name="block", exact=True).evaluate("(option) => option.click()")
    app.expect_scheme(blocks)
    assert page.evaluate("painted[0]")[:2] == [f" {blocks} ", run]
    page.unroute(blocked)


def colors_glide_where_motion_is_wanted_and_end_at_the_picture(app: Any) -> None:
    four = app.page.evaluate(LOOK)
    app.page.evaluate(WATCH_PAINTING)
    app.input("bits").press("ArrowRight")
    app.expect_scheme(text(5))
    assert app.page.evaluate(f"painted[0][2] === {LOOK}")
    app.page.emulate_media(reduced_motion="no-preference")
    try:
        app.page.wait_for_timeout(300)  # pictures that follow each other quickly do not glide
        app.page.evaluate(WATCH_PAINTING)
        app.input("bits").press("ArrowLeft")
        app.expect_scheme(text(4))
        app.wait(f"(look) => {LOOK} === look", four)
        assert app.page.evaluate("painted[0][2]") != four
    finally:
        app.page.emulate_media(reduced_motion="reduce")


@pytest.mark.slow  # by default, a value is dragged in test_maps.py
def test_colors_glide_a_drag_is_undone_by_escape_and_what_is_played_is_kept(app: Any) -> None:
    """One visit; a failure names its step."""
    app.open()
    app.expect_scheme(text(4))
    colors_glide_where_motion_is_wanted_and_end_at_the_picture(app)
    a_value_is_dragged_without_alt_and_escape_undoes_it(app)
    keep_what_is_played_and_undo(app)


def a_value_is_dragged_in_its_cell_and_undone(app: Any) -> None:
    """Of the tensor that Explore opens with."""
    x, page = tensors.generate(tensors.Generated()), app.page
    run, start = page.evaluate(RUN), page.evaluate(NUMBER)
    app.point(2, 3)
    assert page.evaluate(BESIDE_THE_BAR)
    at_x, at_y = app.place(2, 3)
    page.keyboard.down("Alt")
    page.mouse.down()
    for rise in (60, 180):  # 120 px add the largest |x|, 15.87: 0.1 a step
        page.mouse.move(at_x, at_y - rise, steps=4)
        x[2, 3] = round((0.4335317 + rise * 15.866889 / 120) / 0.1) * 0.1
        expect_followed(app, x, qc.Scheme(qc.INT4))
    assert page.evaluate(RUN) == run
    seen = page.evaluate(NUMBER)
    page.mouse.up()
    page.keyboard.up("Alt")
    app.expect_parameter("cell", "2, 3")
    app.expect_scheme(text(4))
    assert page.evaluate(NUMBER) == seen
    assert page.get_by_text(f"Element (2, 3) changed to {x[2, 3]:g}.").is_visible()
    app.button("Undo")
    app.expect_parameter("src", None)
    app.wait(f"() => {NUMBER} === {start!r}")


def a_value_is_dragged_without_alt_and_escape_undoes_it(app: Any) -> None:
    page = app.page
    app.tick("drags")
    app.expect_parameter("drags", "true")
    app.point(5, 0)
    at_x, at_y = app.place(5, 0)
    seen, figures = page.evaluate(NUMBER), page.evaluate(FIGURES)
    page.mouse.down()
    page.mouse.move(at_x, at_y + 200, steps=4)
    app.wait(f"() => {NUMBER} !== {seen!r}")
    app.wait(f"(figures) => {FIGURES} !== figures", figures)
    page.keyboard.press("Escape")
    app.wait(f"() => {NUMBER} === {seen!r}")
    assert page.evaluate(FIGURES) == figures
    page.mouse.up()


def keep_what_is_played_and_undo(app: Any) -> None:
    app.key("_play").locator("button").first.click()
    app.wait("document.querySelector('.st-key-_play button').dataset.says === 'Keep 8 bits'")
    app.key("_play").locator("button").first.click()
    app.expect_scheme(text(8))
    expect(app.page.get_by_text("Bits changed to 8.")).to_be_visible()
    app.button("Undo")
    app.expect_scheme(text(4))


def arrows(app: Any, key: str, option: str) -> None:
    """Go down an open list to an option without choosing it."""
    field = app.input(key)
    field.press("ArrowDown")
    for _ in range(9):
        at = field.get_attribute("aria-activedescendant")
        if at and app.page.locator(f"[id='{at}']").inner_text().strip() == option:
            return
        field.press("ArrowDown")
    raise AssertionError(f"{option} is not in the list of {key}.")


MOVES = {
    "uint4": ({}, lambda app: app.press("codes", "unsigned")),
    "int4 asymmetric": ({}, lambda app: app.press("mode", "asymmetric")),
    "int4 percentile(97.2)": (
        {"range": "percentile", "p": "97.12345"},
        lambda app: app.key("p").get_by_label("Increment").click(),
    ),
    "int4 percentile(97)": (
        {"range": "percentile", "p": "97.12345"},
        lambda app: app.input("p").press("ArrowDown"),
    ),
    "int4 percentile(60.5)": ({"range": "percentile"}, lambda app: app.input("p").fill("60.5")),
    "int4 per_channel(0)": ({}, lambda app: arrows(app, "per", "channel")),
    "int4 per_block([6, 2])": (
        {"per": "group", "group": "2"},
        lambda app: app.key("group_all").locator("label").first.click(),
    ),
    "int4 per_block([-1, 5])": ({"per": "block"}, lambda app: app.input("block").fill("-1x5")),
    "int4 per_group(5, 1)": ({"per": "group", "group": "2"}, lambda app: arrows(app, "group", "5")),
}


@pytest.mark.slow  # what the route gives is tested without a browser
@pytest.mark.parametrize("text_of", MOVES)
def test_a_control_is_followed_without_a_run(new_app: Any, server: str, text_of: str) -> None:
    """Nothing that the browser says reaches the server's script then."""
    app, held = new_app(server, own=True), list[bool]()

    def between(browser: Any) -> None:
        script = browser.connect_to_server()
        browser.on_message(lambda message: None if held else script.send(message))

    app.page.route_web_socket("**", between)
    parameters, move = MOVES[text_of]
    app.open(shape="6x10", **parameters)
    x, run = tensors.generate(tensors.Generated(shape=(6, 10))), app.page.evaluate(RUN)
    held.append(True)
    move(app)
    expect_followed(app, x, qc.Scheme.parse(text_of))
    assert app.page.evaluate(RUN) == run


@pytest.mark.slow  # what the route gives is tested without a browser
def test_the_bits_are_played_without_a_run_and_kept_by_a_press(app: Any) -> None:
    app.open(shape="6x10")
    app.expect_scheme(text(4))
    x, page = tensors.generate(tensors.Generated(shape=(6, 10))), app.page
    run, seen, play = page.evaluate(RUN), page.evaluate(NUMBER), app.key("_play").locator("button").first
    play.click()
    for bits in range(8, 1, -1):
        expect_followed(app, x, qc.Scheme(qc.IntFormat(bits)))
    expect_followed(app, x, qc.Scheme(qc.IntFormat(4)))
    assert (page.evaluate(RUN), page.evaluate(NUMBER)) == (run, seen)
    app.expect_parameter("bits", None)
    play.click()
    expect_followed(app, x, qc.Scheme(qc.IntFormat(7)))
    play.click()
    app.expect_scheme(text(7))
    app.expect_parameter("bits", "7")
    page.go_back()
    app.expect_scheme(text(4))
    play.click()
    expect_followed(app, x, qc.Scheme(qc.IntFormat(8)))
    page.mouse.click(640, 5)  # anywhere else: the maps show again what the slider stands at
    expect_followed(app, x, qc.Scheme(qc.IntFormat(4)))
    app.expect_parameter("bits", None)
