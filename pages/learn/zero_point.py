"""Lesson: symmetric, asymmetric, and which code stands for 0."""

import dataclasses

import numpy as np
import streamlit as st

import quantcore as qc
from pages.learn import choices, frame, hand, views
from pages.learn.hand import Handle, MovedNumber
from pages.learn.material import RELU
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor, generated, of_values
from quantcore import tensors
from quantcore.figures import lessons
from quantcore.wording import difference, signed

WEIGHTS = [-2.3, -1.4, -0.6, -0.1, 0.0, 0.3, 0.9, 1.7, 2.1]
FAR = [2.0, 2.4, 2.5, 2.9, 3.3, 3.6, 4.0]
KINDS = {
    "1,024 values around 0 (normal)": generated(tensors.Generated("normal", (32, 32))),
    "the same values after a ReLU": generated(tensors.Generated("relu", (32, 32))),
    "seven values far from 0": of_values(FAR, "far"),
}
CHOSEN = 5  # the value whose arithmetic is shown while the range is moved
LOW = MovedNumber("learn_zero_point_low", -5.0, 0.0, 0.1, "Low")
HIGH = MovedNumber("learn_zero_point_high", 0.1, 5.0, 0.1, "High")
X = MovedNumber("learn_zero_point_x", -5.0, 5.0, 0.1, "x")
SYMMETRIC, ASYMMETRIC = qc.Scheme(qc.INT4), qc.Scheme(qc.INT4, False)
SCHEMES = {"symmetric": SYMMETRIC, "asymmetric": ASYMMETRIC}


def asymmetric(values: hand.Values, theme: str) -> hand.MovedStep:
    """Return the step on the zero point, whose range and one value are moved."""
    low, high, x = (number.scrub(values[number.key]) for number in (LOW, HIGH, X))
    fixed = qc.Fixed(values[LOW.key], values[HIGH.key])
    relu = [*RELU]
    relu[CHOSEN] = values[X.key]
    result = qc.apply(np.array(relu, np.float32), dataclasses.replace(ASYMMETRIC, range_setting=fixed))
    t = qc.trace(result, (CHOSEN,))
    sentence = (
        f"<b>Asymmetric</b>: the range runs from low, {low}, to high, {high}. The <b>zero point</b> z is the "
        f"code of 0: x / s counts steps from 0, and z, here {signed(str(int(t.zero_point)))}, is the code "
        f"where that count starts. Drag both ends of the range, or x = {x}."
    )
    html = {hand.WORDS: f"<p>{sentence}</p>", hand.BELOW: views.written_formula(*views.lines(t))}
    handles = (Handle(LOW, -0.2), Handle(HIGH, -0.2), Handle(X, 0))
    figure = lessons.rounding_line(result, span=(LOW.low - 0.3, HIGH.high + 0.3), theme=theme)
    return hand.MovedStep(figure, handles, html, "Values and their codes")


def line(name: str, values: list[float], scheme: qc.Scheme) -> qc.Quantized:
    """Draw values and their codes on a number line."""
    result = cache.result(of_values(values, name), scheme)
    views.figure(lessons.rounding_line(result, **frame.plot_style()), f"learn_zero_point_{name}")
    return result


def decibels(tensor: PageTensor, scheme: qc.Scheme) -> float:
    """Return the SQNR of a tensor under a scheme."""
    return cache.report(tensor, scheme).sqnr_db


step = frame.head("zero_point")
words, picture = views.side_by_side(views.for_maps() if step == "yours" else (2, 3))
match step:
    case "symmetric":
        words.markdown(
            "**Symmetric**: the range is ±max|x|, and code 0 stands for 0, so the zero point is 0. Weights "
            "usually lie about equally on both sides of 0, so both halves of the codes are used."
        )
        with picture:
            result = line("weights", WEIGHTS, SYMMETRIC)
            views.formula(*views.lines(qc.trace(result, (3,))))
    case "one-sided":
        words.markdown(
            "After a ReLU no value is negative. A symmetric range still reaches as far below 0 as above it, "
            "but the codes below 0 are never used."
        )
        with picture:
            result = line("relu", RELU, SYMMETRIC)
        unused = int((qc.figures.grid_values(result, (0,)) < 0).sum())
        with words:
            views.figures(
                ("scale", f"{float(result.scale):.4g}"),
                ("codes below 0, never used", f"{unused} of {SYMMETRIC.format.available}"),
                ("SQNR", qc.decibels(decibels(of_values(RELU, "relu"), SYMMETRIC))),
            )
    case "asymmetric":
        with words:
            left, middle, right = st.columns(3)
            low = left.number_input("Low", LOW.low, LOW.high, -1.0, 0.1, "%.1f", key=LOW.key,
                                    bind="query-params")  # fmt: skip
            high = middle.number_input("High", HIGH.low, HIGH.high, 4.6, 0.1, "%.1f", key=HIGH.key,
                                       bind="query-params")  # fmt: skip
            x = right.number_input("x", X.low, X.high, RELU[CHOSEN], 0.1, "%.1f", key=X.key,
                                   bind="query-params")  # fmt: skip
        theme = frame.plot_style()["theme"]
        hand.draw(lambda values: asymmetric(values, theme), {LOW: low, HIGH: high, X: x}, words, picture)
    case "zero":
        words.markdown(
            "Padding, masks and ReLUs produce many exact zeros. If 0 lay between two codes, all of them "
            "would have the same error. So the range is widened to include 0, and z is rounded to an "
            "integer: then (z − z) · s is exactly 0. These values lie far from 0, so the codes between 0 "
            "and the lowest of them are wasted."
        )
        with picture:
            result = line("far", FAR, ASYMMETRIC)
            t = qc.trace(result, (0,))
            views.formula(
                f"lowest x = {min(FAR)}, but low = {t.low:g}, high = {t.high:.4g}",
                *views.lines(t, "scale s", "zero point z"),
                f"{'x̂ of code z':<15}({t.zero_point} - {t.zero_point}) · {t.scale:.6g} = 0",
            )
    case "choose":
        with words:
            place = st.container()
            chosen = views.yours()
        rows, gains = [], {}
        for name, tensor in (KINDS | ({"your tensor": chosen[0]} if chosen else {})).items():
            both = {what: decibels(tensor, scheme) for what, scheme in SCHEMES.items()}
            gains[name] = difference(both["asymmetric"], both["symmetric"])
            row = {"values, in int4 per-tensor": name} | {
                f"SQNR, {what}": qc.decibels(db) for what, db in both.items()
            }
            z = cache.result(tensor, ASYMMETRIC).zero_point
            rows.append(row | {"zero point, asymmetric": "" if z is None else str(int(z.flatten()[0]))})
        around, relu = list(gains.values())[:2]
        place.markdown(
            f"On data around 0 the two differ little (asymmetric {around:+.1f} dB), and symmetric has no "
            "zero point to store or subtract. On one-sided data the asymmetric step is about half as wide "
            f"({relu:+.1f} dB). So weights are usually symmetric, activations asymmetric."
        )
        with picture:
            views.table(rows)
    case "yours":
        words.markdown(
            "Your tensor and scheme from the sidebar: switch between symmetric and asymmetric and see which "
            "codes are used. Click a cell to follow its arithmetic."
        )
        with words:
            choices.choose("Symmetry", "symmetry", choices.symmetry())
        if chosen := views.yours():
            views.explore("zero_point", *chosen, words, picture)
frame.foot(
    "Jacob et al. 2018, Quantization and Training of Neural Networks, arXiv 1712.05877, section 2.1",
    "Nagel et al. 2021, arXiv 2106.08295, section 2.2",
)
