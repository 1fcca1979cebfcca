"""What screen readers say of a figure: its name, axes, series and cells, with the numbers that it shows."""

import numpy as np
import plotly.graph_objects as go

import quantcore as qc
from quantcore import figures


def test_axes_and_series():
    figure = go.Figure(
        [
            go.Scatter(x=[1, 2, 3], y=[0.5, None, -4.25], name="int4 &lt;b&gt;"),
            go.Bar(x=[7.0], y=[0], orientation="h"),
            go.Scatter(x=[1], y=[1], mode="text", text=["beside a point"], name="names"),
        ],
        {"xaxis": {"title": "bits,<br>in all"}, "yaxis": {"title": "SQNR (dB)"}},
    )
    assert figures.described(figure, "Error by size") == (
        "Error by size. Horizontal axis: bits, in all. Vertical axis: SQNR (dB). "
        "int4 <b>: 2 points from -4.25 to 0.5. 1 bar at 7."
    )


def test_maps():
    figure = figures.maps(qc.apply(np.array([[0.5, -1.0], [2.0, 7.0]]), qc.Scheme(qc.INT4)))
    told = figures.described(figure, "Maps")
    assert told.startswith("Maps. Original x: 2 by 2 cells from -1 to 7. Codes q: 2 by 2 cells from -1 to 7.")
    assert "names" not in told
