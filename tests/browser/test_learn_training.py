"""The lesson "PTQ or QAT" in a browser: a training is watched, stopped, left, and found again by its link."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from lesson_walk import SCROLLS, beside, opened, stands, to_lesson
from page_rest import REST, expect
from playwright.sync_api import Locator

NAME, STEP = "ptq_or_qat", "learn_ptq_or_qat_step"
LABEL = re.compile(r"Compute (the other )?(\d+) accuracies")
MANY = {
    "train_seeds": "10",
    "train_bits": ["2", "3", "4"],
}  # 100 trainings, which outlast the test on any machine


def at_step(app: Any, step: str, **parameters: Any) -> Any:
    flat = {key: value for key, value in parameters.items() if not isinstance(value, list)}
    several = "".join(
        f"&{k}={v}" for k, values in parameters.items() if isinstance(values, list) for v in values
    )
    opened(app, NAME, **flat, **{STEP: step + several})
    stands(app, NAME, step)
    return app


def metric(app: Any, label: str) -> Locator:
    """The value of a key figure."""
    found: Locator = app.page.locator(".qs-figures div").filter(has_text=label).locator("b")
    return found


def compute(app: Any) -> tuple[int, bool]:
    """How many accuracies are missing and whether that is all of them, from the button's label."""
    button = app.key("train_compute")
    expect(button).to_have_text(LABEL)
    found = LABEL.fullmatch(button.inner_text().strip())
    assert found
    return int(found[2]), not found[1]


def drawn(app: Any, *lengths: int) -> list[list[float]]:
    """The accuracies of each line of the last chart (not the maps), once the lines have these lengths."""
    lines = "[...document.querySelectorAll('.stPlotlyChart .js-plotly-plot')].at(-1)?.data?.map((t) => Array.from(t.y))"
    app.page.wait_for_function(
        f"(n) => JSON.stringify({lines}?.map((y) => y.length)) === n", arg=str([*lengths]).replace(" ", "")
    )
    return list(app.page.evaluate(lines))


@pytest.mark.slow  # by default, one that is stopped is tested
def test_a_short_training(app: Any) -> None:
    at_step(app, "qat", train_weights="int2", train_epochs="2")
    expect(app.key("train_go")).to_have_text("Train")
    drawn(app, 0)
    app.button("Train")
    expect(app.key("train_go")).to_have_text("Train again")
    stands(app, NAME, "qat")
    (accuracies,) = drawn(app, 3)
    expect(metric(app, "QAT after 2 of 2 epochs")).to_have_text(f"{accuracies[-1]:.1f} %")
    app.press("train_view", "weights")
    app.wait(f"{REST} && document.querySelector('.qs-maps')?.dataset.painted?.includes('int2')")
    app.page.set_viewport_size({"width": 1280, "height": 720})
    app.wait(f"{SCROLLS} <= 0")  # with all of its controls
    other = beside(app, NAME, "qat")  # the result is there for others who open the link
    expect(metric(other, "QAT after 2 of 2 epochs")).to_have_text(f"{accuracies[-1]:.1f} %")
    other.close()


@pytest.mark.slow  # that whatever ends the script ends the training is tested without a browser
def test_points_appear_and_stop_keeps_them(app: Any) -> None:
    at_step(app, "curve", train_weights="int4 per_channel(axis=1)", **MANY)
    assert compute(app) == (100, True)
    app.key("train_compute").get_by_role("button").click()
    rows = app.page.get_by_test_id("stTable").locator("tbody tr")
    expect(rows).to_have_count(3)  # float32 and two bit widths, while the rest is still being computed
    app.button("Stop")
    expect(app.key("train_compute")).to_be_visible()
    stands(app, NAME, "curve")
    missing, all_of_them = compute(app)
    assert 0 < missing < 100
    assert not all_of_them
    expect(rows.nth(2)).to_be_visible()
    app.page.reload()
    stands(app, NAME, "curve")
    assert 0 <= missing - compute(app)[0] <= 1  # one was in progress, the rest has stopped


@pytest.mark.slow
def test_leaving_the_page_stops_the_work(app: Any) -> None:
    at_step(app, "curve", train_weights="int4 per_channel(axis=0)", **MANY)
    app.key("train_compute").get_by_role("button").click()
    expect(app.page.get_by_test_id("stTable")).to_be_visible()
    app.press(STEP, "Network")
    stands(app, NAME, None)
    to_lesson(app, 7)
    stands(app, "predict")
    app.page.go_back()
    app.press(STEP, "Curve")
    stands(app, NAME, "curve")
    left = compute(app)
    assert left[0] > 0
    assert not left[1]
    for _ in range(2):
        other = beside(app, NAME, "curve")
        # one was in progress when the page was left and may have ended since
        assert 0 <= left[0] - compute(other)[0] <= 1
        other.close()


@pytest.mark.slow  # by default, Stop is tested
def test_closing_the_window_stops_the_work(app: Any) -> None:
    link = {"train_weights": "int4 per_group(8)", **MANY}
    other = app.another()
    at_step(other, "curve", **link)
    other.key("train_compute").get_by_role("button").click()
    expect(other.page.get_by_test_id("stTable")).to_be_visible()
    other.page.close()
    at_step(app, "curve", **link)
    before = compute(app)
    assert not before[1]
    app.press("train_as", "misread")
    app.expect_parameter("train_as", "misread")
    app.press("train_as", "accuracy")
    app.expect_parameter("train_as", None)
    stands(app, NAME, "curve")
    assert before[0] - compute(app)[0] <= 1  # one was in progress when the window closed


@pytest.mark.slow  # by default, other lessons are opened cold
def test_opens_cold_by_a_link_with_everything_in_it(fresh_server: str, new_app: Callable[..., Any]) -> None:
    app = new_app(fresh_server)
    link = {
        "train_weights": "int3 asymmetric",
        "train_seed": "2",
        "train_layer": "second",
        "train_view": "weights",
    }
    at_step(app, "ptq", **link, train_activations="uint8 asymmetric", learn_large="true")
    for key, value in link.items():
        app.expect_parameter(key, value)
    expect(app.input("train_seed")).to_have_value("2")
    app.wait(f"{REST} && document.querySelector('.qs-maps')?.dataset.painted?.includes('int3')")
    assert app.map("x").shape == (10, 64)
    assert app.page.evaluate("document.scrollingElement.scrollWidth") <= 1280
    expect(app.page.get_by_role("dialog")).to_have_count(0)
