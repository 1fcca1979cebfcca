"""Lesson 4: error in one number, and clipping against rounding."""

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared import cells, compute, lesson, lesson_view
from quantcore import tensors
from quantcore.figures import lessons

STEPS = {
    "signed": "The error of an element has a sign",
    "means": "Many errors in one number",
    "sqnr": "SQNR: the error beside the signal",
    "clipping": "Clipping against rounding",
    "yours": "The same on your tensor",
}
VALUES = [0.9, -0.4, 2.0, -0.8, 0.1, 1.1]
SPREAD = lesson_view.generated(tensors.Generated("laplace", (16, 16), 1))
FEW, SCHEME = lesson_view.own("few", VALUES), qc.Scheme(qc.IntFormat(3))

step = lesson.head("error", STEPS)
match step:
    case "signed":
        st.markdown(
            "**error = x - x̂**. Its sign says on which side of x the mark lay; rounding to the nearest gives both signs "
            "about equally often, cutting off does not. Within the range no error is larger than half a step."
        )
        result = compute.result(FEW, SCHEME)
        error = result.error.numpy()
        worst = int(np.abs(error).argmax())
        marks = ["chosen" if i == worst else "" for i in range(len(VALUES))]
        tables = [
            cells.Table(title, values, marks)
            for title, values in (
                ("x", result.x.numpy()),
                ("codes", result.codes.numpy()),
                ("x̂", result.dequantized.numpy()),
                ("error x - x̂", error),
            )
        ]
        cells.draw(tables, "learn_error_signed")
        lesson_view.formula(*lesson_view.lines(qc.trace(result, (worst,))))
    case "means":
        st.markdown(
            "Signed errors cancel, so their size or their square is added up. Squares weigh one large error like many "
            "small ones; the mean does not grow with the tensor, the sum does; the maximum sees only the worst."
        )
        report = compute.report(FEW, SCHEME)
        errors = compute.result(FEW, SCHEME).error.tolist()
        size = " + ".join(f"{abs(e):.3f}" for e in errors)
        square = " + ".join(f"{e * e:.4f}" for e in errors)
        lesson_view.formula(
            f"MAE  mean |error|     = ({size}) / {len(errors)} = {report.mae:.5g}",
            f"SSE  sum of squares   = {square} = {report.sse:.5g}",
            f"MSE  mean of squares  = {report.sse:.5g} / {len(errors)} = {report.mse:.5g}",
            f"max  largest |error|  = {report.max_abs_error:.5g}",
        )
        cells.draw([cells.Table("error", np.array(errors, np.float32))], "learn_error_means")
    case "sqnr":
        st.markdown(
            "An error of 0.1 is nothing beside values of 100, and all beside 0.1. **SQNR** divides the signal's squares "
            "by the error's and takes ten times the logarithm: decibels. Half the step is a quarter of the squares, so "
            "one bit more brings 10 · log10(4) = 6.02 dB."
        )
        x, rows, before = compute.values(SPREAD), [], None
        for bits in range(2, 11):
            report = compute.report(SPREAD, qc.Scheme(qc.IntFormat(bits)))
            more = "" if before is None else f"{report.sqnr_db - before:+.2f} dB"
            before = report.sqnr_db
            ratio = f"10 · log10({float((x.astype(np.float64) ** 2).sum()):.4g} / {report.sse:.3g})"
            rows.append(
                {
                    "bits": str(bits),
                    "Σx² / Σerror² in dB": ratio,
                    "SQNR": qc.decibels(before, 2),
                    "one bit more": more,
                }
            )
        lesson_view.table(rows)
    case "clipping":
        st.markdown(
            "A narrow range has a fine step, but clips what lies outside; a wide one clips nothing and rounds coarsely. "
            "The least error lies between: drag the range there."
        )
        left, right = st.columns(2)
        limit = left.slider(
            "Range, % of max|x|", 2, 100, 100, 2, key="learn_error_limit", bind="query-params"
        )
        bits = right.slider("Bits", 2, 8, 4, key="learn_error_bits", bind="query-params")
        x = compute.values(SPREAD)
        edge = float(np.abs(x).max()) * limit / 100
        scheme = qc.Scheme(qc.IntFormat(bits), range_setting=qc.Fixed(-edge, edge))
        curve = compute.kept(
            SPREAD, f"curve {bits}", lambda: lessons.range_curve(x, qc.Scheme(qc.IntFormat(bits)))
        )
        lesson_view.figure(
            lessons.clipping_against_rounding(curve, edge, **lesson.look()), "learn_error_curve"
        )
        report = compute.report(SPREAD, scheme)
        lesson_view.figures(
            ("range", f"±{edge:.3g}"),
            ("clipped", f"{report.clipped} of {x.size}"),
            ("MSE from clipping", f"{report.clipping_sse / x.size:.3g}"),
            ("MSE from rounding", f"{report.rounding_sse / x.size:.3g}"),
            ("MSE", f"{report.mse:.3g}"),
            ("best range", f"±{curve.best:.3g}"),
        )
    case "yours":
        st.markdown(
            "Your tensor and scheme from the sidebar: try a percentile range, and see where the error goes."
        )
        if chosen := lesson_view.yours():
            report = compute.report(*chosen)
            lesson_view.figures(
                ("SQNR", qc.decibels(report.sqnr_db, 2)),
                ("MSE", f"{report.mse:.3g}"),
                ("MAE", f"{report.mae:.3g}"),
                ("max |error|", f"{report.max_abs_error:.3g}"),
                ("of it clipping", f"{100 * report.clipping_sse / report.sse if report.sse else 0:.3g} %"),
                ("clipped", f"{report.clipped:,}"),
            )
            lesson_view.explored("error", *chosen)
lesson.foot(
    "Nagel et al. 2021, arXiv 2106.08295, section 2.3",
    "6 dB a bit: Bennett 1948, Spectra of Quantized Signals, Bell System Technical Journal 27",
)
