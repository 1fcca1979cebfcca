"""The lesson "Rotation" without a browser: Sylvester's matrix and the products in numpy."""

import json
from functools import reduce

import numpy as np
from app_page import key_figures, said, widget
from grid import for_each
from lesson_app import assert_clean, code, numbers, opened, tables

from quantcore import tensors

NAME = "rotation"
X = np.array([[0.5, 8.0, -0.5, 1.0], [-1.0, -6.0, 0.5, 0.5]])
W = np.array([[0.5, 0.25, -0.5, 1.0], [-1.0, 0.5, 0.25, 0.5], [0.25, -0.5, 1.0, 0.5]])
PAIR = np.array([[1, 1], [1, -1]])


def sylvester(doublings: int) -> np.ndarray:
    return reduce(np.kron, [PAIR] * doublings, np.ones((1, 1)))


def coded(values: np.ndarray) -> np.ndarray:
    step = np.abs(values).max(1, keepdims=True) / 7
    return np.clip(np.round(values / step), -8, 7) * step


@for_each("which", ["before", "after"])
def test_an_outlier_is_spread(which: str) -> None:
    at = opened(NAME, "spread", learn_rotation_which=which)
    rotated = X @ sylvester(2) / 2
    assert numbers(tables(at)["H"]) == sylvester(2).tolist()
    assert numbers(tables(at)["x·Q"]) == rotated.tolist()
    values = X if which == "before" else rotated
    steps = np.abs(values).max(1, keepdims=True) / 7
    assert (
        numbers(tables(at)[f"codes of {'x' if which == 'before' else 'x·Q'}"])
        == (coded(values) / steps).round().tolist()
    )
    assert key_figures(at)["elements that become 0"] == f"{(coded(values) == 0).sum()} of 8"
    assert f"/ 2 = {rotated[0, 1]:g}" in code(at)
    assert f"at most {np.abs(rotated).max():g}" in " ".join(said(at.markdown))


def test_the_product_is_unchanged() -> None:
    shown = tables(opened(NAME, "undo"))
    assert numbers(shown["Q·Qᵀ"]) == np.eye(4).tolist()
    assert np.allclose(numbers(shown["w·Q"]), W @ sylvester(2) / 2, atol=6e-4)
    for title in ("x·wᵀ", "(x·Q)·(w·Q)ᵀ"):
        assert np.allclose(numbers(shown[title]), X @ W.T, atol=6e-3)


def test_a_layer_by_the_size_of_the_rotation() -> None:
    at = opened(NAME, "layer")
    x = tensors.generate(tensors.Generated("outlier_channel", (128, 64), seed=1)).astype(float)
    w = tensors.generate(tensors.Generated("normal", (48, 64), seed=2)).astype(float)
    (chart,) = at.get("plotly_chart")
    drawn = list(json.loads(chart.proto.spec)["data"][0]["x"])[::-1]
    for doublings, shown in zip((0, 2, 4, 6), drawn, strict=True):
        q = np.kron(np.eye(64 >> doublings), sylvester(doublings)) / 2 ** (doublings / 2)
        error = coded(x @ q) @ coded(w @ q).T - x @ w.T
        assert abs(10 * np.log10(((x @ w.T) ** 2).sum() / (error**2).sum()) - shown) < 0.1
    assert f"changes by {drawn[-1] - drawn[0]:+.1f} dB" in " ".join(said(at.markdown))


@for_each(("answer", "verdict"), [("1", "Right."), ("8", "Not quite."), ("0.125", "Not quite.")])
def test_the_question_and_its_answer(answer: str, verdict: str) -> None:
    at = opened(NAME, "question")
    widget(at, "learn_rotation_answer").set_value(answer).run()
    assert_clean(at)
    assert verdict in " ".join(said(at.markdown))
