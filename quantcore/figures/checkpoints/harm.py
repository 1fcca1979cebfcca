"""How much each tensor of a checkpoint differs from the original."""

import html
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import decibels
from quantcore.figures.style import DIM, FAINT, INK, base_layout, palette
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
_FEW, _TICK = 12, 48  # up to this many tensors are bars, with names of this many characters
_THICK, _HIGH = 26, 214  # px: the thickest bar, and the height of the plot


def harm(
    frame: "pd.DataFrame", metric: str = "sqnr_db", *, order: str = "", theme: str = "light"
) -> go.Figure:
    """Return each tensor as a circle, in the order of the rows; area is bytes, color is bits per weight.

    A few are bars with their names, except for the cosine similarity, whose bars would all look alike. Tensors without a
    finite metric are not drawn, nor are errors of 0. The customdata of a circle or bar is its row's index.

    Args:
        frame: with the columns "tensor", "bytes", "bits_per_weight", "sqnr_db" and ``metric``.
        order: how the tensors are sorted, for the axis title, such as "the most harmed first".
    """
    values = frame[metric].to_numpy(float)
    drawn = np.isfinite(values) & ((values > 0) | (metric in ("sqnr_db", "cosine")))
    places = np.flatnonzero(drawn)
    shown = frame.iloc[places]
    colors = {
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
        "showscale": True,
    }
    told: dict[str, Any] = {
        "customdata": places.tolist(),
        "text": [_tooltip(row, metric) for row in shown.to_dict("records")],
        "hovertemplate": "%{text}<extra></extra>",
    }
    layout = _layout(metric, order, len(places), len(frame), theme)
    if len(places) <= _FEW and metric != "cosine":
        return _bars(values[places], list(shown["tensor"]), colors, told, layout)
    sizes = np.sqrt(
        shown["bytes"].to_numpy(float) / max(1.0, float(shown["bytes"].max() if len(shown) else 1))
    )
    largest = min(_LARGEST, max(10.0, _WIDTH / max(1, len(places))))  # px
    marker = colors | {"size": _SMALLEST + (largest - _SMALLEST) * sizes, "opacity": 0.8}
    trace = go.Scatter(x=list(range(len(places))), y=values[places].tolist(), mode="markers", marker=marker, **told)
    if metric == "sqnr_db" and len(places) and np.ptp(values[places]) < _SPAN:
        middle = float(values[places].min() + values[places].max()) / 2
        layout["yaxis"] |= {"range": [middle - _SPAN / 2, middle + _SPAN / 2]}
    return go.Figure([trace], layout)


def _bars(
    values: np.ndarray, names: list[str], colors: dict[str, Any], told: dict[str, Any], layout: dict[str, Any]
) -> go.Figure:
    """Horizontal bars from 0, the first row on top."""
    n = len(names)
    thickness = min(0.7, _THICK * max(1, n) / _HIGH)
    trace = go.Bar(
        x=values.tolist(), y=list(range(n)), orientation="h", width=thickness, marker=colors, textposition="none", **told
    )  # fmt: skip
    metric = layout["yaxis"]
    layout["yaxis"] = {
        "tickvals": list(range(n)), "ticktext": [_tick(name) for name in names], "range": [n - 0.5, -0.5],
        "showgrid": False, "zeroline": False, "automargin": True,
    }  # fmt: skip
    title = f"{metric['title']} of {layout['xaxis']['title']['text']}"
    layout["xaxis"] = {"title": {"text": title}, "zeroline": True}
    return go.Figure([trace], layout)


def _tooltip(row: dict[str, Any], metric: str) -> str:
    name = str(row["tensor"])
    short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    lines = [f"<b>{html.escape(short)}</b>", f"SQNR {decibels(row['sqnr_db'])}"]
    if metric != "sqnr_db":
        lines.append(f"{HARM_AXES[metric][0]} {row[metric]:.4g}")
    return "<br>".join([*lines, f"{row['bits_per_weight']:.4g} bits per weight, {row['bytes']:,} bytes"])


def _layout(metric: str, order: str, n: int, count: int, theme: str) -> dict[str, Any]:
    layout = base_layout(theme, 260) | {"margin": {"l": 60, "r": 8, "t": 8, "b": 34}}
    left_out = f", {count - n:,} not shown (exact or not finite)" if n < count else ""
    layout["xaxis"] = {
        "title": {"text": f"{count_of(n, 'tensor')}, {order}{left_out}" if order else ""},
        "showticklabels": False, "showgrid": False, "zeroline": False, "range": [-0.02 * n - 0.5, 1.02 * n - 0.5],
    }  # fmt: skip
    layout["yaxis"] = {"title": HARM_AXES[metric][0], "type": "linear", "zeroline": metric == "sqnr_db"}
    if metric in ("mse", "max_abs_error"):
        layout["yaxis"] |= {"type": "log"}
    layout["hoverlabel"] = {"align": "left", "bordercolor": FAINT[theme], "font": {"color": INK[theme]}}
    return layout


def _tick(name: str) -> str:
    """The end of a name, its most telling part."""
    short = name.removesuffix(".weight")
    return html.escape(short if len(short) <= _TICK else f"…{short[1 - _TICK :].lstrip('.')}")
