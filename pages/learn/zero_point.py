"""Lesson 2: symmetric and asymmetric, and which code stands for 0."""

import dataclasses

import streamlit as st

import quantcore as qc
from pages.shared import compute, lesson, lesson_view
from pages.shared.current import Tensor
from quantcore import tensors
from quantcore.figures import lessons

STEPS = {
    "symmetric": "Around 0, the zero point is 0",
    "one-sided": "One-sided data waste half of the codes",
    "asymmetric": "The zero point moves the codes onto the data",
    "zero": "0 keeps a code of its own",
    "choose": "Which of the two, and when",
    "yours": "The same on your tensor",
}
WEIGHTS = [-2.3, -1.4, -0.6, -0.1, 0.0, 0.3, 0.9, 1.7, 2.1]
RELU = [0.0, 0.0, 0.2, 0.5, 0.9, 1.4, 2.2, 3.1, 4.6]
FAR = [2.0, 2.4, 2.5, 2.9, 3.3, 3.6, 4.0]
KINDS = {
    "1,024 values around 0 (normal)": lesson_view.generated(tensors.Generated("normal", (32, 32))),
    "the same after a ReLU": lesson_view.generated(tensors.Generated("relu", (32, 32))),
    "seven values far from 0": lesson_view.own("far", FAR),
}
SYMMETRIC, ASYMMETRIC = qc.Scheme(qc.INT4), qc.Scheme(qc.INT4, False)


def line(name: str, values: list[float], scheme: qc.Scheme) -> qc.Quantized:
    """Draw a lesson's values and their codes on a line."""
    result = compute.result(lesson_view.own(name, values), scheme)
    lesson_view.figure(lessons.rounding_line(result, **lesson.look()), f"learn_zero_point_{name}")
    return result


def mine() -> list[tuple[str, Tensor]]:
    """The visitor's tensor, if there is one, with its name."""
    chosen = lesson_view.yours()
    return [("your tensor", chosen[0])] if chosen else []


step = lesson.head("zero_point", STEPS)
match step:
    case "symmetric":
        st.markdown(
            "**Symmetric**: the range is ±max|x|, and the code 0 stands for 0. Weights of a network lie on both sides "
            "of 0 in about the same way, so nearly every code is near some value."
        )
        result = line("weights", WEIGHTS, SYMMETRIC)
        lesson_view.formula(*lesson_view.lines(qc.trace(result, (3,))))
    case "one-sided":
        st.markdown(
            "After a ReLU no value is below 0. A symmetric range still reaches as far down as up, and the codes "
            "there stand for nothing."
        )
        result = line("relu", RELU, SYMMETRIC)
        unused = int((qc.figures.grid_values(result, (0,)) < 0).sum())
        lesson_view.figures(
            ("scale", f"{float(result.scale):.4g}"),
            ("codes below 0, never used", f"{unused} of {SYMMETRIC.format.available}"),
            ("SQNR", qc.decibels(compute.report(lesson_view.own("relu", RELU), SYMMETRIC).sqnr_db)),
        )
    case "asymmetric":
        st.markdown(
            "**Asymmetric**: the range runs from low to high. The **zero point** z is the code of 0: x / s counts the "
            "steps from 0, and z is where that counting starts. Drag the range."
        )
        left, right = st.columns(2)
        low = left.slider("Low", -5.0, 0.0, -1.0, 0.1, key="learn_zero_point_low", bind="query-params")
        high = right.slider("High", 0.1, 5.0, 4.6, 0.1, key="learn_zero_point_high", bind="query-params")
        result = line("relu", RELU, dataclasses.replace(ASYMMETRIC, range_setting=qc.Fixed(low, high)))
        lesson_view.formula(*lesson_view.lines(qc.trace(result, (5,))))
    case "zero":
        st.markdown(
            "Padding, masks and ReLUs make many exact zeros; were 0 between two marks, each of them would carry the "
            "same error. So the range is widened until it includes 0, and z is rounded to a whole code: then "
            "(z - z) · s is exactly 0. These values lie far from 0, and pay for it."
        )
        result = line("far", FAR, ASYMMETRIC)
        t = qc.trace(result, (0,))
        lesson_view.formula(
            f"lowest x = {min(FAR)}, but low = {t.low:g}, high = {t.high:.4g}",
            *lesson_view.lines(t, "scale s", "zero point z"),
            f"x̂ of the code z:  ({t.zero_point} - {t.zero_point}) · {t.scale:.6g} = 0",
        )
    case "choose":
        st.markdown(
            "On data around 0 both make nearly the same error, and the symmetric way has no zero point to store and to "
            "subtract. On one-sided data the asymmetric step is half as wide: 6 dB. So weights are usually symmetric, "
            "activations asymmetric."
        )
        rows = []
        for name, tensor in [*KINDS.items(), *mine()]:
            row = {"int4, one scale": name}
            for what, scheme in (("symmetric", SYMMETRIC), ("asymmetric", ASYMMETRIC)):
                row[f"{what}: SQNR"] = qc.decibels(compute.report(tensor, scheme).sqnr_db)
            z = compute.result(tensor, ASYMMETRIC).zero_point
            rows.append(row | {"asymmetric: zero point": str(int(z.flatten()[0]))})
        lesson_view.table(rows)
    case "yours":
        st.markdown(
            "Your tensor and scheme from the sidebar: switch between symmetric and asymmetric there, and see which "
            "codes are used. Click a cell to follow its arithmetic."
        )
        if chosen := lesson_view.yours():
            lesson_view.explored("zero_point", *chosen)
lesson.foot(
    "Jacob et al. 2018, Quantization and Training of Neural Networks, arXiv 1712.05877, section 2.1",
    "Nagel et al. 2021, arXiv 2106.08295, section 2.2",
)
