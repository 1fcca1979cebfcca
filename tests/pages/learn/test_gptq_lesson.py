"""The lesson "GPTQ" without a browser: its numbers against the recursion of optimal brain quantization, which needs no
Cholesky factor, in float64.
"""

import numpy as np
from app_page import key_figures, said, widget
from grid import for_each
from lesson_app import assert_clean, code, numbers, opened, tables

NAME = "gptq"
X = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2], [2, 2, 1, 1], [1, 1, 2, 2]], float)
W = np.array(
    [[0.9, -0.4, 0.3, 0.7], [-0.6, 0.8, -0.2, 0.5], [0.35, 0.65, -0.95, 0.15], [-0.75, 0.25, 0.55, -0.45]]
)
STEP = np.abs(W).max(1) / 7
H = X.T @ X / 3


def nearest(column: np.ndarray) -> np.ndarray:
    return np.clip(np.round(column / STEP), -8, 7) * STEP


def removed(forget: bool = True) -> tuple[list[np.ndarray], np.ndarray, float]:
    """w before each column, ŵ, and the loss of gptq.py; the inverse forgets columns that are done."""
    inverse = np.linalg.inv(H + 0.01 * H.diagonal().mean() * np.eye(4))
    w, steps, loss = W.copy(), [], 0.0
    for i in range(4):
        steps.append(w.copy())
        error = w[:, i] - nearest(w[:, i])
        loss += (error**2).sum() / inverse[i, i] / 2
        w[:, i + 1 :] -= np.outer(error / inverse[i, i], inverse[i, i + 1 :])
        w[:, i] -= error
        if forget:
            inverse = inverse - np.outer(inverse[:, i], inverse[i]) / inverse[i, i]
    return steps, w, loss


def output_error(w_hat: np.ndarray) -> float:
    return float(((X @ (w_hat - W).T) ** 2).sum())


def test_the_moment_and_its_factor() -> None:
    at = opened(NAME, "inputs")
    shown = tables(at)
    u = np.array(numbers(shown["U"]))
    assert np.allclose(numbers(shown["H"]), H, atol=6e-4)
    assert (np.tril(u, -1) == 0).all()
    assert np.allclose(np.linalg.inv(u.T @ u), H + 0.01 * H.diagonal().mean() * np.eye(4), atol=0.02)
    assert "2/6·(2·1 + 1·2 + 0·1 + 1·0 + 2·2 + 1·1) = 3" in code(at)


@for_each("column", [0, 1, 2, 3])
def test_every_column_and_what_it_passes_on(column: int) -> None:
    at = opened(NAME, "columns", learn_gptq_column=str(column))
    steps, w_hat, _ = removed()
    after = [*steps, w_hat][column + 1]
    assert np.allclose(numbers(tables(at)["w before"]), steps[column], atol=6e-4)
    assert np.allclose(numbers(tables(at)["w after"]), after, atol=6e-4)
    worst = int(np.abs(steps[column] - w_hat)[:, column].argmax())
    assert f"row {worst}, error" in code(at)
    for j in range(column + 1, 4):
        (line,) = [line for line in code(at).split("\n") if line.startswith(f"w_{worst}{j} ")]
        assert abs(float(line.rpartition("=")[2]) - after[worst, j]) < 2e-4


def test_the_output_is_better_although_the_weights_are_worse() -> None:
    at = opened(NAME, "result")
    _, w_hat, _ = removed()
    plain = np.stack([nearest(column) for column in W.T], 1)
    found = key_figures(at)
    assert numbers(tables(at)["codes by GPTQ"]) == np.round(w_hat / STEP[:, None]).tolist()
    assert numbers(tables(at)["nearest codes"]) == np.round(plain / STEP[:, None]).tolist()
    assert found["squared error, nearest"] == f"{output_error(plain):.4f}"
    assert found["squared error, GPTQ"] == f"{output_error(w_hat):.4f}"
    assert found["Σ (ŵ − w)², GPTQ"] == f"{((w_hat - W) ** 2).sum():.4f}"
    assert "4 of 16 codes" in " ".join(said(at.markdown))


def test_the_factor_changes_only_the_printed_loss() -> None:
    at = opened(NAME, "loss")
    shown = at.table[0].value
    loss = removed()[2]
    assert list(shown["Printed loss"]) == [f"{loss:.4f}", f"{3 * loss:.4f}"]
    assert list(shown["Codes"])[1] == "equal"
    assert "is 3 = n/2 times as large" in " ".join(said(at.markdown))


def test_one_inverse_for_all_columns_is_worse() -> None:
    at = opened(NAME, "inverse")
    wrong, right = removed(forget=False)[1], removed()[1]
    assert np.allclose(numbers(tables(at)["ŵ with one inverse"]), wrong, atol=6e-4)
    assert list(at.table[0].value["Squared error"])[1:] == [f"{output_error(w):.4f}" for w in (right, wrong)]
    assert f"{output_error(wrong) / output_error(right):.3g} times that of GPTQ" in " ".join(
        said(at.markdown)
    )


def test_the_example_in_print_and_what_its_formula_gives() -> None:
    """The printed numbers stand in torchao's docstring; the others were worked out with pen and paper."""
    at = opened(NAME, "example")
    shown = tables(at)
    assert numbers(shown["ŵ as printed"]) == [[1.2, 0.652], [0.6, 1.304]]
    assert numbers(shown["ŵ by its formula"]) == [[1.2, 0.848], [0.6, 1.696]]
    assert numbers(shown["ŵ from input to input"]) == [[1.2, 0.75], [0.6, 1.5]]
    told = at.table[0].value
    assert list(told["Output"])[:3] == ["1.8, 1.956", "1.8, 2.544", "1.8, 2.25"]
    assert list(told["Squared error"])[2:] == ["0.1025", "0.1025"]
    words = " ".join(said(at.markdown))
    assert "prints 1.304 where its own formula gives 1.696" in words
    assert "loses: 0.336 against 0.102" in words


@for_each(("answer", "verdict"), [("0", "Right."), ("4", "Not quite.")])
def test_the_question_and_its_answer(answer: str, verdict: str) -> None:
    at = opened(NAME, "question")
    widget(at, "learn_gptq_answer").set_value(answer).run()
    assert_clean(at)
    assert verdict in " ".join(said(at.markdown))
    if answer == "0":
        assert numbers(tables(at)["codes by GPTQ"]) == numbers(tables(at)["nearest codes"])
