"""Lesson: how integer hardware computes x·wᵀ, from codes to the codes of the output, on 2 × 2 numbers."""

from collections.abc import Sequence

import numpy as np
import streamlit as st

import quantcore as qc
from pages.learn import frame, question, views
from pages.maps import cells
from pages.shared.state import choice
from quantcore import outputs
from quantcore.wording import signed

NAME = "inside_a_layer"
X = np.array([[1.9, -0.6], [0.4, 2.45]], np.float32)  # [tokens, in]
W = np.array([[0.63, -0.3], [0.13, 0.92]], np.float32)  # [out, in]
# powers of two: every scale, product and multiplier has few digits
X_SCHEME = "uint8 asymmetric given(0.125, 10)"
W_SCHEME = "int8 asymmetric given(0.0625, -3)"
Y_SCHEME = "int8 asymmetric given(0.03125, -20)"
PLACES = {f"{token}{out}": f"y{token}{out}" for token in range(2) for out in range(2)}
SUMS = {
    "1": "Only Σ q_x·q_w remains. Both terms with z_w are 0, and −z_x·Σ q_w depends on weights alone, so it "
    "is computed once and added to the bias.",
    "2": "−z_x·Σ q_w is not 0, but it needs no input: it is computed once and added to the bias.",
    "3": "With z_w = 0 two of the four sums are 0: −z_w·Σ q_x and K·z_x·z_w.",
    "4": "With z_w = 0 the sums that contain it are 0.",
}

step = frame.head(NAME)
words, picture = views.side_by_side((1, 2) if step != "requantize" else (2, 3))
x, w = qc.apply(X, X_SCHEME), qc.apply(W, W_SCHEME)
(s_x, z_x), (s_w, z_w) = ((float(r.scale), int(r.params.zero_point)) for r in (x, w))
inner = X.shape[1]


def chosen_output() -> tuple[int, int]:
    """Draw the choice of an output; return its token and channel."""
    with words:
        at = choice.segmented("Output", f"learn_{NAME}_output", PLACES)
    return int(at[0]), int(at[1])


def marked(at: tuple[int, int]) -> np.ndarray:
    """Return marks of a 2 × 2 table of outputs: the chosen one."""
    marks = np.full((2, 2), "", "<U6")
    marks[at] = "chosen"
    return marks


def along(row: int) -> np.ndarray:
    """Return marks of a 2 × 2 table of inputs: the row that the chosen output takes."""
    marks = np.full((2, 2), "", "<U6")
    marks[row] = "chosen"
    return marks


def factor(number: float) -> str:
    """Write a number as a factor or a term: in parentheses if it is negative."""
    return f"{number:g}" if number >= 0 else f"({number:g})"


def dot(of_x: Sequence[float], of_w: Sequence[float]) -> str:
    """Write a dot product."""
    return " + ".join(f"{factor(a)}·{factor(b)}" for a, b in zip(of_x, of_w, strict=True))


def formula(*lines: tuple[str, str]) -> None:
    """Draw lines of arithmetic, each with its name."""
    views.formula(*(f"{name:<14} {line}" for name, line in lines))


match step:
    case "codes":
        words.markdown(
            "Two tokens with two inputs each, and two outputs: **y = x·wᵀ**. Hardware multiplies the codes "
            f"instead. x is stored in uint8 with zero point {z_x}, w in int8 with zero point "
            f"{signed(str(z_w))}. A code minus its zero point counts steps, so each product of two counts is "
            "in units of **s_x·s_w**."
        )
        at = chosen_output()
        counts = [(r.codes.int() - z).tolist() for r, z in ((x, z_x), (w, z_w))]
        with picture:
            tables = [
                cells.MarkedTable("x", X, along(at[0])),
                cells.MarkedTable("q_x", x.codes.numpy(), along(at[0]), f"s_x = {s_x:g}, z_x = {z_x}"),
                cells.MarkedTable("w", W, along(at[1])),
                cells.MarkedTable("q_w", w.codes.numpy(), along(at[1]), f"s_w = {s_w:g}, z_w = {z_w}"),
            ]
            cells.draw(tables, "learn_inside_codes", fill=1)
            of_x, of_w = counts[0][at[0]], counts[1][at[1]]
            total = sum(a * b for a, b in zip(of_x, of_w, strict=True))
            name = PLACES[f"{at[0]}{at[1]}"]
            formula(
                ("q_x − z_x", ", ".join(map(str, of_x))),
                ("q_w − z_w", ", ".join(map(str, of_w))),
                (name, f"s_x·s_w·({dot(of_x, of_w)}) = {s_x * s_w:g}·{total} = {s_x * s_w * total:g}"),
            )
    case "sums":
        words.markdown(
            "Subtracting zero points first would need 9 bits. So the hardware multiplies the codes as they "
            "are, and corrects afterwards: **Σ (q_x − z_x)·(q_w − z_w)** expands into four sums. Only the "
            "first multiplies codes by codes; the accumulator is their total, an int32."
        )
        at, product = chosen_output(), outputs.integer_layer(x, w).product
        of_x, of_w = x.codes[at[0]].tolist(), w.codes[at[1]].tolist()
        written = (
            dot(of_x, of_w),
            f"−{factor(z_w)}·({' + '.join(map(factor, of_x))})",
            f"−{factor(z_x)}·({' + '.join(map(factor, of_w))})",
            f"{inner}·{z_x}·{factor(z_w)}",
        )
        with picture:
            found = {**product.terms, "accumulator": product.accumulator}
            tables = [
                cells.MarkedTable("q_x", x.codes.numpy(), along(at[0])),
                cells.MarkedTable("q_w", w.codes.numpy(), along(at[1])),
                *(cells.MarkedTable(name, t.numpy(), marked(at)) for name, t in found.items()),
            ]
            cells.draw(tables, "learn_inside_sums", fill=1)
            terms = [int(term[at]) for term in product.terms.values()]
            formula(
                *(
                    (name, f"{products} = {value}")
                    for name, products, value in zip(product.terms, written, terms, strict=True)
                ),
                ("accumulator", f"{' + '.join(map(factor, terms))} = {int(product.accumulator[at])}"),
            )
    case "overflow":
        with words:
            largest = 255 * 255
            st.markdown(
                f"A count q − z of 8 bits reaches 255, so a product reaches {largest:,}: int32 is safe for "
                f"{(2**31 - 1) // largest:,} inputs, int16 not even for one. A sum that leaves the range "
                "wraps around, so it is off by a multiple of 2^bits. Change the bits and see which sums do."
            )
            bits = st.slider("Bits of the accumulator", 6, 32, 9, key=f"learn_{NAME}_bits",
                             bind="query-params")  # fmt: skip
        product = outputs.integer_layer(x, w, accumulator_bits=bits).product
        lost = product.overflows.numpy()
        with words:
            views.figures(
                ("range", f"{-(2 ** (bits - 1)):,} to {2 ** (bits - 1) - 1:,}"),
                ("overflows", f"{int(lost.sum())} of {lost.size}"),
            )
        with picture:
            tables = [
                cells.MarkedTable("exact sum", product.exact.numpy()),
                cells.MarkedTable(
                    f"int{bits}", product.accumulator.numpy(), np.where(lost, "wrong", "").astype("<U6")
                ),
                cells.MarkedTable("y", product.exact.numpy() * (s_x * s_w), note="from the exact sum"),
                cells.MarkedTable(
                    "y", product.accumulator.numpy() * (s_x * s_w), np.where(lost, "wrong", ""), f"int{bits}"
                ),
            ]
            cells.draw(tables, "learn_inside_overflow", fill=1)
    case "back":
        layer = outputs.integer_layer(x, w)
        y, exact = layer.y.numpy(), X.astype(np.float64) @ W.T.astype(np.float64)
        error = y - exact
        words.markdown(
            "One multiplication by **s_x·s_w** per output turns the accumulator into y. The integers were "
            "exact, so all of the error comes from rounding x and w to codes. Here it is at most "
            f"{np.abs(error).max():.2g}, {100 * np.abs(error).max() / np.abs(exact).max():.1f} % of the "
            "largest output."
        )
        at = chosen_output()
        with picture:
            tables = [
                cells.MarkedTable("accumulator", layer.product.accumulator.numpy(), marked(at)),
                cells.MarkedTable("y from integers", y, marked(at)),
                cells.MarkedTable("x·wᵀ", exact.astype(np.float32), marked(at), "in float"),
                cells.MarkedTable("error", error.astype(np.float32), marked(at)),
            ]
            cells.draw(tables, "learn_inside_back", fill=1)
            total = int(layer.product.accumulator[at])
            formula(
                ("from integers", f"s_x·s_w·{factor(total)} = {s_x:g}·{s_w:g}·{factor(total)} = {y[at]:.6g}"),
                ("in float", f"{dot(X[at[0]].tolist(), W[at[1]].tolist())} = {exact[at]:.6g}"),
            )
    case "requantize":
        with words:
            st.markdown(
                "The next layer takes codes again. **M = s_x·s_w / s_y** turns a count of s_x·s_w into a "
                "count of s_y. Hardware without floats multiplies by an int32 and shifts right, and "
                "runtimes round differently: an exact half differs by 1."
            )
            names = {"float": "float", "single": "rounded once", "double": "rounded twice"}
            how = choice.segmented("Rounding", f"learn_{NAME}_how", names)
        at = chosen_output()
        every = {name: outputs.integer_layer(x, w, output_scheme=Y_SCHEME, how=name) for name in names}
        layer = every[how]
        assert layer.output is not None
        assert layer.output_scale is not None
        z_y = int(layer.output_zero_point or 0)
        accumulator, codes = int(layer.product.accumulator[at]), layer.output.codes.numpy()
        base = every["float"].output
        assert base is not None
        differs = np.where(codes != base.codes.numpy(), "tint1", marked(at))
        with words:
            st.caption(
                f"{names[how].capitalize()}: {outputs.REQUANTIZATIONS[how]}. Colored: differs from float."
            )
        with picture:
            scaled = layer.product.accumulator.numpy() * (s_x * s_w / layer.output_scale)
            note = f"s_y = {layer.output_scale:g}, z_y = {z_y}"
            tables = [
                cells.MarkedTable("accumulator", layer.product.accumulator.numpy(), marked(at)),
                cells.MarkedTable("M·accumulator", scaled, marked(at)),
                cells.MarkedTable("codes of y", codes, differs, note),
            ]
            cells.draw(tables, "learn_inside_requantize", fill=1)
            multiplier = s_x * s_w / layer.output_scale
            whole, shift = outputs.fixed_point(multiplier)
            m = f"{multiplier:g}" if how == "float" else f"{whole}·2^{shift - 31}"
            as_integers = "" if how == "float" else f" = {whole}·2^({shift} − 31)"
            formula(
                ("M", f"{s_x:g}·{s_w:g} / {layer.output_scale:g} = {multiplier:g}{as_integers}"),
                (
                    "code",
                    f"round({m}·{factor(accumulator)}) + {factor(z_y)} = round({scaled[at]:g}) + "
                    f"{factor(z_y)} = {int(codes[at])}",
                ),
            )
    case "question":
        with words:
            right = question.ask(
                NAME,
                "Suppose the weights are symmetric, **z_w = 0**. How many of the four sums must still be "
                "computed while the layer runs?",
                SUMS,
                "1",
            )
        symmetric = qc.apply(W, "int8 symmetric given(0.0625, 0)")
        product = outputs.integer_layer(x, symmetric).product
        with picture:
            shown = product.terms if right else {}
            tables = [
                cells.MarkedTable("q_x", x.codes.numpy(), note=f"z_x = {z_x}"),
                cells.MarkedTable("q_w", symmetric.codes.numpy(), note="z_w = 0"),
                *(cells.MarkedTable(name, term.numpy()) for name, term in shown.items()),
            ]
            cells.draw(tables, "learn_inside_question", fill=1)
frame.foot(
    "Jacob et al. 2018, Quantization and Training of Neural Networks, arXiv 1712.05877, sections 2.2 and 2.3",
    "Rounded twice: gemmlowp, fixedpoint/fixedpoint.h",
)
