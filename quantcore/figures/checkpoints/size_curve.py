"""The summed error of a model against its size: the best choice of schemes, and one scheme for all."""

import html
import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from quantcore.figures.style import INK, base_layout, short_scheme
from quantcore.wording import printable

Point = tuple[float, float]  # bytes, summed error


def size_curve(
    best: Sequence[Point], uniform: Mapping[str, Point], chosen: Point | None = None, *, label: str = "summed error", theme: str = "light"
) -> go.Figure:
    """Return the best choices as a line, one scheme for all weights as points, and ``chosen`` as a ring.

    Errors of 0 can't be drawn on the logarithmic axis and are left out; sizes are in MB.
    """
    at = "%{x:.4g} MB, error %{y:.4g}<extra></extra>"
    line = [point for point in best if point[1] > 0]
    points = [(html.escape(printable(scheme)), *point) for scheme, point in uniform.items() if point[1] > 0]
    names = _names(points, max((size for size, _ in line), default=1.0))
    figure = go.Figure()
    figure.add_scatter(
        x=[size / 1e6 for size, _ in line], y=[error for _, error in line], mode="lines+markers", name="a scheme per group",
        line={"color": INK[theme], "width": 1.5}, marker={"size": 4}, hovertemplate=at,
    )  # fmt: skip
    figure.add_scatter(
        x=[size / 1e6 for _, size, _ in points], y=[error for _, _, error in points], mode="markers+text", name="one scheme for all",
        text=names, textposition="middle right", customdata=[scheme for scheme, _, _ in points], marker={"size": 9, "symbol": "diamond"},
        hovertemplate=f"%{{customdata}}<br>{at}",
    )  # fmt: skip
    if chosen is not None and chosen[1] > 0:
        ring = {"size": 15, "symbol": "circle-open", "color": INK[theme], "line": {"width": 2}}
        figure.add_scatter(
            x=[chosen[0] / 1e6], y=[chosen[1]], mode="markers", name="the choice within the budget", marker=ring, hovertemplate=at
        )
    figure.update_layout(base_layout(theme, 360) | {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"}})
    figure.update_xaxes(title={"text": "size of all weights (MB)"}, automargin=True)
    figure.update_yaxes(title={"text": label}, type="log", dtick=1, automargin=True)
    return figure


def _names(points: Sequence[tuple[str, float, float]], most: float) -> list[str]:
    """The names of schemes, empty where one would lie over another; the tooltips name all."""
    shown: list[tuple[float, float]] = []
    names = []
    for scheme, size, error in points:
        place = size / most, math.log10(error)
        free = all(abs(place[0] - x) > 0.5 or abs(place[1] - y) > 0.3 for x, y in shown)
        names.append(short_scheme(scheme) if free else "")
        shown += [place] if free else []
    return names
