"""Error against true bits per element, and the error maps of some schemes on one colour scale."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from quantcore.figures.style import DIM, FILL, LINE, base_layout, palette, share, title
from quantcore.quantize import Quantized
from quantcore.sweep import frontier
from quantcore.views import View, map_data

if TYPE_CHECKING:
    import pandas as pd

DB_PER_BIT = 20 * math.log10(2)  # 6.02: the rate-distortion function of a Gaussian, D = σ²·2^(-2R)
AXES = {
    "sqnr_db": ("SQNR, dB", 1.0),
    "mse": ("MSE", -1.0),
    "mae": ("MAE", -1.0),
    "max_abs_error": ("max |error|", -1.0),
}


def pareto(frame: "pd.DataFrame", metric: str = "sqnr_db", *, theme: str = "light") -> go.Figure:
    """Return every scheme of a sweep as a point, the frontier, and for SQNR the line of a Gaussian.

    A point's customdata is its row's place in ``frame``.
    """
    label, sign = AXES[metric]
    known = frame[np.isfinite(frame[metric]) & (frame["refused"] == "")].reset_index(names="place")
    best = frontier(known["bits_per_element"], sign * known[metric])
    kinds = [
        ("integers", FILL, known["format"].str.match("u?int")),
        ("floats", LINE, ~known["format"].str.match("u?int")),
    ]
    traces = []
    if metric == "sqnr_db" and len(known):
        ends = [0.0, float(known["bits_per_element"].max()) + 0.5]
        traces.append(
            go.Scatter(
                x=ends,
                y=[DB_PER_BIT * end for end in ends],
                mode="lines",
                name="a Gaussian's least error, 6.02 dB a bit",
                line={"color": DIM[theme], "dash": "dot", "width": 1},
                hoverinfo="skip",
            )
        )
    on = known.iloc[best]
    traces.append(
        go.Scatter(
            x=on["bits_per_element"],
            y=on[metric],
            mode="lines",
            name="frontier: nothing has fewer bits and less error",
            line={"color": LINE[theme], "width": 2, "shape": "hv"},
            hoverinfo="skip",
        )
    )
    for name, colours, chosen in kinds:
        points = known[chosen]
        traces.append(
            go.Scatter(
                x=points["bits_per_element"],
                y=points[metric],
                mode="markers",
                name=name,
                marker={"color": colours[theme], "size": 8, "opacity": 0.75},
                customdata=points[["place"]].to_numpy(),
                text=points["scheme"],
                hovertemplate=f"%{{text}}<br>%{{x:.3f}} bits per element<br>{label} %{{y:.4g}}<extra></extra>",
            )
        )
    layout = base_layout(theme, 440) | {"showlegend": True, "legend": {"orientation": "h", "y": 1.08}}
    layout["xaxis"] = {"title": "bits per element, everything counted", "rangemode": "tozero"}
    layout["yaxis"] = {"title": label, "type": "linear" if metric == "sqnr_db" else "log"}
    return go.Figure(traces, layout)


def error_maps(results: Sequence[Quantized], view: View | None = None, *, theme: str = "light") -> go.Figure:
    """Return the error of up to six results of one tensor side by side, on one colour scale."""
    drawn = [map_data(result, view) for result in results]
    largest = max((float(np.nanmax(np.abs(data.error))) for data in drawn), default=0.0) or 1.0
    columns = min(3, max(1, len(drawn)))
    rows = -(-len(drawn) // columns)
    layout: dict[str, Any] = base_layout(theme, 60 + 300 * rows) | {"annotations": []}
    traces = []
    for i, (result, data) in enumerate(zip(results, drawn, strict=True)):
        axis = "" if i == 0 else str(i + 1)
        across, up = share(i % columns, columns, 0.04), 1 - (i // columns + 1) / rows
        down = [up, up + 1 / rows - 0.14]
        traces.append(
            go.Heatmap(
                z=data.error,
                zmin=-largest,
                zmax=largest,
                colorscale=palette("error", theme),
                showscale=i == 0,
                colorbar={"thickness": 8, "nticks": 5},
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                hovertemplate="row %{y}, column %{x}<br>error %{z:.4g}<extra></extra>",
            )
        )
        layout[f"xaxis{axis}"] = {
            "domain": across,
            "anchor": f"y{axis}",
            "showgrid": False,
            "showticklabels": False,
        }
        layout[f"yaxis{axis}"] = {
            "domain": down,
            "anchor": f"x{axis}",
            "autorange": "reversed",
            "showgrid": False,
            "showticklabels": False,
        }
        text = str(result.scheme).removesuffix(" min_max textbook")
        layout["annotations"].append(title(text if len(text) < 52 else text[:50] + "…", across[0], down[1]))
    return go.Figure(traces, layout)
