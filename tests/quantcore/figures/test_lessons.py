"""The figures of lessons show what quantcore computes, and nothing else."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from grid import for_each
from parts import some

import quantcore as qc
from quantcore.figures import lessons, style
from quantcore.figures.lessons.rounding import MAX_LABELS

X = torch.randn(16, 16, generator=torch.Generator().manual_seed(2)) ** 3
RESULT = qc.apply([0.2, 1.4, -3.0, 5.0], qc.Scheme.parse("int4 asymmetric fixed(-2, 4)"))


@for_each("theme", ["light", "dark"])
def test_every_element_goes_to_the_mark_of_its_code(theme):
    ways, marks, points = lessons.rounding_line(RESULT, theme=theme).data
    codes = list(range(-8, 8))
    np.testing.assert_array_equal(marks.customdata, codes)
    np.testing.assert_array_equal(marks.x, qc.dequantize(torch.tensor(codes), 0.4, -3, RESULT.scheme))
    assert list(marks.text) == [str(c).replace("-", "−") for c in codes]
    np.testing.assert_array_equal(points.x, RESULT.x)
    np.testing.assert_array_equal(points.customdata[:, 0], RESULT.codes)
    legs = np.asarray(ways.x).reshape(-1, 3)
    np.testing.assert_array_equal(legs[:, 0], RESULT.x)
    np.testing.assert_array_equal(legs[:, 1], RESULT.dequantized)


def test_errors_have_a_minus_sign():
    figure = lessons.error_bars(RESULT.error.tolist())
    assert list(figure.data[0].text) == [f"{v:.3g}".replace("-", "−") for v in RESULT.error.tolist()]
    assert "−" in figure.data[0].text[1]
    assert figure.layout.yaxis.title.text == "error x − x̂"


def test_labels_of_many_codes_leave_room():
    marks = lessons.rounding_line(qc.apply([0.0, 1.0], qc.Scheme(qc.INT8))).data[1]
    shown = [text for text in marks.text if text]
    assert len(marks.text) == 256
    assert len(shown) <= MAX_LABELS + 1
    assert (shown[0], shown[-1]) == ("−128", "127")


def test_error_is_a_saw_within_the_range_and_a_ramp_beyond():
    x, error = lessons.error_curve(RESULT)
    low, high = -2.0, 4.0
    inside = (x >= low - 0.2) & (x <= high + 0.2)
    assert np.abs(error[inside]).max() <= 0.2 + 1e-6  # half a step of 0.4
    np.testing.assert_allclose(error[x > high + 0.2], x[x > high + 0.2] - high, atol=1e-6)
    np.testing.assert_allclose(error[x < low - 0.2], x[x < low - 0.2] - low, atol=1e-6)
    assert (x < low - 0.2).sum() > 100
    saw, points = lessons.error_against_x(RESULT).data
    np.testing.assert_array_equal(saw.y, error)
    np.testing.assert_array_equal(points.y, RESULT.error)


@for_each("bits", some([2, 4, 8], 2))
def test_clipping_and_rounding_as_drawn_are_the_error_of_the_range(bits):
    scheme = qc.Scheme(qc.IntFormat(bits))
    figure = lessons.clipping_against_rounding(qc.range_curve(X, scheme), 3.0)
    drawn = {trace.name: np.asarray(trace.y) for trace in figure.data}
    limits = figure.data[0].x
    np.testing.assert_allclose(limits, float(X.abs().max()) * np.arange(1, 51) / 50, rtol=1e-6)
    np.testing.assert_allclose(drawn["rounding"] + drawn["clipping"], drawn["total"])
    for limit, total in zip(limits, drawn["total"], strict=True):
        fixed = dataclasses.replace(scheme, range_setting=qc.Fixed(-limit, limit))
        error = (X - qc.apply(X, fixed).dequantized).double()
        # in float32 the step may be off by 2^-23 of itself, which moves errors near a tie by a step
        assert total == pytest.approx(float(error.square().mean()), rel=1e-4)
    assert drawn["clipping"][-1] == 0
    assert drawn["clipping"][0] > drawn["rounding"][0]
    if bits < 8:  # clipping heavy tails pays off
        assert drawn["total"].argmin() < 49
    assert figure.layout.shapes[0].x0 == 3.0
    low, high = figure.layout.yaxis.range
    assert low == 0 < drawn["total"].min() <= drawn["total"][-1] < high


# How colors look to people without red, green or blue cones: Machado, Oliveira and Fernandes 2009, severity 1.0
SIGHT = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}  # fmt: skip


def linear(colours):
    c = np.array([re.findall(r"[\d.]+", colour)[:3] for colour in colours], float) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """Linear sRGB converted to CIELAB under D65."""
    to_xyz = [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.072175],
        [0.0193339, 0.119192, 0.9503041],
    ]
    t = rgb @ np.transpose(to_xyz) / [0.95047, 1.0, 1.08883]
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], -1)


@for_each("sight", SIGHT)
@for_each(("theme", "page"), [("light", "rgb(255,255,255)"), ("dark", "rgb(25,25,22)")])
def test_colours_of_blocks_are_told_apart(theme, page, sight):
    colours = linear([*style.BLOCKS[theme], page])
    seen = lab(np.clip(colours @ np.transpose(SIGHT[sight]), 0, 1))
    distance = np.linalg.norm(seen[:, None] - seen, axis=-1)
    assert distance[np.triu_indices(len(seen), 1)].min() > 15  # CIELAB 1976; 2.3 is just noticeable
    if sight == "usual":  # numbers on them are readable: WCAG 2 contrast, level AA
        light = linear([*style.BLOCKS[theme], style.INK[theme]]) @ [0.2126, 0.7152, 0.0722] + 0.05
        ratio = light[:-1] / light[-1]
        assert np.maximum(ratio, 1 / ratio).min() > 4.5
