"""The four pictures of the way of one element, read as a viewer sees them."""

import base64
import re

import numpy as np
import pytest
from grid import for_each

import quantcore as qc
from pages.maps import path

X = np.array([[0.4, -3.0, 2.2, 0.9], [1.0, 2.0, 5.0, -0.7]], np.float32)
CHOSEN = re.compile(r'class="own" d="M([\d.-]+) \d+L([\d.-]+) \d+"')
TICK = re.compile(r'<text x="([\d.-]+)" y="(\d+)">([−\d]+)</text>')


def pictures(scheme: str, index: tuple[int, int]) -> tuple[list[str], list[str]]:
    """The captions and the drawings for an element."""
    result = qc.apply(X, qc.Scheme.parse(scheme))
    markup = path.markup(result, qc.trace(result, index), "light")
    drawings = [base64.b64decode(text).decode() for text in re.findall(r"base64,([^\"]+)", markup)]
    return re.findall("<figcaption>(.*?)</figcaption>", markup), drawings


def read(drawing: str, top: bool) -> float:
    """Where the element stands on one of the axes, in the numbers that are written there."""
    ticks = [
        (float(x), int(text.replace("−", "-")))
        for x, y, text in TICK.findall(drawing)
        if (int(y) < 38) == top
    ]
    at = float(CHOSEN.search(drawing)[1 if top else 2])
    return float(np.polyval(np.polyfit(*zip(*ticks, strict=True), 1), at))


@for_each(
    ("scheme", "index", "s", "z", "ends"),
    [
        ("int4 symmetric", (0, 0), 5 / 7, 0, (-8, 7)),
        ("uint4 asymmetric", (0, 2), 8 / 15, 6, (0, 15)),
        ("uint4 asymmetric fixed(-1, 2)", (1, 2), 0.2, 5, (0, 15)),
        ("int4 asymmetric per_channel(0)", (1, 3), 5.7 / 15, -6, (-8, 7)),
        ("int8 symmetric", (1, 0), 5 / 127, 0, (-128, 127)),
    ],
)
def test_each_picture_shows_where_its_step_leads(
    scheme: str, index: tuple[int, int], s: float, z: int, ends: tuple[int, int]
) -> None:
    captions, (divided, rounded, clamped, back) = pictures(scheme, index)
    x = float(X[index])
    v = round(x / s) + z
    q = min(max(v, ends[0]), ends[1])
    near = {"abs": 0.05}  # a place is written with a digit after the point
    assert read(divided, top=False) == pytest.approx(x / s, **near)
    assert read(rounded, top=True) == pytest.approx(x / s, **near)
    assert read(rounded, top=False) == pytest.approx(v, **near)
    assert read(clamped, top=True) == pytest.approx(v, **near)
    assert read(clamped, top=False) == pytest.approx(q, **near)
    assert read(back, top=True) == pytest.approx(q, **near)
    first, last = re.search(r'class="error" d="M([\d.-]+) \d+H([\d.-]+)"', back).groups()
    assert float(first) == float(CHOSEN.search(rounded)[1])  # x, in the place that it has in all pictures
    assert float(last) == float(CHOSEN.search(clamped)[2])
    assert [re.match("<b>(.*?)</b>", text)[1] for text in captions] == ["÷ s", "round", "clamp", "· s"]
    for text, value in zip(captions, (None, None, q, (q - z) * s), strict=True):
        if value is not None:
            assert float(re.search(r"= (-?[\d.]+)(<br>|$)", text)[1]) == pytest.approx(value, rel=1e-5)


@for_each("scheme", ["e4m3fn", "nf4"])
def test_a_code_that_is_not_rounded_to_an_integer_has_no_such_pictures(scheme: str) -> None:
    assert pictures(scheme, (0, 0)) == ([], [])
