"""The lesson "Outliers" without a browser: figure 5 of the SmoothQuant paper, and the formula in numpy."""

import numpy as np
from app_page import key_figures, said, widget
from grid import for_each
from lesson_app import assert_clean, by_hand, code, numbers, opened, tables
from parts import some

import quantcore as qc
from quantcore import tensors

NAME = "outliers"
X = np.array([[1, -16, 2, 6], [-2, 8, -1, -9]], float)
W = np.array([[2, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]], float).T


def test_the_outlier_takes_the_range() -> None:
    at = opened(NAME, "channels")
    codes = np.round(X.astype(np.float32) / np.float32(16 / 7))  # 8 / scale is just below 3.5
    assert numbers(tables(at)["codes in int4"]) == codes.tolist()
    assert numbers(tables(at)["max|x|"]) == [[2, 16, 2, 9]]
    assert f"{(codes == 0).sum()} of 8 elements become 0" in " ".join(said(at.markdown))


def test_figure_5_of_the_paper() -> None:
    shown = tables(opened(NAME, "move"))
    assert numbers(shown["s"]) == [[1, 4, 1, 3]]
    assert numbers(shown["x / s"]) == [[1, -4, 2, 2], [-2, 2, -1, -3]]
    assert numbers(shown["w·s"]) == np.transpose([[2, 1, -2], [4, -4, -4], [2, -1, -2], [-3, -3, 3]]).tolist()


@for_each("alpha", some([0.25, 0.0, 0.8, 1.0], 2))
def test_alpha_moves_the_outlier(alpha: float) -> None:
    at = opened(NAME, "move", learn_outliers_alpha=str(alpha))
    s = np.abs(X).max(0) ** alpha / np.abs(W).max(0) ** (1 - alpha)
    assert np.allclose(numbers(tables(at)["s"]), [s], rtol=2e-3)
    assert np.allclose(numbers(tables(at)["x / s"]), X / s, rtol=2e-3, atol=6e-3)
    assert np.allclose(numbers(tables(at)["w·s"]), W * s, rtol=2e-3, atol=6e-3)
    found = key_figures(at)
    assert found["max|x / s|"] == f"{np.abs(X / s).max():.3g}"
    assert float(found["change of x·wᵀ"]) < 1e-4
    assert f"16^{alpha:g} / 1^{1 - alpha:.4g} = {s[1]:.4g}" in code(at)


def test_the_quality_of_every_alpha() -> None:
    at = opened(NAME, "quality", learn_outliers_alpha="0.3")
    x = tensors.generate(tensors.Generated("outlier_channel", (128, 64), seed=1)).astype(float)
    w = tensors.generate(tensors.Generated("normal", (48, 64), seed=2)).astype(float)
    y = x @ w.T
    chart = by_hand(at)["figure"]
    drawn = {trace["name"]: trace["y"] for trace in chart["data"]}
    found = []
    for i in range(21):
        s = np.abs(x).max(0) ** (i / 20) / np.abs(w).max(0) ** (1 - i / 20)
        step_x, step_w = np.abs(x / s).max() / 127, np.abs(w * s).max(1, keepdims=True) / 127
        y_hat = (np.round(x / s / step_x) * step_x) @ (np.round(w * s / step_w) * step_w).T
        found.append(10 * np.log10((y**2).sum() / ((y_hat - y) ** 2).sum()))
    assert np.allclose(drawn["x and w in int8"], found, atol=0.05)
    best = int(np.argmax(found))
    told = by_hand(at)["html"]["learn_hand_words"]
    assert f"α = {best / 20:g}: {found[best] - found[0]:+.1f} dB against α = 0" in told
    assert key_figures(at)["x and w in int8"] == qc.decibels(drawn["x and w in int8"][6])


@for_each(("answer", "verdict"), [("1", "Right."), ("as before", "Not quite.")])
def test_the_question_and_its_answer(answer: str, verdict: str) -> None:
    at = opened(NAME, "question")
    assert set(tables(at)) == {"x", "w"}
    widget(at, "learn_outliers_answer").set_value(answer).run()
    assert_clean(at)
    assert verdict in " ".join(said(at.markdown))
    if answer == "1":
        assert np.abs(numbers(tables(at)["x / s"])).max(0).tolist() == [1, 1, 1, 1]
