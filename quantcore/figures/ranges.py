"""Ranges: where each lies among the elements, and the error that it causes; and the trials of a search."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.analysis import RangeCurve, RangeMark, SearchCurve
from quantcore.figures.style import (
    DIM,
    FILL,
    INK,
    LEGEND_ABOVE,
    LINE,
    band_at,
    base_layout,
    line_at,
    log_ticks,
)

# Okabe and Ito's palette, safe for color-blind readers, and of a lightness that dark and light pages allow
COLOURS = ("rgb(213,94,0)", "rgb(0,158,115)", "rgb(204,121,167)", "rgb(86,160,210)", "rgb(190,150,0)",
           "rgb(120,94,180)", "rgb(150,110,80)", "rgb(90,150,60)", "rgb(140,140,140)")  # fmt: skip
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "x", "pentagon")
Array = npt.NDArray[Any]
ROW = 19  # pixels per range under the histogram


def range_histogram(
    counts: Array,
    edges: Array,
    marks: tuple[RangeMark, ...],
    chosen: tuple[float, float],
    *,
    log: bool = False,
    theme: str = "light",
) -> go.Figure:
    """Return a `histogram` with the ``chosen`` range shaded, and below it the range of every setting.

    Dragging across it selects a range of x.
    """
    bars = go.Bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=counts,
        width=np.diff(edges),
        marker={"color": FILL[theme], "line": {"width": 0}},
        hovertemplate="x near %{x:.4~g}: %{y} elements<extra></extra>",
    )
    rows = ROW * len(marks)
    height = 260 + rows
    layout = base_layout(theme, height)
    plot = height - layout["margin"]["t"] - layout["margin"]["b"]
    foot = rows / plot
    spans = [_span(mark, i, len(marks)) for i, mark in enumerate(marks)]
    layout |= {
        "xaxis": {"title": "value", "range": _visible(edges, marks, chosen), "anchor": "y2"},
        "yaxis": {"title": "elements", "domain": [foot + 0.03, 1], "type": "log" if log else "linear"},
        "yaxis2": {
            "domain": [0, foot],
            "range": [-0.5, len(marks) - 0.5],
            "tickvals": list(range(len(marks))),
            "ticktext": [_escaped(mark.name) for mark in reversed(marks)],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "automargin": True,
        },
        "bargap": 0,
        "dragmode": "select",
        "selectdirection": "h",
        "shapes": [
            band_at("x", *chosen, LINE[theme]),
            *(line_at("x", end, {"color": LINE[theme], "width": 2}) for end in chosen),
        ],
    }
    return go.Figure([bars, *spans], layout)


def range_error(
    curve: RangeCurve, marks: tuple[RangeMark, ...], symmetric: bool, *, theme: str = "light"
) -> go.Figure:
    """Return the error of each range, its clipping and rounding parts, and the error of every setting."""
    hover = "width %{x:.4~g}: %{y:.4~g}<extra>%{fullData.name}</extra>"
    lines = [
        _line(curve, curve.clipping, "clipping", LINE[theme], "dash", hover),
        _line(curve, curve.rounding, "rounding", FILL[theme], "dot", hover),
        _line(curve, curve.mse, "total", INK[theme], "solid", hover),
    ]
    points = [
        go.Scatter(
            x=[mark.width],
            y=[_positive(mark.mse)],
            mode="markers",
            name=_escaped(mark.name),
            marker={
                "color": _color(i, len(marks)),
                "symbol": _of(SYMBOLS, i, len(marks)),  # told apart without color, too
                "size": 10,
                "line": {"width": 1, "color": INK[theme]},
            },
            hovertemplate=hover,
        )
        for i, mark in enumerate(marks)
    ]
    at, least = float(curve.widths[curve.best]), float(curve.mse[curve.best])
    what = "largest |x| that is not clipped" if symmetric else "width of the range, high - low"
    what += ",<br>mean over all blocks" if curve.blocks > 1 else ""

    minimum = f"minimum {least:.4g} at {at:.4g} ({curve.fractions[curve.best]:.0%} of min-max)"
    layout = base_layout(theme, 260 + ROW * len(marks)) | {
        "xaxis": {"title": what, "rangemode": "tozero", "automargin": True},
        "yaxis": {"title": "mean squared error", "automargin": True, "type": "log", **_decades(curve)},
        "showlegend": True,
        "legend": {"orientation": "v", "bgcolor": "rgba(0,0,0,0)"},
        "shapes": [line_at("x", at, {"color": DIM[theme], "width": 1, "dash": "dot"})],
        # at the left edge: above its line it would be truncated if the minimum is near an edge
        "annotations": [{"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper",
                         "yanchor": "bottom", "showarrow": False, "text": minimum}],
    }  # fmt: skip
    return go.Figure([*lines, *points], layout)


def _span(mark: RangeMark, i: int, n: int) -> go.Scatter:
    return go.Scatter(
        x=[mark.low, mark.high],
        y=[n - 1 - i] * 2,
        yaxis="y2",
        mode="lines+markers",
        line={"color": _color(i, n), "width": 3},
        marker={"symbol": "line-ns", "size": 11, "line": {"width": 2, "color": _color(i, n)}},
        hovertemplate=f"%{{x:.6~g}}<extra>{_escaped(mark.name)}</extra>",
    )


def _line(curve: RangeCurve, y: Any, name: str, color: str, dash: str, hover: str) -> go.Scatter:
    line = {"color": color, "dash": dash, "width": 2}
    return go.Scatter(
        x=curve.widths, y=[_positive(v) for v in y], name=name, mode="lines", line=line, hovertemplate=hover
    )


def _positive(value: float) -> float | None:
    """Return the value, or None if a logarithmic axis cannot show it."""
    return float(value) if value > 0 and math.isfinite(value) else None


def _decades(curve: RangeCurve) -> dict[str, Any]:
    """Return an axis that shows the total error, and its parts unless they are far below its minimum."""
    shown = [v for v in curve.mse.tolist() if v > 0 and math.isfinite(v)]
    if not shown:
        return {}
    low, high = math.log10(min(shown)) - 1, math.log10(max(shown)) + 0.15
    return {"range": [low, high], **log_ticks(10**low, 10**high)}


def _visible(edges: Array, marks: tuple[RangeMark, ...], chosen: tuple[float, float]) -> list[float]:
    """Return the range of all elements, extended to the other ranges unless they are much wider."""
    low, high = float(edges[0]), float(edges[-1])
    ends = [(mark.low, mark.high) for mark in marks] + [chosen]
    reach = (high / 2 - low / 2) + max(abs(low), abs(high))
    low, high = min([low, *(e[0] for e in ends)]), max([high, *(e[1] for e in ends)])
    low, high = max(low, -reach), min(high, reach)
    margin = 0.03 * (high - low) or 1.0
    return [low - margin, high + margin]


def _color(i: int, n: int) -> str:
    return _of(COLOURS, i, n)


def _of(looks: tuple[str, ...], i: int, n: int) -> str:
    """Return the look of the i-th of n settings, counted from the last: one more in front changes none."""
    return looks[(n - 1 - i) % len(looks)]


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;")


def search_error(curve: SearchCurve, *, theme: str = "light") -> go.Figure:
    """Return the weighted error of each trial of a search; markers show how many groups chose a trial."""
    places = np.arange(1, len(curve.tried) + 1)
    divided = [t if t[:1].isalpha() else f"1/s = {t} / {curve.setting.DIVISOR}" for t in curve.tried]
    data = np.stack([np.array(divided, object), curve.scales, curve.best], axis=-1)
    hover = "trial %{x}: %{customdata[0]}<br>scale %{customdata[1]:.6~g}<br>weighted error %{y:.6~g}"
    line = go.Scatter(
        x=places,
        y=curve.errors,
        customdata=data,
        mode="lines+markers",
        name="weighted error",
        line={"color": INK[theme], "width": 2},
        hovertemplate=hover + "<extra></extra>",
    )
    wins = curve.best > 0
    chosen = go.Scatter(
        x=places[wins],
        y=curve.errors[wins],
        customdata=data[wins],
        mode="markers",
        name="chosen",
        marker={
            "color": LINE[theme],
            "size": 6 + 12 * curve.best[wins] / max(1, curve.best.max()),
            "line": {"width": 1, "color": FILL[theme]},
        },
        hovertemplate=hover + "<br>groups that chose it: %{customdata[2]}<extra></extra>",
    )
    of = "" if curve.measured == 1 else f", mean over {curve.measured:,} groups"
    layout = base_layout(theme, 340) | {
        "xaxis": {"title": "trial, in the order of the search", "automargin": True},
        "yaxis": {"title": f"Σ w · error{of}", "automargin": True, "rangemode": "tozero"},
        **LEGEND_ABOVE,
    }
    return go.Figure([line, chosen], layout)
