"""The values that formats can hold, as marks on one number line."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.figures.style import FILL, LINE, base_layout

MAX_MARKS = 4000  # per format; more would look like a solid line


def number_line(
    values: Mapping[str, npt.ArrayLike],
    *,
    log: bool = False,
    at: float | None = None,
    rounded: Mapping[str, float] | None = None,
    what: str = "",
    theme: str = "light",
) -> go.Figure:
    """Return one row of marks per format.

    Args:
        values: name -> its values, in any order.
        log: whether the line shows |value| on a logarithmic scale, without zero.
        at: a number to mark on the line; on a logarithmic line, its magnitude is marked.
        rounded: name -> what ``at`` is rounded to, also marked.
        what: title of the line, instead of "value".
    """
    traces = []
    for name, numbers in values.items():
        marks = np.unique(np.asarray(numbers, dtype=np.float64))
        if log:
            marks = np.unique(np.abs(marks[marks != 0]))
        if len(marks) > MAX_MARKS:
            marks = marks[np.linspace(0, len(marks) - 1, MAX_MARKS).round().astype(np.int64)]
        marker = {"symbol": "line-ns", "size": 18, "line": {"width": 1, "color": FILL[theme]}}
        traces.append(
            go.Scatter(
                x=marks,
                y=[name] * len(marks),
                mode="markers",
                marker=marker,
                hovertemplate=f"{name}<br>%{{x:.6~g}}<extra></extra>",
            )
        )
    if at is not None:
        traces += _number(list(values), abs(at) if log else at, log, rounded or {}, theme)
    title = what or ("|value|" if log else "value")
    return go.Figure(traces, _layout(list(values), log, title, theme))


def _layout(names: list[str], log: bool, title: str, theme: str) -> dict[str, Any]:
    layout = base_layout(theme, 90 + 46 * max(1, len(names))) | {
        "margin": {"l": 90, "r": 20, "t": 20, "b": 40}
    }
    layout["xaxis"] = {
        "type": "log" if log else "linear",
        "title": title,
        "zeroline": True,
    }
    if log:
        layout["xaxis"] |= {"exponentformat": "power"}
    layout["yaxis"] = {
        "autorange": "reversed",
        "showgrid": False,
        "type": "category",
        "automargin": True,
        "categoryarray": names,
    }
    return layout


def _number(
    names: list[str], at: float, log: bool, rounded: Mapping[str, float], theme: str
) -> list[go.Scatter]:
    """The number as a line through all rows, and what each rounds it to; a logarithmic line has no zero."""
    traces = []
    color = LINE[theme]
    if at or not log:
        line = {"color": color, "width": 1, "dash": "dot"}
        text = f"the number {at:.6g}<extra></extra>"
        traces.append(go.Scatter(x=[at] * len(names), y=names, mode="lines", line=line, hovertemplate=text))
    taken = {name: abs(value) if log else value for name, value in rounded.items() if value or not log}
    text = "%{y} rounds it to %{customdata:.6~g}<extra></extra>"
    traces.append(
        go.Scatter(
            x=list(taken.values()),
            y=list(taken),
            customdata=[rounded[name] for name in taken],
            mode="markers",
            marker={"color": color, "size": 9},
            hovertemplate=text,
        )
    )
    return traces
