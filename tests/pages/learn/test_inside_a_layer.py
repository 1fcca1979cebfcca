"""The lesson "Inside a layer" without a browser: its numbers against numpy's int64 and a hand computation."""

import numpy as np
from app_page import key_figures, said, widget
from grid import for_each
from lesson_app import assert_clean, code, marks, numbers, opened, tables

NAME = "inside_a_layer"
QX, QW, ZX, ZW = np.array([[25, 5], [13, 30]]), np.array([[7, -8], [-1, 12]]), 10, -3
SUMS = (QX - ZX) @ (QW - ZW).T  # 175, -45, -70, 306


@for_each(("at", "line"), [
    ("00", "s_x·s_w·(15·10 + (-5)·(-5)) = 0.0078125·175 = 1.36719"),
    ("11", "s_x·s_w·(3·2 + 20·15) = 0.0078125·306 = 2.39062"),
])  # fmt: skip
def test_a_product_of_counts(at: str, line: str) -> None:
    shown = opened(NAME, "codes", learn_inside_a_layer_output=at)
    assert numbers(tables(shown)["q_x"]) == QX.tolist()
    assert numbers(tables(shown)["q_w"]) == QW.tolist()
    assert line in code(shown)


def test_the_four_sums_add_up_to_the_product_of_counts() -> None:
    shown = opened(NAME, "sums", learn_inside_a_layer_output="10")
    found = {title: np.array(numbers(rows)) for title, rows in tables(shown).items()}
    assert (found["Σ q_x·q_w"] == QX @ QW.T).all()
    assert (found["−z_w·Σ q_x"] == -ZW * QX.sum(1, keepdims=True) * [1, 1]).all()
    assert (found["−z_x·Σ q_w"] == -ZX * QW.sum(1)).all()
    assert (found["K·z_x·z_w"] == 2 * ZX * ZW).all()
    assert (found["accumulator"] == SUMS).all()
    assert marks(tables(shown)["accumulator"]) == [["", ""], ["chosen", ""]]
    assert "(-149) + 129 + 10 + (-60) = -70" in code(shown)


@for_each("bits", [6, 8, 9, 10, 32])
def test_a_narrow_accumulator_wraps_around(bits: int) -> None:
    shown = opened(NAME, "overflow", learn_inside_a_layer_bits=str(bits))
    wrapped = (SUMS + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    assert numbers(tables(shown)[f"int{bits}"]) == wrapped.tolist()
    assert key_figures(shown)["overflows"] == f"{(wrapped != SUMS).sum()} of 4"
    assert marks(tables(shown)[f"int{bits}"]) == np.where(wrapped != SUMS, "wrong", "").tolist()


def test_the_integers_give_the_outputs_but_for_the_rounding_of_codes() -> None:
    shown = opened(NAME, "back")
    assert np.allclose(numbers(tables(shown)["y from integers"]), SUMS / 128, atol=5e-4)
    assert np.allclose(numbers(tables(shown)["x·wᵀ"]), [[1.377, -0.305], [-0.483, 2.306]], atol=5e-4)
    assert "1.9·0.63 + (-0.6)·(-0.3) = 1.377" in code(shown)
    assert "at most 0.085, 3.7 % of the largest output" in " ".join(said(shown.markdown))


@for_each(
    ("how", "codes"),
    [  # SUMS / 4 = 43.75, -11.25, -17.5, 76.5: half to even, half up, and half away from 0
        ("float", [[24, -31], [-38, 56]]),
        ("single", [[24, -31], [-37, 57]]),
        ("double", [[24, -31], [-38, 57]]),
    ],
)
def test_an_exact_half_depends_on_the_runtime(how: str, codes: list[list[int]]) -> None:
    shown = opened(NAME, "requantize", learn_inside_a_layer_how=how, learn_inside_a_layer_output="11")
    found = tables(shown)["codes of y"]
    assert numbers(found) == codes
    float_codes = np.array([[24, -31], [-38, 56]])
    assert (np.array(marks(found)) == "tint1").tolist() == (np.array(codes) != float_codes).tolist()
    assert f"round(76.5) + (-20) = {codes[1][1]}" in code(shown)
    if how != "float":
        assert "0.125·0.0625 / 0.03125 = 0.25 = 1073741824·2^(-1 - 31)" in code(shown)


@for_each(("answer", "verdict"), [("1", "Right."), ("3", "Not quite.")])
def test_the_question_and_its_answer(answer: str, verdict: str) -> None:
    at = opened(NAME, "question")
    assert set(tables(at)) == {"q_x", "q_w"}  # the sums would give it away
    widget(at, "learn_inside_a_layer_answer").set_value(answer).run()
    assert_clean(at)
    assert verdict in " ".join(said(at.markdown))
    if answer == "1":
        shown = tables(at)
        assert not np.any(numbers(shown["−z_w·Σ q_x"]) + numbers(shown["K·z_x·z_w"]))
        assert numbers(shown["−z_x·Σ q_w"]) == [[-50, -170], [-50, -170]]
