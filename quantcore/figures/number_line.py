"""The values that formats can hold, as marks on one number line."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.figures.style import FILL, LINE, base_layout

MAX_MARKS = 4000  # of a format: beyond, the marks are one line to the eye


def number_line(
    values: Mapping[str, npt.ArrayLike], *, log: bool = False, at: float | None = None, theme: str = "light"
) -> go.Figure:
    """Return one row of marks a format.

    Args:
        values: name -> its values, any order.
        log: the line is of |value|, logarithmic; zero is left out.
        at: a number to mark on the line.
    """
    traces = []
    for name, numbers in values.items():
        marks = np.unique(np.asarray(numbers, dtype=np.float64))
        if log:
            marks = np.unique(np.abs(marks[marks != 0]))
        marks = marks[:: max(1, -(-len(marks) // MAX_MARKS))]
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
    layout = base_layout(theme, 90 + 46 * max(1, len(values))) | {
        "margin": {"l": 90, "r": 20, "t": 20, "b": 40}
    }
    layout["xaxis"] = {
        "type": "log" if log else "linear",
        "title": "|value|" if log else "value",
        "zeroline": True,
    }
    layout["yaxis"] = {"autorange": "reversed", "showgrid": False, "type": "category"}
    if at is not None and (at > 0 or not log):
        layout["shapes"] = [
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": LINE[theme], "width": 1.5},
            }
        ]
    return go.Figure(traces, layout)
