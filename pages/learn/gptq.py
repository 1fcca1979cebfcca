"""Lesson: GPTQ on a weight of 4 × 4, column by column, with every number, and two mistakes in code of it."""

import numpy as np
import streamlit as st
import torch
from torch import Tensor

import quantcore as qc
from pages.learn import frame, question, views
from pages.maps import cells
from quantcore import outputs

NAME = "gptq"
X = torch.tensor(
    [[2.0, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2], [2, 2, 1, 1], [1, 1, 2, 2]]
)  # [tokens, in]
W = torch.tensor(
    [
        [0.9, -0.4, 0.3, 0.7],
        [-0.6, 0.8, -0.2, 0.5],
        [0.35, 0.65, -0.95, 0.15],
        [-0.75, 0.25, 0.55, -0.45],
    ]
)  # [out, in]
SCHEME = qc.Scheme.parse("int4 per_channel(0)")
DAMPING = 0.01
COLUMNS = W.shape[1]


def squared_error(w_hat: Tensor) -> float:
    """Return the squared error of the output, Σ (x·ŵᵀ − x·wᵀ)²."""
    return float(((X.double() @ (w_hat.double() - W.double()).T) ** 2).sum())


def with_one_inverse() -> Tensor:
    """Return ŵ by the mistake: rows of the one inverse of H for all columns, those that are done included."""
    h = 2 / len(X) * X.T.double() @ X.double()
    inverse = torch.linalg.inv(h + DAMPING * h.diagonal().mean() * torch.eye(COLUMNS, dtype=torch.float64))
    scale, open_, found = qc.apply(W, SCHEME).scale, W.double().clone(), torch.empty_like(W)
    for i in range(COLUMNS):
        codes = qc.quantize(open_[:, i : i + 1].float(), scale, 0, SCHEME)
        found[:, i] = qc.dequantize(codes, scale, 0, SCHEME)[:, 0]
        error = (open_[:, i] - found[:, i]) / inverse[i, i]
        open_[:, i:] -= torch.outer(error, inverse[i, i:])
    return found


def printed_loss(found: outputs.Compensated) -> float:
    """Return the loss that the authors' gptq.py prints: half the sum of (w − ŵ)² / U_ii²."""
    return sum(float((step.error.double() ** 2).sum()) for step in found.steps) / 2


def _factor(number: float) -> str:
    return f"{number:.4f}" if number >= 0 else f"({number:.4f})"


def numbers(values: Tensor) -> np.ndarray:
    """Return numbers rounded as tables show them."""
    return np.round(values.double().numpy(), 4)


# The example of a docstring: its W is [in, out], with codes 0 to 2 and the largest of a column at 2
EXAMPLE_W = torch.tensor([[1.2, 0.5], [0.8, 1.5]])
EXAMPLE_X = torch.tensor([[1.0, 1.0]])
EXAMPLE_INVERSE = torch.tensor([[0.505, -0.495], [-0.495, 0.505]])  # as it is printed there
EXAMPLE_CODES = qc.Scheme.parse("uint2 symmetric per_channel(0)")


def example_rounded(values: Tensor, scale: Tensor) -> Tensor:
    """Return the nearest multiples of the example's scales."""
    each = scale.expand(values.shape).reshape(-1, 1)  # a scale per number, as if each had its row
    codes = qc.quantize(values.reshape(-1, 1), each, 0, EXAMPLE_CODES)
    return qc.dequantize(codes, each, 0, EXAMPLE_CODES).reshape(values.shape)


def across_columns(sign: int) -> tuple[Tensor, Tensor]:
    """Return column 1 after its update and ŵ, with the error of column 0 passed on as the example does.

    Args:
        sign: of the update; the formula has -1.
    """
    first, second = EXAMPLE_W.T
    done = example_rounded(first, first.max() / 2)
    second = second + sign * (first - done) / EXAMPLE_INVERSE[0, 0] * EXAMPLE_INVERSE[0, 1]
    return second, torch.stack([done, example_rounded(second, second.max() / 2)], 1)


def across_inputs() -> Tensor:
    """Return ŵ with the error of input 0 passed on to input 1, in each output."""
    scale = EXAMPLE_W.max(0).values / 2
    first, second = EXAMPLE_W
    done = example_rounded(first, scale)
    second = second - (first - done) / EXAMPLE_INVERSE[0, 0] * EXAMPLE_INVERSE[0, 1]
    return torch.stack([done, example_rounded(second, scale)])


step = frame.head(NAME)
words, picture = views.side_by_side((1, 2))
found, nearest = outputs.gptq(W, X, SCHEME, damping=DAMPING), qc.apply(W, SCHEME)
h = 2 / len(X) * X.T @ X
match step:
    case "inputs":
        words.markdown(
            "An error in one weight can be made up for by another if their **inputs go together**. H = "
            f"2/n·xᵀ·x says which do: H_01 = {float(h[0, 1]):.4g} is nearly as large as H_00 = "
            f"{float(h[0, 0]):.4g}, so inputs 0 and 1 are large for the same tokens. **U** is upper "
            f"triangular with Uᵀ·U = H⁻¹, with {DAMPING:.0%} of its mean added to H's diagonal. Row i of "
            "U says how the error of column i is shared among the columns after it."
        )
        with picture:
            tables = [
                cells.MarkedTable("x", X.numpy(), note="6 tokens × 4 inputs"),
                cells.MarkedTable("H", numbers(h)),
                cells.MarkedTable("U", numbers(found.inverse)),
            ]
            cells.draw(tables, "learn_gptq_inputs", fill=1)
            terms = " + ".join(f"{a:g}·{b:g}" for a, b in zip(X[:, 0], X[:, 1], strict=True))
            views.formula(f"{'H_01':<14} 2/{len(X)}·({terms}) = {float(h[0, 1]):.4g}")
    case "columns":
        with words:
            st.markdown(
                "Column i is rounded to codes. Its error, over U_ii, times the rest of row i of U is "
                "subtracted from the columns after it, which are rounded later."
            )
            i = st.slider("Column", 0, COLUMNS - 1, 0, key=f"learn_{NAME}_column", bind="query-params")
        now = found.steps[i]
        row = int((now.before - now.dequantized).abs().argmax())
        before = found.weight_before(i)
        after = before.clone()
        after[:, i] = now.dequantized
        after[:, i + 1 :] += now.update
        marks = np.full(W.shape, "", "<U6")
        marks[:, :i] = "faint"
        marks[:, i] = "chosen"
        with picture:
            tables = [
                cells.MarkedTable("w before", numbers(before), marks),
                cells.MarkedTable("ŵ of the column", numbers(now.dequantized[:, None]), index=False),
                cells.MarkedTable("error / U_ii", numbers(now.error[:, None]), index=False),
                cells.MarkedTable(f"row {i} of U", numbers(found.inverse[i : i + 1, i:]), index=False),
                cells.MarkedTable("w after", numbers(after), marks),
            ]
            cells.draw(tables, "learn_gptq_columns", fill=1)
            error, w_i, w_hat = (float(v[row]) for v in (now.error, now.before, now.dequantized))
            shown = [
                f"{f'row {row}, error':<14} ({w_i:.4f} - {_factor(w_hat)}) / {now.diagonal:.4f} = {error:.4f}"
            ]
            for j in range(i + 1, COLUMNS):
                u = float(found.inverse[i, j])
                shown.append(
                    f"{f'w_{row}{j}':<14} {float(before[row, j]):.4f} - {_factor(error)}·{_factor(u)} = "
                    f"{float(after[row, j]):.4f}"
                )
            views.formula(*shown)
    case "result":
        own, other = found.quantized.codes.numpy(), nearest.codes.numpy()
        differs = np.where(own != other, "tint1", "")
        near, best = squared_error(nearest.dequantized), squared_error(found.quantized.dequantized)
        words.markdown(
            f"{int((own != other).sum())} of {own.size} codes are not the nearest (colored): each weight "
            "alone is worse, but the errors cancel in the output. Its squared error falls from "
            f"{near:.4f} to {best:.4f}, by {100 * (1 - best / near):.0f} %."
        )
        with words:
            views.figures(
                ("squared error, nearest", f"{near:.4f}"),
                ("squared error, GPTQ", f"{best:.4f}"),
                ("Σ (ŵ − w)², nearest", f"{float(((nearest.dequantized - W) ** 2).sum()):.4f}"),
                ("Σ (ŵ − w)², GPTQ", f"{float(((found.quantized.dequantized - W) ** 2).sum()):.4f}"),
            )
        with picture:
            tables = [
                cells.MarkedTable("w", W.numpy()),
                cells.MarkedTable("nearest codes", other, differs),
                cells.MarkedTable("codes by GPTQ", own, differs),
                cells.MarkedTable("ŵ by GPTQ", numbers(found.quantized.dequantized), differs),
            ]
            cells.draw(tables, "learn_gptq_result", fill=1)
    case "loss":
        plain = outputs.gptq(W, None, SCHEME, damping=DAMPING, moment=X.T @ X)
        same = bool((plain.quantized.codes == found.quantized.codes).all())
        one, two = printed_loss(found), printed_loss(plain)
        words.markdown(
            "**A mistake.** Someone leaves the factor 2/n out of H, sees another loss in the log, and takes "
            f"the weights for worse. The codes are {'the same' if same else 'different'}: the factor scales "
            f"U and the errors, and cancels in every update. Only the printed loss is {two / one:.3g} = n/2 "
            "times as large. Compare losses only with the same H and the same tokens."
        )
        with picture:
            real = f"{squared_error(found.quantized.dequantized):.4f}"
            rows = [
                {"H": "2/n·xᵀ·x", "printed loss": f"{one:.4f}", "codes": "as before", "output error": real},
                {
                    "H": "xᵀ·x",
                    "printed loss": f"{two:.4f}",
                    "codes": "equal" if same else "different",
                    "output error": f"{squared_error(plain.quantized.dequantized):.4f}",
                },
            ]
            views.table(rows)
    case "inverse":
        wrong = with_one_inverse()
        errors = {
            "rounding to nearest": squared_error(nearest.dequantized),
            "GPTQ": squared_error(found.quantized.dequantized),
            "one inverse for all columns": squared_error(wrong),
        }
        ratio = errors["one inverse for all columns"] / errors["GPTQ"]
        words.markdown(
            "**A mistake that shipped.** H⁻¹ is computed once, and its rows are used for every column. But a "
            "column that is done can't change any more, so the inverse must be that of the open columns "
            f"only; the rows of U are just these. Nothing fails: the output's squared error is {ratio:.3g} "
            "times that of GPTQ."
        )
        with picture:
            tables = [
                cells.MarkedTable("ŵ by GPTQ", numbers(found.quantized.dequantized)),
                cells.MarkedTable(
                    "ŵ with one inverse",
                    numbers(wrong),
                    np.where((wrong != found.quantized.dequantized).numpy(), "wrong", ""),
                ),
            ]
            cells.draw(tables, "learn_gptq_inverse", fill=0.6)
            rows = [{"method": name, "squared error": f"{e:.4f}"} for name, e in errors.items()]
            views.table(rows, fill=False)
    case "example":
        printed, printed_w = across_columns(1)
        meant, meant_w = across_columns(-1)
        ways = {
            "as printed": printed_w,
            "its own formula": meant_w,
            "from input to input": across_inputs(),
            "rounding to nearest": example_rounded(EXAMPLE_W, EXAMPLE_W.max(0).values / 2),
        }
        y = EXAMPLE_X @ EXAMPLE_W
        off = {name: float(((EXAMPLE_X @ w_hat - y) ** 2).sum()) for name, w_hat in ways.items()}
        gains = off["its own formula"] < off["rounding to nearest"]
        words.markdown(
            "**A mistake in print.** The docstring of a library's GPTQ works an example, x·W with W as "
            f"[in, out]. It subtracts a negative product, and prints {printed[1]:.4g} where its own formula "
            f"gives {meant[1]:.4g}. With that number the example "
            f"{'still gains' if gains else 'loses'}: {off['its own formula']:.3g} against "
            f"{off['rounding to nearest']:.3g} for rounding to nearest. The reason: columns of W are outputs "
            "here, and no output can make up for another's error. GPTQ passes an error on **from input to "
            "input**, within one output."
        )
        with picture:
            titles = {"as printed": "ŵ as printed", "its own formula": "ŵ by its formula"}
            titles |= {"from input to input": "ŵ from input to input"}
            tables = [cells.MarkedTable("W", EXAMPLE_W.numpy(), note="[in, out]")]
            tables += [cells.MarkedTable(title, numbers(ways[name])) for name, title in titles.items()]
            cells.draw(tables, "learn_gptq_example", fill=0.5)
            error = float((EXAMPLE_W[1, 0] - meant_w[1, 0]) / EXAMPLE_INVERSE[0, 0])
            inverse = float(EXAMPLE_INVERSE[0, 1])
            views.formula(
                f"{'W_11':<14} {float(EXAMPLE_W[1, 1]):g} - {error:.3g}·{_factor(inverse)} = {meant[1]:.4g}"
            )
            views.table(
                [
                    {
                        "error passed on": name,
                        "output": ", ".join(f"{v:.4g}" for v in (EXAMPLE_X @ w_hat)[0].tolist()),
                        "squared error": f"{off[name]:.4f}",
                    }
                    for name, w_hat in ways.items()
                ],
                fill=False,
            )
    case "question":
        diagonal = outputs.gptq(W, None, SCHEME, damping=DAMPING, moment=h.diagonal())
        different = int((diagonal.quantized.codes != nearest.codes).sum())
        with words:
            answered = question.ask(
                NAME,
                "Suppose no two inputs go together: **H is diagonal**. How many of the 16 codes does GPTQ "
                "choose otherwise than rounding to nearest?",
                {
                    str(different): "U is diagonal too, so no error is passed on, and every weight gets its "
                    "nearest code.",
                    "4": "That is with this lesson's x, whose inputs go together.",
                    "16": "Nothing is passed on where U is 0: every weight keeps its value until its turn.",
                },
                str(different),
            )
        with picture:
            shown_tables = [
                cells.MarkedTable("w", W.numpy()),
                cells.MarkedTable("H", np.diag(numbers(h.diagonal()))),
            ]
            if answered:
                shown_tables += [
                    cells.MarkedTable("U", numbers(diagonal.inverse)),
                    cells.MarkedTable("codes by GPTQ", diagonal.quantized.codes.numpy()),
                    cells.MarkedTable("nearest codes", nearest.codes.numpy()),
                ]
            cells.draw(shown_tables, "learn_gptq_question", fill=1)
frame.foot(
    "Frantar et al. 2022, GPTQ, arXiv 2210.17323, algorithm 1",
    "The factor in the loss: number 51 of IST-DASLab/gptq; one inverse for all: number 807 of cactus; the "
    "example: gptq_quantize in torchao/prototype/gptq/api.py of torchao 0.18",
)
