"""Figures of whole checkpoints: how much tensors differ, error against size, treemaps, colors of a table."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import Leaf, Tile, decibels
from quantcore.figures.style import (
    DIM,
    FAINT,
    INK,
    LEGEND_ABOVE,
    base_layout,
    colors_at,
    inks_on,
    palette,
    short_scheme,
)
from quantcore.figures.typography import SMALL
from quantcore.wording import count as count_of
from quantcore.wording import printable

if TYPE_CHECKING:
    import pandas as pd

# metric -> its label, and whether larger is better (1) or worse (-1)
HARM_AXES = {
    "sqnr_db": ("SQNR (dB)", 1),
    "mse": ("MSE", -1),
    "max_abs_error": ("max |error|", -1),
    "cosine": ("cosine similarity", 1),
}
_HARM_BITS = (2, 3, 4, 6, 8, 16, 32)  # on the color bar
_SMALLEST, _LARGEST = 5.0, 30.0  # diameter of a circle in px
_WIDTH = 2400.0  # px over which circles are spread, with some overlap
_SPAN = 4.0  # smallest span of the axis in dB: smaller differences should not look large
_NAME = 90  # characters
_FEW, _TICK = 12, 36  # up to this many tensors are bars, with names of this many characters
ALIKE = 1.1  # bits per weight that differ by less than this factor have one color
_THICK, _HIGH = 26, 214  # px: the thickest bar, and the height of the plot
Point = tuple[float, float]  # bytes, summed error
_BITS = (2, 3, 4, 6, 8, 16)  # on the color bar
_LABEL = 40  # characters
_PAGE = {"light": "rgb(255,255,255)", "dark": "rgb(23,22,20)"}


def harm(
    frame: "pd.DataFrame",
    metric: str = "sqnr_db",
    *,
    order: str = "",
    worst_first: bool = False,
    theme: str = "light",
) -> go.Figure:
    """Return each tensor as a circle, in the order of the rows; area is bytes, color is bits per weight.

    A few are bars with their names, except for the cosine similarity, whose bars would all look alike; if the
    worst come first, these are, and one more bar spans the others, from the smallest to the largest. Errors
    of 0 are not drawn, nor tensors without a finite metric. The customdata of a circle or bar is its row's
    index.

    Args:
        frame: with the columns "tensor", "bytes", "bits_per_weight", "sqnr_db" and ``metric``.
        order: how the tensors are sorted, such as "largest error first"; then ``meta`` of the layout says how
            many are drawn, in this order, and how many are not: a line that is too long for an axis's title.
        worst_first: whether the rows are in the order of `by_harm`.
    """
    values = frame[metric].to_numpy(float)
    drawn = np.isfinite(values) & ((values > 0) | (metric in ("sqnr_db", "cosine")))
    places = np.flatnonzero(drawn)
    alike = _alike(frame.iloc[places]["bits_per_weight"].to_numpy(float))
    layout = _layout(metric, order, alike, len(places), len(frame), theme)
    as_bars = metric != "cosine" and (worst_first or len(places) <= _FEW)
    places, others = (places[:_FEW], values[places[_FEW:]]) if as_bars else (places, values[:0])
    shown = frame.iloc[places]
    colors = {
        "color": np.log2(np.clip(shown["bits_per_weight"].to_numpy(float), 1, 64)),
        "colorscale": palette("sequential", theme),
        "cmin": math.log2(_HARM_BITS[0]),
        "cmax": math.log2(_HARM_BITS[-1]),
        "line": {"width": 1, "color": DIM[theme]},
        "colorbar": {
            "thickness": 10,
            "tickvals": [math.log2(b) for b in _HARM_BITS],
            "ticktext": [str(b) for b in _HARM_BITS],
            "title": {"text": "bits per weight", "side": "right"},
            "outlinewidth": 0,
        },
        "showscale": not alike,
    }
    told: dict[str, Any] = {
        "customdata": places.tolist(),
        "text": [_harm_tooltip(row, metric) for row in shown.to_dict("records")],
        "hovertemplate": "%{text}<extra></extra>",
    }
    if as_bars:
        figure = _bars(values[places], list(shown["tensor"]), colors, told, layout)
        return _with_others(figure, others, metric, theme)
    sizes = np.sqrt(
        shown["bytes"].to_numpy(float) / max(1.0, float(shown["bytes"].max() if len(shown) else 1))
    )
    largest = min(_LARGEST, max(10.0, _WIDTH / max(1, len(places))))  # px
    marker = colors | {"size": _SMALLEST + (largest - _SMALLEST) * sizes, "opacity": 0.8}
    x, y = list(range(len(places))), values[places].tolist()
    trace = go.Scatter(x=x, y=y, mode="markers", marker=marker, **told)
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
        x=values.tolist(), y=list(range(n)), orientation="h", width=thickness, marker=colors,
        textposition="none", **told,
    )  # fmt: skip
    metric = layout["yaxis"]
    layout["yaxis"] = {
        "tickvals": list(range(n)), "ticktext": [_tick(name) for name in names], "range": [n - 0.5, -0.5],
        "showgrid": False, "zeroline": False, "automargin": True,
    }  # fmt: skip
    layout["xaxis"] = {"title": {"text": metric["title"]}, "zeroline": True}
    return go.Figure([trace], layout)


def _with_others(figure: go.Figure, others: np.ndarray, metric: str, theme: str) -> go.Figure:
    """Add a bar below that spans these values."""
    if not others.size:
        return figure
    low, high, n = float(others.min()), float(others.max()), len(figure.data[0].y)
    told = f"{count_of(len(others), 'other tensor')}: {HARM_AXES[metric][0]} from {low:.4g} to {high:.4g}"
    figure.add_bar(
        x=[high - low], base=[low], y=[n], orientation="h", width=0.35, textposition="none", text=[told],
        hovertemplate="%{text}<extra></extra>", showlegend=False,
        marker={"color": FAINT[theme], "line": {"width": 1, "color": DIM[theme]}},
    )  # fmt: skip
    axis = figure.layout.yaxis
    words = [*axis.ticktext, f"{len(others):,} more"]
    axis.update(tickvals=[*axis.tickvals, n], ticktext=words, range=[n + 0.5, -0.5])
    return figure


def _harm_tooltip(row: dict[str, Any], metric: str) -> str:
    lines = [f"<b>{shown(str(row['tensor']), _NAME)}</b>", f"SQNR {decibels(row['sqnr_db'])}"]
    if metric != "sqnr_db":
        lines.append(f"{HARM_AXES[metric][0]} {row[metric]:.4g}")
    return "<br>".join([*lines, f"{row['bits_per_weight']:.4g} bits per weight, {row['bytes']:,} bytes"])


def _layout(metric: str, order: str, alike: str, n: int, count: int, theme: str) -> dict[str, Any]:
    layout = base_layout(theme, 272) | {"margin": {"l": 60, "r": 8, "t": 8, "b": 46}}
    left = count - n
    more = f"; {left:,} more {'is' if left == 1 else 'are'} exact or not finite" if left else ""
    layout["meta"] = f"{count_of(n, 'tensor')}{alike}, {order}{more}" if order else ""
    layout["xaxis"] = {
        "showticklabels": False, "showgrid": False, "zeroline": False,
        "range": [-0.02 * n - 0.5, 1.02 * n - 0.5],
    }  # fmt: skip
    layout["yaxis"] = {"title": HARM_AXES[metric][0], "type": "linear", "zeroline": metric == "sqnr_db"}
    if metric in ("mse", "max_abs_error"):
        layout["yaxis"] |= {"type": "log"}
    layout["hoverlabel"] = _hover(theme)
    return layout


def _alike(bits: np.ndarray) -> str:
    """Return how many bits per weight all have, if a color bar would show one color; empty otherwise."""
    if not bits.size or bits.max() > ALIKE * bits.min():
        return ""
    low, high = f"{bits.min():.3g}", f"{bits.max():.3g}"
    return f" of {low if low == high else f'{low} to {high}'} bits per weight"


def _hover(theme: str) -> dict[str, Any]:
    """Return the tooltip's style: on the page's colour, since the ink is unreadable on a mark's own."""
    font = {"color": INK[theme]}
    return {"align": "left", "bordercolor": DIM[theme], "bgcolor": _PAGE[theme], "font": font}


def _tick(name: str) -> str:
    """Return the end of a name, its most telling part."""
    short = name.removesuffix(".weight")
    return html.escape(short if len(short) <= _TICK else f"…{short[1 - _TICK :].lstrip('.')}")


def layer_colors(sqnr_db: Sequence[Sequence[float]]) -> list[list[str]]:
    """Return the CSS of each cell: its color, and the ink that is read best on it.

    Args:
        sqnr_db: of shape (weights, schemes); cells without a number get no color, those without an error that
            of the highest number.
    """
    values = np.array(sqnr_db, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scale = [[1 - place, color] for place, color in reversed(palette("sequential"))]
    colors = colors_at(np.nan_to_num(values, nan=low, posinf=high, neginf=low), low, high, scale)
    return [
        ["" if np.isnan(value) else f"background:rgb({r},{g},{b});color:{ink}"
         for value, (r, g, b), ink in zip(row, own.tolist(), inks_on(own), strict=True)]
        for row, own in zip(values, colors, strict=True)
    ]  # fmt: skip


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


def treemap(
    tiles: Sequence[Tile],
    leaves: Sequence[Leaf],
    facts: Mapping[int, str] | None = None,
    *,
    title: str = "",
    values: Mapping[str, float] | None = None,
    unit: str = "",
    bounds: tuple[float, float] | None = None,
    theme: str = "light",
    height: int = 460,
) -> go.Figure:
    """Return a treemap; the customdata of a tile is the index of its leaf, -1 if there are several.

    Args:
        facts: index of a leaf -> lines for its tooltip.
        title: of the root tile.
        values: name of a leaf -> the value that colors it, such as its SQNR; by default bits per element.
        unit: of the values, shown above the color bar.
        bounds: the values at the ends of the colors; by default the least and the largest of the values.
    """
    colors, bar = _bits(tiles) if values is None else _values(tiles, leaves, values, unit, bounds)
    trace = go.Treemap(
        ids=[str(i) for i in range(len(tiles))],
        parents=["" if tile.parent < 0 else str(tile.parent) for tile in tiles],
        labels=[shown(title if i == 0 else _telling(tile)) for i, tile in enumerate(tiles)],
        values=[tile.size for tile in tiles],
        branchvalues="total",
        customdata=[-1 if tile.leaf is None else tile.leaf for tile in tiles],
        text=[_tooltip(tile, facts or {}) for tile in tiles],
        textinfo="label",
        hovertemplate="%{text}<extra></extra>",
        marker={
            "colors": colors,
            "showscale": True,
            "line": {"width": 1.5, "color": _PAGE[theme]},
            "pad": {"t": 24, "l": 2, "r": 2, "b": 2},
            **bar,
        },
        pathbar={"visible": True, "thickness": 20},
        tiling={"packing": "squarify", "pad": 1},
        root={"color": FAINT[theme]},
        sort=False,
        outsidetextfont={"color": INK[theme]},
    )
    layout = base_layout(theme, height) | {"margin": {"l": 0, "r": 0, "t": 22, "b": 2}}
    layout["hoverlabel"] = _hover(theme)
    layout["uniformtext"] = {"minsize": SMALL, "mode": "hide"}
    return go.Figure([trace], layout)


def _telling(tile: Tile) -> str:
    """Return the label of a tile; one that says little, "0" or "weight", has the name before it."""
    known = tile.path.removesuffix(tile.label).rstrip(".").rpartition(".")[2]
    says_little = tile.label.isdigit() or (tile.leaf is not None and "." not in tile.label)
    return f"{known}.{tile.label}" if says_little and known and not tile.folded else tile.label


def shown(text: str, most: int = _LABEL) -> str:
    """Escape a name so that Plotly draws it literally, and shorten it to fit.

    >>> shown("<b>a</b>")
    '&lt;b&gt;a&lt;/b&gt;'
    """
    return html.escape(printable(text, most), quote=False)


def _tooltip(tile: Tile, facts: Mapping[int, str]) -> str:
    """Return the tooltip of a tile."""
    name = shown(tile.path, 90) if not tile.folded else shown(f"{tile.path}: {tile.label}", 90)
    lines = [f"<b>{name}</b>"] if name else []
    if tile.leaf is not None and tile.leaf in facts:
        return "<br>".join([*lines, *(shown(line, 90) for line in facts[tile.leaf].split("\n"))])
    bits = f", {8 * tile.size / tile.elements:.4g} bits per weight" if tile.elements else ""
    return "<br>".join([*lines, f"{tile.leaves:,} tensors, {tile.size:,} bytes{bits}"])


def _bits(tiles: Sequence[Tile]) -> tuple[list[float | None], dict[str, Any]]:
    """Bits per element on a logarithmic scale from 2 to 16."""
    found = [
        math.log2(min(max(8 * tile.size / tile.elements, 1), 32)) if tile.elements and tile.size else None
        for tile in tiles
    ]
    ends = math.log2(_BITS[0]) - 0.2, math.log2(_BITS[-1])
    places = {
        "tickvals": [math.log2(b) for b in _BITS],
        "ticktext": [*(str(b) for b in _BITS[:-1]), f"≥{_BITS[-1]}"],
    }
    return found, _scale(ends, palette("sequential"), places, "bits")


def _values(
    tiles: Sequence[Tile],
    leaves: Sequence[Leaf],
    values: Mapping[str, float],
    unit: str,
    bounds: tuple[float, float] | None,
) -> tuple[list[float | None], dict[str, Any]]:
    """Return the values of leaves; a tile that stands for several has none."""
    found = [values.get(leaves[tile.leaf].name) if tile.leaf is not None else None for tile in tiles]
    known = np.array([v for v in found if v is not None and math.isfinite(v)] or [0.0, 1.0])
    low, high = bounds or (float(known.min()), float(known.max()))
    found = [None if v is None or math.isnan(v) else min(max(v, low), high) for v in found]
    return found, _scale((low, high if high > low else low + 1), palette("patterns"), {}, unit)


def _scale(
    ends: tuple[float, float], colors: list[list[Any]], ticks: dict[str, Any], unit: str
) -> dict[str, Any]:
    place = {"thickness": 10, "xpad": 4, "ypad": 0, "len": 0.9, "outlinewidth": 0}
    bar = place | ticks | {"title": {"text": unit, "side": "top"}}
    return {"colorscale": colors, "cmin": ends[0], "cmax": ends[1], "colorbar": bar}
