"""Error against bits per element, and the error maps of several schemes on one color scale."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import View, frontier, map_data
from quantcore.figures.style import (
    DIM,
    FILL,
    INK,
    LEGEND_ABOVE,
    LINE,
    base_layout,
    line_at,
    palette,
    short_scheme,
    subplot_domain,
    title,
)
from quantcore.formats import FloatFormat, IntFormat, parse_format
from quantcore.quantization import Quantized

if TYPE_CHECKING:
    import pandas as pd

DB_PER_BIT = 20 * math.log10(2)  # 6.02: the rate-distortion function of a Gaussian, D = σ²·2^(-2R)
AXES = {
    "sqnr_db": ("SQNR (dB)", 1.0),
    "output_sqnr_db": ("output SQNR (dB)", 1.0),  # of a sweep of a layer's weight
    "mse": ("MSE", -1.0),
    "mae": ("MAE", -1.0),
    "max_abs_error": ("max |error|", -1.0),
}


_TITLE = 46  # characters that fit above a map
_GREEN = {"light": "rgb(27,120,55)", "dark": "rgb(127,201,127)"}
_MARKERS = {"integers": ("circle", FILL), "floats": ("diamond", LINE), "codebooks": ("square", _GREEN)}


def pareto(
    frame: "pd.DataFrame",
    metric: str = "sqnr_db",
    *,
    own: str = "",
    theme: str = "light",
    limit: float | None = None,
) -> go.Figure:
    """Return every scheme of a sweep as a point, the Pareto frontier, and for SQNR the Gaussian limit.

    A point's customdata is the position of its row in ``frame``; if ``frame`` has a column ``name``, it is
    shown instead of the scheme.

    Args:
        own: the text of a scheme to mark with a ring.
        limit: bits per element, marked with a line.
    """
    sign = AXES[metric][1]
    known = frame[np.isfinite(frame[metric]) & (frame["refused"] == "")].reset_index(names="place")
    known = known.assign(listed=overlapping(known, metric))
    best = known.iloc[frontier(known["bits_per_element"], sign * known[metric])]
    traces = []
    if metric == "sqnr_db" and len(known):
        ends = [0.0, _reach(known, metric)]
        line = {"color": DIM[theme], "dash": "dot", "width": 1}
        traces.append(_line(ends, [DB_PER_BIT * e for e in ends], "Gaussian limit, 6.02 dB per bit", line))
    line = {"color": INK[theme], "width": 1.5, "shape": "hv"}
    traces.append(_line(best["bits_per_element"], best[metric], "Pareto frontier", line))
    kinds = known["format"].map(_kind)
    for kind, (symbol, colors) in _MARKERS.items():
        points = known[kinds == kind]
        marker = {"color": colors[theme], "size": 8, "opacity": 0.75, "symbol": symbol}
        if len(points):
            traces.append(_points(points, metric, kind, marker))
    ringed = known[known["scheme"] == own]
    if len(ringed):
        marker = {"size": 15, "symbol": "circle-open", "color": INK[theme], "line": {"width": 2}}
        traces.append(_points(ringed, metric, "the scheme in the sidebar", marker))
    traces += _labels(best, metric)  # last: narrow windows hide the last one (page.css)
    return go.Figure(traces, _layout(metric, limit, theme))


def _reach(points: "pd.DataFrame", metric: str) -> float:
    """Return up to how many bits per element the Gaussian limit is drawn: not far above the points, where it
    would press them together.
    """
    highest = max(0.0, float(points[metric].max()))
    return min(float(points["bits_per_element"].max()) + 0.5, max(1.0, 1.15 * highest / DB_PER_BIT))


def _layout(metric: str, limit: float | None, theme: str) -> dict[str, Any]:
    """Axes, legend and the line of the limit."""
    layout = base_layout(theme, 430) | {
        **LEGEND_ABOVE,
        "margin": {"l": 60, "r": 12, "t": 64, "b": 44},
    }
    # from 0, where the Gaussian limit starts, and which leaves room for the names
    layout["xaxis"] = {"title": "bits per element, including scales and zero points", "rangemode": "tozero"}
    layout["yaxis"] = {"title": AXES[metric][0], "type": "linear" if is_in_db(metric) else "log"}
    if not is_in_db(metric):
        layout["yaxis"] |= {"dtick": 1}
    if limit is not None:
        layout["shapes"] = [line_at("x", limit, {"color": LINE[theme], "width": 1, "dash": "dash"})]
    return layout


# of the axes, in a narrow and in a wide window: the width of a letter, and the height of a line
_ROOM = ((0.0215, 0.075), (0.0085, 0.055))


def _labels(best: "pd.DataFrame", metric: str) -> list[go.Scatter]:
    """Return the names of points on the frontier, beside them where they leave each other room.

    Those that have it in a narrow window, then those that only a wide one has room for; tooltips name others.
    """
    x, y = best["bits_per_element"].to_numpy(float), best[metric].to_numpy(float)
    shown = np.isfinite(y) if is_in_db(metric) else y > 0
    best, x, y = best[shown], x[shown], y[shown]
    if not len(best):
        return []
    names = [short_scheme(name) for name in best["name" if "name" in best else "scheme"]]
    if is_in_db(metric):
        heights = y / (DB_PER_BIT * _reach(best, metric))
    else:
        heights = np.log10(y) / (float(np.ptp(np.log10(y))) or 1.0)
    ends = x / (float(x.max()) or 1.0)
    drawn: list[go.Scatter] = []
    kept: list[int] = []
    for letter, line in _ROOM:
        added = []
        for i in range(len(best)):
            starts = [end - letter * len(name) for end, name in zip(ends, names, strict=True)]
            free = all(
                starts[i] > ends[j] or starts[j] > ends[i] or abs(heights[i] - heights[j]) > line
                for j in kept
            )
            if i not in kept and free and starts[i] > 0:
                kept.append(i)
                added.append(i)
        drawn.append(
            go.Scatter(  # one without points would not be drawn, and the page finds it by its place
                x=[*x[added], None],
                y=[*y[added], None],
                mode="text",
                text=[*(html.escape(names[i]) for i in added), ""],
                textposition="top left" if AXES[metric][1] > 0 else "bottom left",
                cliponaxis=False,
                showlegend=False,
                hoverinfo="skip",
                name="names",
            )
        )
    return drawn


NEAR = 0.012  # points overlap if they are this close, as a fraction of each axis
_LISTED = 8


def overlapping(points: "pd.DataFrame", metric: str) -> list[str]:
    """For each point, the names of all points that overlap it, one per line, its own first."""
    names = list(points["name" if "name" in points else "scheme"])
    x, y = points["bits_per_element"].to_numpy(float), points[metric].to_numpy(float)
    if not is_in_db(metric):  # the axis is logarithmic, and an error of 0 is not drawn
        y = np.log10(np.where(y > 0, y, np.nan))
    tolerance = [NEAR * float(np.ptp(v[np.isfinite(v)])) if np.isfinite(v).any() else 0.0 for v in (x, y)]
    listed = []
    for i, name in enumerate(names):
        close = (np.abs(x - x[i]) <= tolerance[0]) & (np.abs(y - y[i]) <= tolerance[1])
        others = [names[j] for j in np.flatnonzero(close) if j != i]
        more = [f"and {len(others) - _LISTED} more"] if len(others) > _LISTED else []
        listed.append(
            "<br>".join([f"<b>{html.escape(name)}</b>", *map(html.escape, others[:_LISTED]), *more])
        )
    return listed


def is_in_db(metric: str) -> bool:
    """Tell whether a metric of `AXES` is a ratio in dB; others are errors, on a logarithmic axis."""
    return AXES[metric][1] > 0


def _kind(text: str) -> str:
    fmt = parse_format(text)
    if isinstance(fmt, IntFormat):
        return "integers"
    return "floats" if isinstance(fmt, FloatFormat) else "codebooks"


def _line(x: Sequence[float], y: Sequence[float], name: str, line: dict[str, Any]) -> go.Scatter:
    return go.Scatter(x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip")


def _points(points: "pd.DataFrame", metric: str, name: str, marker: dict[str, Any]) -> go.Scatter:
    """Points with their names and coordinates in the tooltip."""
    told = f"%{{text}}<br>%{{x:.3f}} bits per element<br>{AXES[metric][0]} %{{y:.4g}}<extra></extra>"
    return go.Scatter(
        x=points["bits_per_element"],
        y=points[metric],
        mode="markers",
        name=name,
        marker=marker,
        customdata=points["place"].tolist(),  # a list: the browser turns an array into an object
        text=points["listed"],
        hovertemplate=told,
    )


def error_maps(
    results: Mapping[str, Quantized], view: View | None = None, *, theme: str = "light"
) -> go.Figure:
    """Return the error maps of several results for one tensor, on one color scale, each under its name."""
    drawn = {name: map_data(result, view) for name, result in results.items()}
    sizes = [np.abs(data.map("error")) for data in drawn.values()]
    largest = max((float(s[np.isfinite(s)].max(initial=0.0)) for s in sizes), default=0.0) or 1.0
    columns = min(3, max(1, len(drawn)))
    rows = -(-len(drawn) // columns)
    layout: dict[str, Any] = base_layout(theme, 40 + 300 * rows) | {"annotations": []}
    layout["coloraxis"] = {
        "cmin": -largest,
        "cmax": largest,
        "colorscale": palette("error", theme),
        "colorbar": {"thickness": 8, "outlinewidth": 0, "nticks": 5, "title": {"text": "error"}},
    }
    traces = []
    for i, (name, data) in enumerate(drawn.items()):
        axis = "" if i == 0 else str(i + 1)
        across, top = subplot_domain(i % columns, columns, 0.03), 1 - (i // columns) / rows
        plain = {"showgrid": False, "showticklabels": False, "ticks": "", "zeroline": False}
        layout[f"xaxis{axis}"] = plain | {"domain": across, "anchor": f"y{axis}", "matches": "x"}
        layout[f"yaxis{axis}"] = plain | {
            "domain": [top - 0.88 / rows, top - 0.06 / rows],
            "anchor": f"x{axis}",
            "autorange": "reversed",
            "matches": "y",
        }
        traces.append(
            go.Heatmap(
                z=data.map("error"),
                coloraxis="coloraxis",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                customdata=np.stack([data.worst.row, data.worst.column], axis=-1),
                hovertemplate="row %{customdata[0]}, column %{customdata[1]}<br>"
                "error %{z:.4g}<extra></extra>",
            )
        )
        short = name if len(name) <= _TITLE else name[: _TITLE - 1] + "…"
        layout["annotations"].append(title(short, across[0], top - 0.06 / rows))
    return go.Figure(traces, layout)
