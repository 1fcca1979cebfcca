"""Lesson: from the marks on a thermometer to codes."""

import streamlit as st

import quantcore as qc
from pages.learn import choices, frame, views
from pages.learn.material import READINGS
from pages.shared.computing import cache
from pages.shared.state.selection import of_values
from quantcore.figures import lessons

CHOSEN = 2  # the reading that the thermometer shows

step = frame.head("scale")
words, picture = views.side_by_side(views.for_maps() if step == "yours" else (2, 3))
if step not in ("bits", "yours"):
    with words:
        bits = st.slider("Bits", 2, 8, 3, key="learn_scale_bits", bind="query-params")
if step != "yours":
    with words:
        low = st.slider("Lowest mark", -40, 0, 0, 5, "%d °C", key="learn_scale_low", bind="query-params",
                        help="At most 0 °C: the range includes 0")  # fmt: skip
        high = st.slider("Highest mark", 5, 120, 100, 5, "%d °C", key="learn_scale_high", bind="query-params")
    readings = of_values(READINGS, "readings")
if step not in ("bits", "yours"):
    scheme = qc.Scheme(qc.IntFormat(bits, signed=False), False, range_setting=qc.Fixed(low, high))
    result, report = cache.result(readings, scheme), cache.report(readings, scheme)
    scale, codes = float(result.scale), 2**bits
    t = qc.trace(result, (CHOSEN,))
    zero = int(t.zero_point)

match step:
    case "marks":
        words.markdown(
            f"A thermometer with {bits} bits has {codes} marks, numbered from 0. Between them lie "
            f"{codes - 1} steps of equal width. That width is the **scale**."
        )
    case "code":
        words.markdown(
            f"Divide the reading by the scale, here {scale:.6g} °C, to count it in steps. Round to the "
            "nearest integer"
            + (f", and add {zero}, the code of 0 °C, where the count starts" if zero else "")
            + ": that is the **code**, and only the code is stored."
        )
    case "back":
        words.markdown(
            (f"Subtract {zero}, the code of 0 °C, and multiply" if zero else "Multiply the code")
            + " by the scale. That gives the mark, x̂, not the reading: where the reading lay "
            "between two marks is lost. Within the range the error is at most half a step, "
            f"{scale / 2:.4g} °C."
        )
    case "range":
        words.markdown(
            "Lower the highest mark. A reading above it gets the code of that mark, however far away it is: "
            "that is **clipping**. Within the range the error is a sawtooth of ± half a step; outside, it "
            "grows without bound."
        )
        with words:
            views.figures(
                ("scale", f"{scale:.4g} °C"),
                ("largest error", f"{report.max_abs_error:.4g} °C"),
                ("clipped", f"{report.clipped} of {len(READINGS)}"),
            )
        with picture:
            views.figure(lessons.error_against_x(result, **frame.plot_style()), "learn_scale_error")
    case "bits":
        words.markdown(
            "Each additional bit doubles the number of codes and so nearly halves the step. Rounding alone "
            "is off by at most half a step."
        )
        rows = []
        for n in range(2, 9):
            other = qc.Scheme(qc.IntFormat(n, signed=False), False, range_setting=qc.Fixed(low, high))
            found, errors = cache.result(readings, other), cache.report(readings, other)
            rows.append(
                {
                    "bits": f"{n}",
                    "marks": f"{2**n}",
                    "scale": f"{float(found.scale):.4g} °C",
                    "half a step": f"{float(found.scale) / 2:.4g} °C",
                    "largest error": f"{errors.max_abs_error:.4g} °C",
                    "SQNR": qc.decibels(errors.sqnr_db),
                }
            )
        with picture:
            views.table(rows)
    case "yours":
        words.markdown("Your tensor and scheme from the sidebar. Click a cell to follow its arithmetic.")
        with words:
            choices.choose("Bits", "bits", choices.bits())
        if chosen := views.yours():
            views.explore("scale", *chosen, words, picture, zero_point=False)

if step in ("marks", "code", "back"):
    with picture:
        shown = lessons.thermometer(result, CHOSEN, codes=step != "marks", **frame.plot_style())
        views.figure(shown, "learn_scale_line")
        if step == "marks":
            views.formula(
                f"{'scale s':<14} (high - low) / (2^bits - 1) = ({high} - {low}) / {codes - 1} = {scale:.6g} "
                "°C"
            )
        else:
            ends = ("x", "code q") if step == "code" else ("x", "")
            views.formula(*views.lines(t, *ends, zero_point=False))
frame.foot("Nagel et al. 2021, A White Paper on Neural Network Quantization, arXiv 2106.08295, section 2.1")
