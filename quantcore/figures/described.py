"""A figure in words, for readers who hear it: its axes, and how many points of each series lie where."""

import html
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

_MOST = 12  # series that are listed
_MARKUP = re.compile(r"<[^>]+>")


def described(figure: go.Figure, name: str) -> str:
    """Return the name of a figure with its axes and series in words.

    >>> figure = go.Figure(go.Scatter(x=[1, 2], y=[0.5, -4.0], name="error"), {"yaxis": {"title": "dB"}})
    >>> described(figure, "Error by size")
    'Error by size. Vertical axis: dB. error: 2 points from -4 to 0.5.'
    """
    parts = [name, *_axes(figure)]
    found = [told for trace in figure.data if (told := _told(trace))]
    parts += found[:_MOST]
    if len(found) > _MOST:
        parts.append(f"And {len(found) - _MOST} more series")
    return " ".join(part if part.endswith("?") else part.rstrip(".") + "." for part in parts)


def _axes(figure: go.Figure) -> list[str]:
    axes = (("Horizontal axis", figure.layout.xaxis), ("Vertical axis", figure.layout.yaxis))
    return [f"{where}: {_plain(axis.title.text)}" for where, axis in axes if axis.title.text]


def _told(trace: Any) -> str:
    """Return one series in words; empty for text that only stands beside others, and what has no points."""
    if trace.type == "heatmap":
        cells = np.asarray(trace.z)
        shape = " by ".join(map(str, cells.shape))
        return f"{_plain(trace.name or 'map')}: {shape} cells{_span(_numbers(cells))}"
    if trace.type not in ("scatter", "bar") or getattr(trace, "mode", "") == "text":
        return ""
    values = _numbers(trace.x if trace.orientation == "h" else trace.y)
    what = "bar" if trace.type == "bar" else "point"
    several = "" if values.size == 1 else "s"
    name = f"{_plain(trace.name)}: " if trace.name else ""
    return f"{name}{values.size:,} {what}{several}{_span(values)}" if values.size else ""


def _numbers(values: Any) -> npt.NDArray[np.float64]:
    """Return the finite numbers of a series."""
    if values is None or isinstance(values, dict):  # as JSON has them
        return np.empty(0)
    try:
        array = np.asarray(values, np.float64).reshape(-1)
    except (TypeError, ValueError):  # names
        return np.empty(0)
    return array[np.isfinite(array)]


def _span(values: npt.NDArray[np.float64]) -> str:
    if not values.size:
        return ""
    low, high = float(values.min()), float(values.max())
    return f" at {low:.4g}" if low == high else f" from {low:.4g} to {high:.4g}"


def _plain(text: str) -> str:
    """Return a text without Plotly's markup."""
    return " ".join(html.unescape(_MARKUP.sub(" ", text)).split())
