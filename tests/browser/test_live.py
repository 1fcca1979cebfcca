"""The maps follow the Bits slider while it is dragged: no run stands between the hand and the picture."""

from typing import Any

import numpy as np
import pytest

import quantcore as qc
from quantcore import tensors

RUN = "document.querySelector('[data-run]').dataset.run"
NUMBER = "document.querySelector('.qs-maps').dataset.number"
# The codes that the maps show once they are painted under a scheme, with the line of figures above them
FOLLOWED = """([scheme, sqnr]) => {
    const maps = document.querySelector(".qs-maps"), summary = document.querySelector(".st-key-summary").innerText;
    return maps.dataset.painted === ` ${scheme} ` && summary.includes(sqnr)
        && document.querySelector(".st-key-_scheme_text input").value === scheme && Array.from(maps.shown.values.codes);
}"""


def text(bits: int) -> str:
    return f"int{bits} symmetric per_tensor min_max textbook"


def expect_followed(app: Any, x: np.ndarray, bits: int) -> None:
    """Wait until maps and figures show this width, and compare the codes with quantcore's."""
    result = qc.apply(x, qc.Scheme(qc.IntFormat(bits)))
    codes = app.wait(FOLLOWED, [text(bits), qc.decibels(qc.report(result).sqnr_db, 2)])
    np.testing.assert_array_equal(codes, result.codes.numpy().reshape(-1))


def thumb(app: Any, bits: int) -> tuple[float, float]:
    """Where the slider's thumb stands at a width."""
    box = app.page.locator(".st-key-bits [data-orientation]").last.bounding_box()
    return box["x"] + box["width"] * (bits - 2) / 14, box["y"] + box["height"] / 2


@pytest.mark.parametrize("shape", ["64x128", pytest.param("40x600", marks=pytest.mark.slow)])
def test_the_maps_follow_a_drag_and_the_run_draws_what_is_seen(app: Any, shape: str) -> None:
    app.open(shape=shape)
    x = tensors.generate(tensors.Generated(shape=tuple(map(int, shape.split("x")))))
    if shape != "64x128":
        x = app.map("x")  # those that the overview shows, whose range is that of all
    app.expect_scheme(text(4))
    run = app.page.evaluate(RUN)
    app.page.mouse.move(*thumb(app, 4))
    app.page.mouse.down()
    for bits in (6, 9, 4, 3):
        app.page.mouse.move(*thumb(app, bits), steps=3)
        expect_followed(app, x, bits)
    assert app.page.evaluate(RUN) == run
    seen = app.page.evaluate(NUMBER)
    app.page.mouse.up()
    app.expect_scheme(text(3))
    assert app.page.evaluate(RUN) != run
    assert app.page.evaluate(NUMBER) == seen
    app.expect_parameter("bits", "3")
    app.input("bits").focus()
    for _ in range(4):  # faster than the runs that the keys ask for
        app.page.keyboard.press("ArrowRight")
    app.expect_scheme(text(7))
    expect_followed(app, x, 7)
