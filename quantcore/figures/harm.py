"""How much a checkpoint's tensors differ from another's: circles, or bars of a few."""

import html
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import decibels
from quantcore.figures.style import DIM, FAINT, base_layout, palette, tooltip_style
from quantcore.figures.treemap import shown
from quantcore.wording import count as count_of

if TYPE_CHECKING:
    import pandas as pd

# metric -> its label, and whether larger is better (1) or worse (-1)
HARM_AXES = {
    "sqnr_db": ("SQNR (dB)", 1),
    "mse": ("MSE", -1),
    "max_abs_error": ("max |error|", -1),
    "cosine": ("cosine similarity", 1),
}
_BITS = (2, 3, 4, 6, 8, 16, 32)  # on the color bar
_SMALLEST, _LARGEST = 5.0, 30.0  # diameter of a circle in px
_WIDTH = 2400.0  # px over which circles are spread, with some overlap
_SPAN = 4.0  # smallest span of the axis in dB: smaller differences should not look large
_NAME = 90  # characters
_FEW, _TICK = 12, 36  # up to this many tensors are bars, with names of this many characters
ALIKE = 1.1  # bits per weight that differ by less than this factor have one color
_THICK, _HIGH = 26, 214  # px: the thickest bar, and the height of the plot


def harm(
    frame: "pd.DataFrame",
    metric: str = "sqnr_db",
    *,
    order: str = "",
    worst_first: bool = False,
    theme: str = "light",
) -> go.Figure:
    """Return each tensor as a circle, in the order of the rows; area is bytes, color is bits per weight.

    A few are bars with their names, except for the cosine similarity, whose bars would all look alike; if the
    worst come first, these are, and one more bar spans the others, from the smallest to the largest. Errors
    of 0 are not drawn, nor tensors without a finite metric. The customdata of a circle or bar is its row's
    index.

    Args:
        frame: with the columns "tensor", "bytes", "bits_per_weight", "sqnr_db" and ``metric``.
        order: how the tensors are sorted, such as "largest error first"; then ``meta["caption"]`` of the
            layout says how many are drawn, in this order, and how many are not: too long for an axis's title.
        worst_first: whether the rows are in the order of `by_harm`.
    """
    values = frame[metric].to_numpy(float)
    drawn = np.isfinite(values) & ((values > 0) | (metric in ("sqnr_db", "cosine")))
    places = np.flatnonzero(drawn)
    alike = _alike(frame.iloc[places]["bits_per_weight"].to_numpy(float))
    layout = _layout(metric, order, alike, len(places), len(frame), theme)
    as_bars = metric != "cosine" and (worst_first or len(places) <= _FEW)
    places, others = (places[:_FEW], values[places[_FEW:]]) if as_bars else (places, values[:0])
    told: dict[str, Any] = {
        "customdata": places.tolist(),
        "text": [_tooltip(row, metric) for row in frame.iloc[places].to_dict("records")],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": _colors(frame.iloc[places], not alike, theme),
    }
    if as_bars:
        figure = _bars(values[places], list(frame.iloc[places]["tensor"]), told, layout)
        return _with_others(figure, others, metric, theme)
    return _circles(values[places], frame.iloc[places]["bytes"].to_numpy(float), metric, told, layout)


def _colors(shown: "pd.DataFrame", has_bar: bool, theme: str) -> dict[str, Any]:
    """Colors by the bits per weight, on a logarithmic scale."""
    return {
        "color": np.log2(np.clip(shown["bits_per_weight"].to_numpy(float), 1, 64)),
        "colorscale": palette("sequential", theme),
        "cmin": math.log2(_BITS[0]),
        "cmax": math.log2(_BITS[-1]),
        "line": {"width": 1, "color": DIM[theme]},
        "colorbar": {
            "thickness": 10,
            "tickvals": [math.log2(b) for b in _BITS],
            "ticktext": [str(b) for b in _BITS],
            "title": {"text": "bits per weight", "side": "right"},
            "outlinewidth": 0,
        },
        "showscale": has_bar,
    }


def _circles(
    values: np.ndarray, num_bytes: np.ndarray, metric: str, told: dict[str, Any], layout: dict[str, Any]
) -> go.Figure:
    """Circles from left to right, whose areas are bytes."""
    sizes = np.sqrt(num_bytes / max(1.0, num_bytes.max(initial=1.0)))
    largest = min(_LARGEST, max(10.0, _WIDTH / max(1, len(values))))  # px
    told["marker"] |= {"size": _SMALLEST + (largest - _SMALLEST) * sizes, "opacity": 0.8}
    trace = go.Scatter(x=list(range(len(values))), y=values.tolist(), mode="markers", **told)
    if metric == "sqnr_db" and len(values) and np.ptp(values) < _SPAN:
        middle = float(values.min() + values.max()) / 2
        layout["yaxis"] |= {"range": [middle - _SPAN / 2, middle + _SPAN / 2]}
    return go.Figure([trace], layout)


def _bars(values: np.ndarray, names: list[str], told: dict[str, Any], layout: dict[str, Any]) -> go.Figure:
    """Horizontal bars from 0, the first row on top."""
    n = len(names)
    thickness = min(0.7, _THICK * max(1, n) / _HIGH)
    trace = go.Bar(
        x=values.tolist(), y=list(range(n)), orientation="h", width=thickness,
        textposition="none", **told,
    )  # fmt: skip
    metric = layout["yaxis"]
    layout["yaxis"] = {
        "tickvals": list(range(n)), "ticktext": [_tick(name) for name in names], "range": [n - 0.5, -0.5],
        "showgrid": False, "zeroline": False, "automargin": True,
    }  # fmt: skip
    layout["xaxis"] = {"title": {"text": metric["title"]}, "zeroline": True}
    return go.Figure([trace], layout)


def _with_others(figure: go.Figure, others: np.ndarray, metric: str, theme: str) -> go.Figure:
    """Add a bar below that spans these values."""
    if not others.size:
        return figure
    low, high, n = float(others.min()), float(others.max()), len(figure.data[0].y)
    told = f"{count_of(len(others), 'other tensor')}: {HARM_AXES[metric][0]} from {low:.4g} to {high:.4g}"
    figure.add_bar(
        x=[high - low], base=[low], y=[n], orientation="h", width=0.35, textposition="none", text=[told],
        hovertemplate="%{text}<extra></extra>", showlegend=False,
        marker={"color": FAINT[theme], "line": {"width": 1, "color": DIM[theme]}},
    )  # fmt: skip
    axis = figure.layout.yaxis
    words = [*axis.ticktext, f"{len(others):,} more"]
    axis.update(tickvals=[*axis.tickvals, n], ticktext=words, range=[n + 0.5, -0.5])
    return figure


def _tooltip(row: dict[str, Any], metric: str) -> str:
    lines = [f"<b>{shown(str(row['tensor']), _NAME)}</b>", f"SQNR {decibels(row['sqnr_db'])}"]
    if metric != "sqnr_db":
        lines.append(f"{HARM_AXES[metric][0]} {row[metric]:.4g}")
    return "<br>".join([*lines, f"{row['bits_per_weight']:.4g} bits per weight, {row['bytes']:,} bytes"])


def _layout(metric: str, order: str, alike: str, n: int, count: int, theme: str) -> dict[str, Any]:
    layout = base_layout(theme, 272) | {"margin": {"l": 60, "r": 8, "t": 8, "b": 46}}
    left = count - n
    more = f"; {left:,} more {'is' if left == 1 else 'are'} exact or not finite" if left else ""
    if order:
        layout["meta"] = {"caption": f"{count_of(n, 'tensor')}{alike}, {order}{more}"}
    layout["xaxis"] = {
        "showticklabels": False, "showgrid": False, "zeroline": False,
        "range": [-0.02 * n - 0.5, 1.02 * n - 0.5],
    }  # fmt: skip
    layout["yaxis"] = {"title": HARM_AXES[metric][0], "type": "linear", "zeroline": metric == "sqnr_db"}
    if metric in ("mse", "max_abs_error"):
        layout["yaxis"] |= {"type": "log"}
    layout["hoverlabel"] = tooltip_style(theme)
    return layout


def _alike(bits: np.ndarray) -> str:
    """Return how many bits per weight all have, if a color bar would show one color; empty otherwise."""
    if not bits.size or bits.max() > ALIKE * bits.min():
        return ""
    low, high = f"{bits.min():.3g}", f"{bits.max():.3g}"
    return f" of {low if low == high else f'{low} to {high}'} bits per weight"


def _tick(name: str) -> str:
    """Return the end of a name, its most telling part."""
    short = name.removesuffix(".weight")
    return html.escape(short if len(short) <= _TICK else f"…{short[1 - _TICK :].lstrip('.')}")
