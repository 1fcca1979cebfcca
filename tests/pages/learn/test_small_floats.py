"""The lesson "Small floats" without a browser: e2m1 by its bits, and the powers of two of MXFP4, in numpy."""

import json
import math

import numpy as np
from app_page import key_figures, said, widget
from grid import for_each
from lesson_app import assert_clean, code, hyphens, numbers, opened, tables
from parts import some

NAME = "small_floats"
VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
SHARES = np.array([0.05, -0.18, 0.44, 0.12, -0.03, 1.0, 0.24, -0.56])


@for_each("n", some(range(8), 5))
def test_a_code_by_its_bits(n: int) -> None:
    at = opened(NAME, "values", learn_small_floats_code=str(n))
    assert numbers(tables(at)["value"]) == [VALUES.tolist()]
    assert code(at).strip().endswith(f"= {VALUES[n]:g}")
    figure = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert figure["layout"]["meta"]["words"].startswith("Which numbers have 4 bits? Horizontal axis: value")
    marks, even, chosen = figure["data"]
    assert [marks["y"][0], even["y"][0], chosen["x"]] == ["e2m1", "int4", [VALUES[n]]]


@for_each("largest", some([2.0, 8.0, 7.5, 15.5], 2))
def test_a_scale_that_is_a_power_of_two(largest: float) -> None:
    at = opened(NAME, "scales", learn_small_floats_largest=str(largest))
    scale = 2.0 ** (math.floor(math.log2(largest)) - 2)
    x = SHARES * largest
    nearest = np.sign(x) * VALUES[np.abs(np.abs(x / scale)[:, None] - VALUES).argmin(1)] * scale
    assert key_figures(at)["scale"] == f"{scale:.4g}"
    assert np.allclose(numbers(tables(at)["x̂"]), [nearest], atol=6e-3)


@for_each(("answer", "verdict"), [("1", "Right."), ("2", "Not quite.")])
def test_the_question_and_its_answer(answer: str, verdict: str) -> None:
    at = opened(NAME, "question")
    widget(at, "learn_small_floats_answer").set_value(answer).run()
    assert_clean(at)
    assert verdict in " ".join(said(at.markdown))


def test_what_formats_cost() -> None:
    at = opened(NAME, "cost")
    assert_clean(at)
    assert hyphens(at) == []
    assert list(at.table[0].value["Bits per element"]) == ["5", "4.25", "4.5", "5"]
