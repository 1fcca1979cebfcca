"""Error against size, of the choices for a model's weights."""

import html
import math
from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from quantcore.figures.style import INK, LEGEND_ABOVE, base_layout, short_scheme
from quantcore.wording import printable

Point = tuple[float, float]  # bytes, summed error


def size_curve(
    best: Sequence[Point],
    uniform: Mapping[str, Point],
    chosen: Point | None = None,
    *,
    files: Mapping[str, Point] | None = None,
    label: str = "summed error",
    theme: str = "light",
) -> go.Figure:
    """Return the best choices as a line, one scheme for all weights as points, and ``chosen`` as a ring.

    Errors of 0 can't be drawn on the logarithmic axis and are left out; sizes are in MB.

    Args:
        files: file types of llama.cpp, as points too; those whose error is nan as marks above the axis of
            sizes.
    """
    at = "%{x:.4g} MB, error %{y:.4g}<extra></extra>"
    line = [(num_bytes / 1e6, error) for num_bytes, error in best if error > 0]
    points = [
        (html.escape(printable(scheme)), num_bytes / 1e6, error)
        for scheme, (num_bytes, error) in uniform.items()
        if error > 0
    ]
    names = _names(points, max((size for size, _ in line), default=1.0))
    figure = go.Figure()
    figure.add_scatter(
        x=[size for size, _ in line], y=[error for _, error in line], mode="lines+markers",
        name="a scheme per group", line={"color": INK[theme], "width": 1.5}, marker={"size": 4},
        hovertemplate=at,
    )  # fmt: skip
    figure.add_scatter(
        x=[size for _, size, _ in points], y=[error for _, _, error in points], mode="markers+text",
        name="one scheme for all", text=names, textposition="middle right",
        customdata=[scheme for scheme, _, _ in points], marker={"size": 9, "symbol": "diamond"},
        hovertemplate=f"%{{customdata}}<br>{at}",
    )  # fmt: skip
    _add_files(figure, files or {}, at, theme)
    if chosen is not None and chosen[1] > 0:
        ring = {"size": 15, "symbol": "circle-open", "color": INK[theme], "line": {"width": 2}}
        figure.add_scatter(
            x=[chosen[0] / 1e6], y=[chosen[1]], mode="markers",
            name="the choice within the budget", marker=ring, hovertemplate=at,
        )  # fmt: skip
    figure.update_layout(base_layout(theme, 360) | LEGEND_ABOVE)
    figure.update_xaxes(title={"text": "size of all weights (MB)"}, automargin=True)
    figure.update_layout(yaxis={"title": {"text": label}, "type": "log", "dtick": 1, "automargin": True})
    return figure


def _add_files(figure: go.Figure, files: Mapping[str, Point], at: str, theme: str) -> None:
    """Draw the file types of llama.cpp."""
    measured = [(name, size / 1e6, error) for name, (size, error) in files.items() if error > 0]
    others = sorted((size / 1e6, name) for name, (size, error) in files.items() if math.isnan(error))
    if measured:
        names, sizes, errors = zip(*measured, strict=True)
        figure.add_scatter(
            x=sizes, y=errors, mode="markers+text", name="llama.cpp's file types", text=names,
            textposition="bottom left", marker={"size": 9, "symbol": "square"},
            hovertemplate=f"%{{text}}<br>{at}",
        )  # fmt: skip
    if others:
        apart = 0.1 * max(size for trace in figure.data for size in trace.x or [0.0])
        shown, last = [], -math.inf
        for size, name in others:
            shown.append(name if size - last > apart else "")
            last = size if shown[-1] else last
        figure.add_scatter(
            x=[size for size, _ in others], y=[0.02] * len(others), yaxis="y2", mode="markers+text",
            name="llama.cpp's file types: sizes alone", text=shown, textposition="top center",
            customdata=[name for _, name in others],
            marker={"size": 12, "symbol": "line-ns", "line": {"width": 2, "color": INK[theme]}},
            hovertemplate="%{customdata}<br>%{x:.4g} MB<extra></extra>",
        )  # fmt: skip
        below = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
        figure.update_layout(yaxis2=below)


def _names(points: Sequence[tuple[str, float, float]], most: float) -> list[str]:
    """Return the names of schemes, empty where one would lie over another; the tooltips name all."""
    shown: list[tuple[float, float]] = []
    names = []
    for scheme, size, error in points:
        place = size / most, math.log10(error)
        free = all(abs(place[0] - x) > 0.5 or abs(place[1] - y) > 0.3 for x, y in shown)
        names.append(short_scheme(scheme) if free else "")
        shown += [place] if free else []
    return names
