"""Lesson 1: from a thermometer's marks to codes."""

import streamlit as st

import quantcore as qc
from pages.shared import compute, lesson, lesson_view
from quantcore.figures import lessons

STEPS = {
    "marks": "A mark for every code",
    "code": "The code is the number of the nearest mark",
    "back": "Back again, and what is lost on the way",
    "range": "Outside the range there is no mark",
    "bits": "One more bit: twice the marks, half the step",
    "yours": "The same on your tensor",
}
READINGS = [3.2, 17.0, 36.6, 58.4, 71.9, 99.0]

step = lesson.head("scale", STEPS)
if step != "yours":
    left, middle, right = st.columns(3)
    bits = left.slider("Bits", 2, 8, 3, key="learn_scale_bits", bind="query-params")
    low = middle.slider("Lowest mark", -40, 0, 0, 5, "%d °C", key="learn_scale_low", bind="query-params")
    high = right.slider("Highest mark", 5, 120, 100, 5, "%d °C", key="learn_scale_high", bind="query-params")
    scheme = qc.Scheme(qc.IntFormat(bits, signed=False), False, range_setting=qc.Fixed(low, high))
    readings = lesson_view.own("readings", READINGS)
    result, report = compute.result(readings, scheme), compute.report(readings, scheme)
    scale, codes = float(result.scale), 2**bits
    t = qc.trace(result, (2,))

match step:
    case "marks":
        st.markdown(
            f"With {bits} bits a thermometer has {codes} marks, numbered from 0. Between {codes} marks lie {codes - 1} "
            "steps of equal width, and that width is the **scale**."
        )
        lesson_view.formula(
            f"scale s = (high - low) / (2^bits - 1) = ({high} - {low}) / {codes - 1} = {scale:.6g} °C"
        )
    case "code":
        st.markdown(
            "Divide by the scale to count in steps, then round. What is stored is that whole number, the **code**."
        )
        lesson_view.formula(*lesson_view.lines(t, "x", "code q"))
    case "back":
        st.markdown(
            "To read a code, multiply by the scale: that is the mark itself, x̂. What lay between two marks is gone: "
            f"at most half a step, {scale / 2:.4g} °C."
        )
        lesson_view.formula(*lesson_view.lines(t))
    case "range":
        st.markdown(
            "Draw the highest mark below 99 °C: that reading gets the last mark, however far away. Within the range "
            "the error is a saw of half a step, outside it grows without end. That is **clipping**."
        )
        lesson_view.figure(lessons.error_against_x(result, **lesson.look()), "learn_scale_error")
        clipped = f"{report.clipped} of {len(READINGS)}"
        lesson_view.figures(
            ("scale", f"{scale:.4g} °C"),
            ("largest error", f"{report.max_abs_error:.4g} °C"),
            ("clipped", clipped),
        )
    case "bits":
        st.markdown(
            "Each bit doubles the number of marks. The step halves, and with it the largest error that rounding can make."
        )
        rows = []
        for n in range(2, 9):
            other = qc.Scheme(qc.IntFormat(n, signed=False), False, range_setting=qc.Fixed(low, high))
            found, errors = compute.result(readings, other), compute.report(readings, other)
            rows.append(
                {
                    "bits": f"{n}",
                    "marks": f"{2**n}",
                    "scale s": f"{float(found.scale):.4g} °C",
                    "half a step": f"{float(found.scale) / 2:.4g} °C",
                    "largest error here": f"{errors.max_abs_error:.4g} °C",
                    "SQNR": qc.decibels(errors.sqnr_db),
                }
            )
        lesson_view.table(rows)
    case "yours":
        st.markdown("Your tensor and scheme from the sidebar. Click a cell to follow its arithmetic.")
        if chosen := lesson_view.yours():
            lesson_view.explored("scale", *chosen)

if step in ("marks", "code", "back"):
    lesson_view.figure(lessons.rounding_line(result, **lesson.look()), "learn_scale_line")
lesson.foot("Nagel et al. 2021, A White Paper on Neural Network Quantization, arXiv 2106.08295, section 2.1")
