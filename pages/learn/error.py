"""Lesson: the error in one number, and clipping against rounding."""

import functools

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.learn import choices, frame, hand, views
from pages.learn.hand import Handle, MovedNumber
from pages.maps import cells
from pages.shared.computing import cache
from pages.shared.state.selection import generated, of_values
from quantcore import tensors
from quantcore.figures import lessons
from quantcore.wording import difference

VALUES = [0.9, -0.4, 2.0, -0.8, 0.1, 1.1]
GENERATED = tensors.Generated("laplace", (16, 16), 1)
SPREAD = generated(GENERATED)
LIMIT = MovedNumber("learn_error_limit", 2, 100, 2, "Range", "%")
BITS = MovedNumber("learn_error_bits", 2, 8, 1, "Bits")
FEW, SCHEME = of_values(VALUES, "few"), qc.Scheme(qc.IntFormat(3))


@functools.lru_cache(8)
def curve_of(bits: int) -> qc.RangeCurve:
    """Return the error of every range, which only depends on the width of the codes."""
    return qc.range_curve(tensors.generate(GENERATED), qc.Scheme(qc.IntFormat(bits)))


def clipping(x: torch.Tensor, values: hand.Values, theme: str) -> hand.MovedStep:
    """Return the step on the range with the smallest error."""
    bits, most = int(values[BITS.key]), float(x.abs().max())
    edge, curve = most * values[LIMIT.key] / 100, curve_of(bits)
    scheme = qc.Scheme(qc.IntFormat(bits), range_setting=qc.Fixed(-edge, edge))
    report = qc.report(qc.apply(x, scheme))
    limit, width = LIMIT.scrub(values[LIMIT.key]), BITS.scrub(bits)
    sentence = (
        "A narrow range has a fine step but clips what lies outside; a wide one clips nothing but rounds "
        f"coarsely. The range ends at {limit} of max|x|, in {width} bits: drag it to the smallest MSE."
    )
    numbers = views.written_figures(
        ("range", f"±{edge:.3g}"),
        ("clipped", f"{report.clipped} of {x.numel()}"),
        ("MSE from clipping", f"{report.clipping_sse / x.numel():.3g}"),
        ("MSE from rounding", f"{report.rounding_sse / x.numel():.3g}"),
        ("MSE", f"{report.mse:.3g}"),
        ("against the best range", f"{100 * (report.mse / curve.mse.min() - 1):+.0f} %"),
    )
    figure = lessons.clipping_against_rounding(curve, edge, theme=theme)
    html = {hand.WORDS: f"<p>{sentence}</p>", hand.NUMBERS: numbers}
    return hand.MovedStep(figure, (Handle(LIMIT, times=most / 100),), html, "Error against the range")


step = frame.head("error")
words, picture = views.side_by_side(views.for_maps(3.7) if step == "yours" else (2, 3))
match step:
    case "signed":
        result = cache.result(FEW, SCHEME)
        error = result.error.numpy()
        same, other = ((error * result.x.numpy() * sign > 0).sum() for sign in (1, -1))
        words.markdown(
            "**error = x − x̂**. Its sign shows on which side of x the value of the code lies. Rounding to "
            f"nearest goes up or down: {same} of the {same + other} errors here have the sign of their x; "
            "with truncation, toward 0, all would. Within the range no error of rounding exceeds half a step."
        )
        worst = int(np.abs(error).argmax())
        marks = ["chosen" if i == worst else "" for i in range(len(VALUES))]
        tables = [
            cells.MarkedTable(title, values, marks)
            for title, values in (
                ("x", result.x.numpy()),
                ("codes", result.codes.numpy()),
                ("x̂", result.dequantized.numpy()),
                ("error x − x̂", error),
            )
        ]
        with picture:
            step_size = float(result.scale)
            bars = lessons.error_bars(error, limit=step_size / 2, **frame.plot_style())
            views.figure(bars, "learn_error_bars")
            cells.draw(tables, "learn_error_signed")
        with words:
            views.formula(*views.lines(qc.trace(result, (worst,))))
    case "means":
        words.markdown(
            "Signed errors cancel, so their magnitudes or their squares are summed. Squaring makes one "
            "large error count as much as many small ones. The mean does not grow with the size of the "
            "tensor; the sum does. The maximum depends only on the worst element."
        )
        report = cache.report(FEW, SCHEME)
        errors = cache.result(FEW, SCHEME).error.tolist()
        size = " + ".join(f"{abs(e):.3f}" for e in errors)
        square = " + ".join(f"{e * e:.4f}" for e in errors)
        with picture:
            bars = lessons.error_bars(np.array(errors), **frame.plot_style())
            views.figure(bars, "learn_error_bars")
            views.formula(
                f"MAE            mean |error| = ({size}) / {len(errors)} = {report.mae:.5g}",
                f"SSE            sum of squares = {square} = {report.sse:.5g}",
                f"MSE            mean of squares = {report.sse:.5g} / {len(errors)} = {report.mse:.5g}",
                f"max |error|    the largest = {report.max_abs_error:.5g}",
            )
    case "sqnr":
        words.markdown(
            "An error of 0.1 is negligible next to values of 100, but as large as a value of 0.1. **SQNR** "
            "divides the sum of the squared values by the sum of the squared errors; 10 · log10 of that "
            "ratio is in decibels. Halving the step quarters the squared error, so one more bit gains about "
            f"{10 * np.log10(4):.1f} dB."
        )
        x, rows, before = cache.values(SPREAD), [], None
        for bits in range(2, 11):
            report = cache.report(SPREAD, qc.Scheme(qc.IntFormat(bits)))
            more = "" if before is None else f"{difference(report.sqnr_db, before, 2):+.2f} dB"
            before = report.sqnr_db
            rows.append(
                {
                    "bits": str(bits),
                    "10 · log10(Σx² / Σerror²)": f"{float((x.double() ** 2).sum()):.4g} / {report.sse:.3g}",
                    "SQNR": qc.decibels(before, 2),
                    "gain per bit": more,
                }
            )
        with picture:
            views.table(rows)
    case "clipping":
        with words:
            limit = st.slider("Range, % of max|x|", 2, 100, 100, 2, key=LIMIT.key, bind="query-params")
            bits = st.slider("Bits", 2, 8, 4, key=BITS.key, bind="query-params")
        known = cache.values(SPREAD)
        theme = frame.plot_style()["theme"]
        hand.draw(lambda values: clipping(known, values, theme), {LIMIT: limit, BITS: bits}, words, picture)
    case "yours":
        words.markdown(
            "Your tensor and scheme from the sidebar: try a percentile range and see how the error is split "
            "between clipping and rounding."
        )
        with words:
            choices.choose("Range", "range", choices.ranges())
        if chosen := views.yours():
            report = cache.report(*chosen)
            with words:
                views.figures(
                    ("SQNR", qc.decibels(report.sqnr_db, 2)),
                    ("MSE", f"{report.mse:.3g}"),
                    ("MAE", f"{report.mae:.3g}"),
                    ("max |error|", f"{report.max_abs_error:.3g}"),
                    (
                        "squared error from clipping",
                        f"{100 * report.clipping_sse / report.sse if report.sse else 0:.3g} %",
                    ),
                    ("clipped", f"{report.clipped:,}"),
                )
            views.explore("error", *chosen, words, picture)
frame.foot(
    "Nagel et al. 2021, arXiv 2106.08295, section 2.3",
    "6 dB per bit: Bennett 1948, Spectra of Quantized Signals, Bell System Technical Journal 27",
)
