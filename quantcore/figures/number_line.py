"""The values that formats can hold, as marks on one number line."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.figures.style import FILL, INK, LINE, base_layout, log_ticks

MAX_MARKS = 4000  # per format; more would look like a solid line
_EDGE = 1.1  # of the largest value: how far a line that is divided by it reaches
_ROOM = 1.2  # around what a line of values must show


def number_line(
    values: Mapping[str, npt.ArrayLike],
    *,
    log: bool = False,
    at: float | None = None,
    rounded: Mapping[str, float] | None = None,
    chosen: tuple[str, float] | None = None,
    divide: Mapping[str, float] | None = None,
    theme: str = "light",
) -> go.Figure:
    """Return one row of marks per format.

    Args:
        values: name -> its values, in any order.
        log: whether the line shows |value| on a logarithmic scale, without zero.
        at: a number to mark in every row; on a logarithmic line, its magnitude is marked.
        rounded: name -> what ``at`` is rounded to, also marked.
        chosen: the name of a row and one of its values, also marked.
        divide: name -> what each row is divided by; what lies beyond the ends of the line is marked at them.
    """
    by = dict.fromkeys(values, 1.0) | dict(divide or {})
    traces = [_row(name, numbers, by[name], log, theme) for name, numbers in values.items()]
    if at is not None:
        traces += _number(list(values), at, log, divide, theme)
    text = "%{y} rounds it to %{customdata:.6~g}"
    traces += _points(rounded or {}, by, log, divide, LINE[theme], "circle", 9, text)
    if chosen is not None:
        text = "the code above: %{customdata:.6~g}"
        traces += _points(dict([chosen]), by, log, divide, INK[theme], "diamond-open", 15, text)
    layout = _layout(list(values), log, divide, theme)
    if log:
        shown = np.concatenate([np.abs(np.asarray(trace.x, float)) for trace in traces])
        shown = shown[shown > 0]
        layout["xaxis"] |= log_ticks(float(shown.min()), float(shown.max())) if shown.size else {}
    if divide:
        layout["xaxis"]["range"] = [-_EDGE * 1.05, _EDGE * 1.05]
    elif not log:
        layout["xaxis"]["range"] = _span(values, [v for v in (at, chosen and chosen[1]) if v is not None])
    return go.Figure(traces, layout)


def _row(name: str, numbers: npt.ArrayLike, by: float, log: bool, theme: str) -> go.Scatter:
    marks = np.unique(np.asarray(numbers, dtype=np.float64))
    if log:
        marks = np.unique(np.abs(marks[marks != 0]))
    if len(marks) > MAX_MARKS:
        marks = marks[np.linspace(0, len(marks) - 1, MAX_MARKS).round().astype(np.int64)]
    marker = {"symbol": "line-ns", "size": 18, "line": {"width": 1, "color": FILL[theme]}}
    return go.Scatter(
        x=marks / by,
        y=[name] * len(marks),
        customdata=marks,
        mode="markers",
        marker=marker,
        hovertemplate=f"{name}<br>%{{customdata:.6~g}}<extra></extra>",
    )


def _span(values: Mapping[str, npt.ArrayLike], shown: list[float]) -> list[float]:
    """Return a range that shows most formats' values, and what is marked: a wide format exceeds it."""
    largest = sorted(float(np.abs(np.asarray(numbers)).max()) for numbers in values.values())
    reach = _ROOM * max([largest[(len(largest) - 1) // 2], *map(abs, shown)])
    return [-reach, reach]


def _layout(names: list[str], log: bool, divide: Mapping[str, float] | None, theme: str) -> dict[str, Any]:
    height = 70 + 40 * max(1, len(names))
    layout = base_layout(theme, height) | {"margin": {"l": 90, "r": 20, "t": 8, "b": 40}}
    title = "value / largest |value|" if divide else "|value|" if log else "value; drag the axis to see more"
    layout["xaxis"] = {"type": "log" if log else "linear", "title": title, "zeroline": True}
    layout["yaxis"] = {
        "autorange": "reversed",
        "showgrid": False,
        "type": "category",
        "automargin": True,
        "categoryarray": names,
    }
    return layout


def _number(
    names: list[str], at: float, log: bool, divide: Mapping[str, float] | None, theme: str
) -> list[go.Scatter]:
    """Draw the number as a line through all rows; one mark per row where each row has its own scale."""
    line = {"color": LINE[theme], "width": 1, "dash": "dot"}
    text = f"the number {at:.6g}<extra></extra>"
    if divide:
        marker = {"symbol": "line-ns", "size": 30, "line": {"width": 2, "color": LINE[theme]}}
        places = {name: at / divide[name] for name in names}
        inside = {name: place for name, place in places.items() if abs(place) <= _EDGE}
        x, y = list(inside.values()), list(inside)
        marks = [go.Scatter(x=x, y=y, mode="markers", marker=marker, hovertemplate=text)]
        return marks + _beyond(at, [name for name in names if name not in inside], theme)
    if log and not at:
        return []  # a logarithmic line has no zero
    place = abs(at) if log else at
    return [go.Scatter(x=[place] * len(names), y=names, mode="lines", line=line, hovertemplate=text)]


def _beyond(at: float, rows: list[str], theme: str) -> list[go.Scatter]:
    """Arrows at the end of the rows that the number exceeds."""
    if not rows:
        return []
    end, symbol = (_EDGE, "triangle-right") if at > 0 else (-_EDGE, "triangle-left")
    marker = {"symbol": symbol, "size": 12, "color": LINE[theme]}
    text = f"the number {at:.6g} is beyond the largest value<extra></extra>"
    return [go.Scatter(x=[end] * len(rows), y=rows, mode="markers", marker=marker, hovertemplate=text)]


def _points(
    points: Mapping[str, float],
    by: Mapping[str, float],
    log: bool,
    divide: Mapping[str, float] | None,
    color: str,
    symbol: str,
    size: int,
    text: str,
) -> list[go.Scatter]:
    """One value in each of some rows."""
    taken = {name: value / by[name] for name, value in points.items() if value or not log}
    if not taken:
        return []
    outline = {"width": 3 if "open" in symbol else 0}
    return [
        go.Scatter(
            x=[abs(value) if log else value for value in taken.values()],
            y=list(taken),
            customdata=[points[name] for name in taken],
            mode="markers",
            marker={"color": color, "size": size, "symbol": symbol, "line": outline},
            hovertemplate=f"{text}<extra></extra>",
        )
    ]
