"""A miniature of each lesson's figure for the overview: SVG from the same numbers as the lesson's."""

import base64
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared.charts import theme
from quantcore import outputs, tensors
from quantcore.figures import lessons, style

WIDE, HIGH, EDGE = 180, 84, 6  # of the drawing, in its own units

_HUES = ("#b39efb", "#bae98c", "#d38ac4", "#52b796")  # of rows that have their own scales


def draw(name: str) -> None:
    """Draw a lesson's miniature; it says nothing that its card does not say in words."""
    st.html(f'<img class="qs-miniature" alt="" src="{_of(name, theme())}">')


@cache
def _of(name: str, theme: str) -> str:
    """Return the miniature as an address: Streamlit removes SVG from HTML, images lack the page's colors."""
    drawings: dict[str, Callable[[], Iterable[str]]] = {
        "scale": _scale,
        "zero_point": _zero_point,
        "granularity": _granularity,
        "error": _error,
        "mistakes": _mistakes,
        "predict": _predict,
        "ptq_or_qat": _staircase,
        "inside_a_layer": _inside_a_layer,
        "why_quantize": _why_quantize,
        "outliers": _outliers,
        "gptq": _gptq,
        "rotation": _rotation,
        "small_floats": _small_floats,
    }
    ink, line, fill, dim = (colors[theme] for colors in (style.INK, style.LINE, style.FILL, style.DIM))
    rules = f"""path{{fill:none;stroke-width:2}} .ink{{stroke:{ink}}} .dim{{stroke:{dim};stroke-width:1}}
.line{{stroke:{line}}} .curve{{stroke:{fill}}} circle{{fill:{fill}}} .cell{{fill:none;stroke:{dim}}}
.wrong{{fill:{line};stroke:{line}}} .code{{fill:{fill};fill-opacity:.2}} .text{{fill:{dim}}}
text{{fill:{ink};font:12px sans-serif;text-anchor:middle}}"""
    drawing = "".join(drawings[name]())
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}"'
    svg = f"<svg {size}><style>{rules}</style>{drawing}</svg>"
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _path(points: Iterable[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def _cell(x: float, y: float, wide: float, high: float, kind: str, text: str = "", color: str = "") -> str:
    filled = f' style="fill:{color}"' if color else ""
    place = f'x="{x:.1f}" y="{y:.1f}" width="{wide - 2:.1f}" height="{high - 2:.1f}" rx="2"'
    words = f'<text x="{x + wide / 2 - 1:.1f}" y="{y + high / 2 + 3:.1f}">{text}</text>' if text else ""
    return f'<rect class="{kind}" {place}{filled}/>{words}'


def _across(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return EDGE + (np.asarray(values, float) - low) / (high - low) * (WIDE - 2 * EDGE)


def _connected(x: list[float], scheme: qc.Scheme, low: float, high: float) -> Iterable[str]:
    """Draw values below, the values of all codes above, and a line from each value to its own."""
    result = qc.apply(np.array(x, np.float32), scheme)
    marks = _across(qc.figures.grid_values(result, (0,)), low, high)
    yield from (_path([(at, 12), (at, 26)], "line") for at in marks)
    yield _path([(marks[0], 26), (marks[-1], 26)], "line")
    ends = zip(_across(np.array(x), low, high), _across(result.dequantized.numpy(), low, high), strict=True)
    for at, there in ends:
        yield _path([(at, 70), (there, 27)], "dim") + f'<circle cx="{at:.1f}" cy="70" r="3.5"/>'


def _scale() -> Iterable[str]:
    scheme = qc.Scheme(qc.IntFormat(3, signed=False), False, range_setting=qc.Fixed(0, 100))
    return _connected([3.2, 17.0, 36.6, 58.4, 71.9, 99.0], scheme, 0, 100)


def _zero_point() -> Iterable[str]:
    return _connected([0.0, 0.2, 0.5, 0.9, 1.4, 2.2, 3.1, 4.6], qc.Scheme(qc.INT4), -5.3, 4.7)


def _granularity() -> Iterable[str]:
    for row, hue in enumerate(_HUES):
        y = EDGE + 18 * row
        yield from (_cell(EDGE + 20 * column, y, 20, 18, "", color=hue) for column in range(6))
        yield _cell(WIDE - EDGE - 26, y, 26, 18, "", color=hue)


def _error() -> Iterable[str]:
    x = tensors.generate(tensors.Generated("laplace", (16, 16), 1))
    curve = qc.range_curve(x, qc.Scheme(qc.INT4))
    shown = curve.fractions <= 1
    top = 3 * float(curve.mse[shown].min())
    across = _across(curve.widths[shown], 0, float(curve.widths[shown].max()))
    for y, kind in ((curve.rounding, "curve"), (curve.clipping, "line"), (curve.mse, "ink")):
        heights = HIGH - EDGE - y[shown] / top * (HIGH - 2 * EDGE)
        yield _path([(a, h) for a, h in zip(across, heights, strict=True) if h >= EDGE], kind)


def _mistakes() -> Iterable[str]:
    for n, wide in enumerate((60, 74, 52, 66)):
        yield _cell(EDGE, 16 + 14 * n, wide, 8, "wrong" if n == 2 else "text")
    for row, column in np.ndindex(4, 4):
        wrong = (row, column) in {(1, 2), (2, 0)}
        yield _cell(96 + 20 * column, EDGE + 18 * row, 20, 18, "wrong" if wrong else "cell")


def _predict() -> Iterable[str]:
    for n, (x, code) in enumerate(zip(("1.5", "-4", "0.5", "3"), ("3", "-8", "?", "?"), strict=True)):
        yield _cell(14 + 38 * n, 14, 38, 24, "cell", x)
        yield _cell(14 + 38 * n, 46, 38, 24, "code", code)


def _staircase() -> Iterable[str]:
    found = lessons.slopes(2, 1.0)
    across = _across(found.x, float(found.x.min()), float(found.x.max()))
    line, steps = (HIGH / 2 + 7 - 20 * values for values in (found.x / 1.4, found.x_hat))
    yield _path([(across[0], line[0]), (across[-1], line[-1])], "dim")
    yield _path(zip(across, steps, strict=True), "curve")


def _inside_a_layer() -> Iterable[str]:
    product = outputs.integer_product([[25, 5]], [[7, -8]], 10, -3)
    for n, code in enumerate((25, 5)):
        yield _cell(EDGE + 30 * n, 6, 30, 22, "code", str(code))
    for n, code in enumerate((7, -8)):
        yield _cell(WIDE - EDGE - 60 + 30 * n, 6, 30, 22, "code", str(code))
    for n, term in enumerate(product.terms.values()):
        yield _cell(EDGE + 42 * n, 32, 42, 22, "cell", str(int(term)))
    yield _cell(WIDE / 2 - 26, 58, 52, 22, "code", str(int(product.accumulator)))


def _why_quantize() -> Iterable[str]:
    q4 = qc.bits_per_element(qc.PRESETS["gguf.Q4_0"], (64, 64))
    for n, (name, bits) in enumerate((("float32", 32), ("bfloat16", 16), ("int8", 8), ("Q4_0", q4))):
        yield _cell(EDGE + 58, 6 + 19 * n, bits / 32 * (WIDE - EDGE - 64), 16, "code" if n else "wrong")
        yield f'<text x="{EDGE + 26}" y="{6 + 19 * n + 11}">{name}</text>'


def _outliers() -> Iterable[str]:
    x = [[1, -16, 2, 6], [-2, 8, -1, -9]]  # figure 5 of the paper, as in the lesson
    smooth = outputs.smoothquant(x, [[2, 1, 2, -1], [1, -1, -1, -1], [-2, -1, -2, 1]])
    for left, values in ((EDGE, smooth.steps[0].value), (WIDE / 2 + EDGE, smooth.x.abs().amax(0))):
        for n, value in enumerate(values.tolist()):
            high = max(3.0, value / 16 * (HIGH - 2 * EDGE))
            yield _cell(left + 19 * n, HIGH - EDGE - high, 18, high, "code" if n != 1 else "wrong")


def _gptq() -> Iterable[str]:
    for row, column in np.ndindex(4, 4):
        kind = ("code", "wrong", "cell", "cell")[column]
        yield _cell(WIDE / 2 - 60 + 30 * column, EDGE + 18 * row, 30, 18, kind)


def _rotation() -> Iterable[str]:
    x = [[0.5, 8.0, -0.5, 1.0]]  # the first token of the lesson
    rotated = outputs.hadamard(x, x).x[0].tolist()
    for left, values in ((EDGE, x[0]), (WIDE / 2 + EDGE, rotated)):
        for n, value in enumerate(values):
            high = max(3.0, abs(value) / 8 * (HIGH - 2 * EDGE))
            yield _cell(left + 19 * n, HIGH - EDGE - high, 18, high, "wrong" if abs(value) == 8 else "code")


def _small_floats() -> Iterable[str]:
    values = qc.apply([[0.0, 0.5, 1, 1.5, 2, 3, 4, 6]], "e2m1 per_tensor given(1)").dequantized[0].numpy()
    for at in _across(values, 0, 6):
        yield _path([(at, 24), (at, 52)], "curve")
    yield _path([(EDGE, 52), (WIDE - EDGE, 52)], "line")
