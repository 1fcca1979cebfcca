"""The trials of one of ggml's searches."""

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import SearchCurve
from quantcore.figures.style import FILL, INK, LINE, base_layout


def search_error(curve: SearchCurve, *, theme: str = "light") -> go.Figure:
    """Return the weighted error of each trial of a search; markers show how many groups chose a trial."""
    places = np.arange(1, len(curve.tried) + 1)
    divided = [t if t[:1].isalpha() else f"1/s = {t} / {curve.divisor}" for t in curve.tried]
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
        "showlegend": True,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }
    return go.Figure([line, chosen], layout)
