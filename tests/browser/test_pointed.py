"""The arithmetic that stands beside the maps on wide windows: of the element under the pointer, or of a pinned one."""

import re
import time
from typing import Any

import numpy as np
import pytest
from page_rest import expect
from playwright.sync_api import Request

import quantcore as qc
from quantcore import tensors
from quantcore.quantization import Quantized
from tests.browser.test_images import the_menu_of_a_picture_closes_and_many_cells_are_an_image_in_it
from tests.browser.test_layout import boxes, check
from tests.browser.test_live import the_maps_follow_a_drag_and_the_run_draws_what_is_seen
from tests.browser.test_projector import large_is_large

DEFAULT = "int4 symmetric per_tensor min_max textbook"
ROUTE = "/arithmetic/"
# What stands beside the maps: its heading and lines, without spaces, once they are those of the element wanted
STANDS = """([title, lines]) => {
    const steps = document.querySelector(".qs-standing:not(.qs-late)"), bare = (e) => e.textContent.replace(/\\s/g, "");
    return steps?.querySelector("b").textContent.startsWith(title)
        && JSON.stringify([...steps.querySelectorAll("pre > span")].map(bare)) === JSON.stringify(lines);
}"""


def bare(step: Any) -> str:
    return re.sub(r"\s", "", f"{step.name}{step.formula}{step.value}")


def expect_standing(app: Any, result: Quantized, index: tuple[int, ...]) -> None:
    """Wait until the lines of the trace of this element stand beside the maps."""
    lines = [bare(step) for step in qc.trace(result, index).steps()]
    encoding = qc.encoding(result)
    if encoding:  # a line about the library's own numbers comes first; the tests of traces check it
        shown = app.page.locator(".qs-standing pre > span")
        expect(shown).to_have_count(len(lines) + 1)
        lines = [re.sub(r"\s", "", shown.first.inner_text()), *lines]
    app.wait(STANDS, [f"Arithmetic of element ({', '.join(map(str, index))})", lines])


@pytest.fixture
def wide(app: Any) -> Any:
    app.page.set_viewport_size({"width": 1920, "height": 1080})
    return app


@pytest.mark.slow  # the lines of each scheme are tested without a browser
@pytest.mark.parametrize(
    ("x", "schemes"),
    [
        (
            tensors.generate(tensors.Generated(shape=(4, 256))),
            ["gguf.Q4_K", "int4 asymmetric per_channel percentile(95) onnxruntime", "torchao.mxfp4", "nf4 per_group(8)", "e4m3fn per_channel(1) textbook"],
        ),
        (np.array([[np.nan, 1.5], [-np.inf, 0.25]], np.float32), ["int4 symmetric per_tensor given(0.1) onnxruntime"]),
        (np.linspace(-1, 1, 5, dtype=np.float32), [DEFAULT]),
    ],
    ids=["schemes", "nan", "vector"],
)
@pytest.mark.filterwarnings("ignore:1 element becomes NaN")
def test_the_lines_of_the_trace_follow_the_pointer(wide: Any, x: np.ndarray, schemes: list[str]) -> None:
    wide.open(src="paste", t=qc.tensors.encode(x))
    for number, text in enumerate(schemes):
        named = str(qc.PRESETS.get(text) or qc.Scheme.parse(text))
        scheme = qc.Scheme.parse(
            re.sub(r"(per_group\(\d+)\)", r"\1, axis=1)", named, count=1)
        )  # as the page writes it
        wide.type("_scheme_text", str(scheme))
        wide.expect_scheme(str(scheme))
        result = qc.apply(x, scheme)
        for place in np.linspace(0, x.size - 1, min(x.size, 3)).astype(int).tolist():
            index = tuple(int(i) for i in np.unravel_index(place, x.shape))
            wide.point(*((0,) * (2 - x.ndim) + index), number=(number + place) % 4)
            expect_standing(wide, result, index)
    wide.page.mouse.move(5, 5)
    expect_standing(wide, result, qc.report(result).max_abs_error_index or (0,) * x.ndim)
    for _ in range(2):  # pins the element, and no more
        wide.click(0, 0, number=3)
        wide.expect_parameter("cell", ", ".join("0" * x.ndim))
    wide.point(0, 1)
    expect_standing(wide, result, (0,) * (x.ndim - 1) + (1,))


def test_a_wide_window_has_the_arithmetic_beside_the_maps_which_follow_a_drag(wide: Any) -> None:
    """One visit; a failure names its step."""
    wide.open(shape="64x128")
    a_pointer_asks_for_one_element_at_a_time_and_never_for_a_run(wide)
    a_click_pins_and_escape_unpins(wide)
    check("64x128", (1920, 1080), boxes(wide, (1920, 1080)))
    wide.input("bits").press("ArrowLeft")
    the_maps_follow_a_drag_and_the_run_draws_what_is_seen(wide)


@pytest.mark.slow  # by default, a picture of a chart is tested in test_ranges.py, and large mode in test_frame.py
def test_a_wide_window_has_pictures_of_many_cells_and_large_mode(wide: Any) -> None:
    """One visit; a failure names its step."""
    wide.open(shape="64x128")
    wide.expect_scheme(DEFAULT)
    the_menu_of_a_picture_closes_and_many_cells_are_an_image_in_it(wide, qc.Scheme.parse(DEFAULT))
    wide.page.mouse.move(5, 5)
    large_is_large(wide)


LARGER = tensors.generate(tensors.Generated(shape=(64, 128)))


def a_click_pins_and_escape_unpins(wide: Any) -> None:
    wide.page.mouse.move(5, 5)
    result = qc.apply(LARGER, qc.Scheme.parse(DEFAULT))
    worst = qc.report(result).max_abs_error_index
    assert worst is not None
    expect_standing(wide, result, worst)
    expect(wide.page.locator(".qs-standing > b")).to_contain_text("the largest |error|")
    wide.click(2, 5, number=1)
    wide.expect_parameter("cell", "2, 5")
    wide.point(6, 1, number=3)
    expect(wide.page.locator(".qs-tip:visible span").nth(1)).to_have_text("(6, 1)")
    expect_standing(wide, result, (2, 5))
    wide.input("bits").focus()
    wide.page.keyboard.press("ArrowRight")  # what is pinned follows the scheme
    five = "int5 symmetric per_tensor min_max textbook"
    wide.expect_scheme(five)
    result = qc.apply(LARGER, qc.Scheme.parse(five))
    expect_standing(wide, result, (2, 5))
    wide.page.keyboard.press("Escape")
    expect_standing(wide, result, (6, 1))  # the pointer is still there


def a_pointer_asks_for_one_element_at_a_time_and_never_for_a_run(wide: Any) -> None:
    wide.expect_scheme(DEFAULT)
    under_way, most, asked = set[Request](), [0], list[str]()

    def begin(request: Request) -> None:
        if ROUTE in request.url:
            under_way.add(request)
            asked.append(request.url)
            most[0] = max(most[0], len(under_way))

    wide.page.on("request", begin)
    wide.page.on("requestfinished", lambda request: under_way.discard(request))
    run = "document.querySelector('[data-run]').dataset.run"
    before = wide.page.evaluate(run)
    wide.point(0, 0)
    x, y = wide.place(63, 127)
    began = time.monotonic()
    wide.page.mouse.move(x, y, steps=80)
    result = qc.apply(LARGER, qc.Scheme.parse(DEFAULT))
    expect_standing(wide, result, (63, 127))
    passed = time.monotonic() - began
    assert most == [1]
    assert 1 <= len(asked) <= 3 + passed / 0.05  # with a pause of 50 ms between two
    assert wide.page.evaluate(run) == before
    count = len(asked)
    wide.point(0, 0)
    expect_standing(wide, result, (0, 0))
    assert len(asked) == count  # what has been asked once is known
    wide.page.remove_listener("request", begin)
