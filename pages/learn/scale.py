"""Lesson: from the marks on a thermometer to codes."""

import numpy as np
import streamlit as st

import quantcore as qc
from pages.learn import choices, frame, hand, views
from pages.learn.hand import Handle, MovedNumber, Values
from pages.learn.material import READINGS
from pages.shared.computing import cache
from pages.shared.state.selection import of_values
from quantcore.figures import lessons

CHOSEN = 2  # the reading that the thermometer shows
BITS = MovedNumber("learn_scale_bits", 2, 8, 1, "Bits")
LOW = MovedNumber("learn_scale_low", -40, 0, 5, "Lowest mark", "°C")
HIGH = MovedNumber("learn_scale_high", 5, 120, 5, "Highest mark", "°C")
READING = MovedNumber("learn_scale_reading", -40, 120, 0.1, "Reading", "°C")
SPAN = (LOW.low, HIGH.high)
ENDS = (Handle(LOW, -0.17), Handle(HIGH, -0.17))  # near the axis, where no label is


def quantized(values: Values) -> qc.Quantized:
    """Return the readings under the scheme of the controls."""
    scheme = qc.Scheme(
        qc.IntFormat(int(values[BITS.key]), signed=False),
        False,
        range_setting=qc.Fixed(values[LOW.key], values[HIGH.key]),
    )
    readings = [*READINGS]
    readings[CHOSEN] = values.get(READING.key, readings[CHOSEN])
    return qc.apply(np.array(readings, np.float32), scheme)


def scrubs(values: Values) -> dict[str, str]:
    """Return the numbers of sentences, by name."""
    numbers = {"bits": BITS, "low": LOW, "high": HIGH, "reading": READING}
    return {
        name: number.scrub(values[number.key]) for name, number in numbers.items() if number.key in values
    }


def on_thermometer(
    values: Values, theme: str, sentence: str, lines: list[str], codes: bool
) -> hand.MovedStep:
    """Return a step that shows the thermometer."""
    figure = lessons.thermometer(quantized(values), CHOSEN, codes=codes, span=SPAN, theme=theme)
    html = {hand.WORDS: f"<p>{sentence}</p>", hand.BELOW: views.written_formula(*lines)}
    return hand.MovedStep(figure, (*ENDS, Handle(READING, 1), Handle(READING, 0)), html, "Readings and marks")


def marks(values: Values, theme: str) -> hand.MovedStep:
    """Return the step on the distance of marks."""
    result, now = quantized(values), scrubs(values)
    steps, low, high = 2 ** int(values[BITS.key]) - 1, values[LOW.key], values[HIGH.key]
    return on_thermometer(
        values,
        theme,
        f"A thermometer with {now['bits']} bits has {steps + 1} marks, numbered from 0, from {now['low']} to "
        f"{now['high']}. Between them lie {steps} steps of equal width. That width is the <b>scale</b>.",
        [
            f"{'scale s':<14} (high - low) / (2^bits - 1) = ({high:g} - {low:g}) / {steps} = "
            f"{float(result.scale):.6g} °C"
        ],
        False,
    )


def code(values: Values, theme: str) -> hand.MovedStep:
    """Return the step from a reading to its code."""
    t, now = qc.trace(quantized(values), (CHOSEN,)), scrubs(values)
    zero = int(t.zero_point)
    count = f", and add {zero}, the code of 0 °C, where the count starts" if zero else ""
    return on_thermometer(
        values,
        theme,
        f"The mercury stands at {now['reading']}: drag it. Divide the reading by the scale, here "
        f"{t.scale:.6g} °C with {now['bits']} bits, to count it in steps. Round to the nearest "
        f"integer{count}: that is the <b>code</b>, and only the code is stored.",
        views.lines(t, "x", "code q", zero_point=False),
        True,
    )


def back(values: Values, theme: str) -> hand.MovedStep:
    """Return the step from a code to its value."""
    t, now = qc.trace(quantized(values), (CHOSEN,)), scrubs(values)
    zero = int(t.zero_point)
    how = f"Subtract {zero}, the code of 0 °C, and multiply" if zero else "Multiply the code"
    return on_thermometer(
        values,
        theme,
        f"The mercury stands at {now['reading']}. {how} by the scale. That gives the mark, x̂, not the "
        "reading: where the reading lay between two marks is lost. Within the range the error is at most "
        f"half a step, {t.scale / 2:.4g} °C with {now['bits']} bits.",
        views.lines(t, "x", zero_point=False),
        True,
    )


def outside(values: Values, theme: str) -> hand.MovedStep:
    """Return the step on clipping."""
    result, now = quantized(values), scrubs(values)
    report = qc.report(result)
    figure = lessons.error_against_x(result, span=(SPAN[0] - 5, SPAN[1] + 5), theme=theme)
    numbers = views.written_figures(
        ("scale", f"{float(result.scale):.4g} °C"),
        ("largest error", f"{report.max_abs_error:.4g} °C"),
        ("clipped", f"{report.clipped} of {len(READINGS)}"),
    )
    words = (
        f"<p>Lower the highest mark, {now['high']}: drag the end of the range. A reading above it gets the "
        "code of that mark, however far away it is: that is <b>clipping</b>. Within the range the error is a "
        "sawtooth of ± half a step; outside, it grows without bound.</p>"
    )
    html = {hand.WORDS: words, hand.NUMBERS: numbers}
    return hand.MovedStep(figure, (Handle(LOW), Handle(HIGH)), html, "Error against the reading")


STEPS = {"marks": marks, "code": code, "back": back, "range": outside}

step = frame.head("scale")
words, picture = views.side_by_side(views.for_maps() if step == "yours" else (2, 3))
with words:
    if step in STEPS:
        bits = st.slider("Bits", 2, 8, 3, key=BITS.key, bind="query-params")
    if step != "yours":
        left, right = st.columns(2)
        low = left.number_input("Lowest mark (°C)", -40, 0, 0, 5, key=LOW.key, bind="query-params",
                                help="At most 0 °C: the range includes 0")  # fmt: skip
        high = right.number_input("Highest mark (°C)", 5, 120, 100, 5, key=HIGH.key, bind="query-params")
    if step in STEPS and step != "range":
        reading = st.number_input("Reading (°C)", -40.0, 120.0, READINGS[CHOSEN], 0.1, "%.1f",
                                  key=READING.key, bind="query-params")  # fmt: skip

if step in STEPS:
    at: dict[MovedNumber, float] = {BITS: bits, LOW: low, HIGH: high}
    theme = frame.plot_style()["theme"]
    if step != "range":
        at[READING] = reading
    shown = STEPS[step]
    hand.draw(lambda values: shown(values, theme), at, words, picture)
elif step == "bits":
    words.markdown(
        "Each additional bit doubles the number of codes and so nearly halves the step. Rounding alone "
        "is off by at most half a step."
    )
    rows, readings = [], of_values(READINGS, "readings")
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
else:
    words.markdown("Your tensor and scheme from the sidebar. Click a cell to follow its arithmetic.")
    with words:
        choices.choose("Bits", "bits", choices.bits())
    if chosen := views.yours():
        views.explore("scale", *chosen, words, picture, zero_point=False)
frame.foot("Nagel et al. 2021, A White Paper on Neural Network Quantization, arXiv 2106.08295, section 2.1")
