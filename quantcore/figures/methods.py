"""Methods that reduce the error of a layer's output: side by side, and what each of them does."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.analysis import decibels
from quantcore.figures.style import (
    DIM,
    FILL,
    INK,
    LEGEND_ABOVE,
    LINE,
    base_layout,
    cell_places,
    color_bar,
    line_at,
    map_axis,
    numbers_in_cells,
    palette,
    title,
)
from quantcore.outputs import METHODS, NEAREST, AwqStep, Compensated, MethodOutput, TokensPoint
from quantcore.wording import difference

Array = npt.NDArray[Any]
BEFORE, AFTER = "before", "after"
_COLORS = ("rgb(213,94,0)", "rgb(0,158,115)", "rgb(86,160,210)", "rgb(204,121,167)")
_ROW, _LEAST_ROW = 20, 13  # px of a row of cells, and with which numbers are legible
_NAMES = ("w", "update")
_TITLES = (
    "w: done on the left, open on the right",
    "Added to the open columns",
)
_NO_ELEMENT = 0.5  # where a logarithmic axis begins
_GAP = 0.16  # between two charts side by side, of the width


def methods(outputs: Sequence[MethodOutput], *, theme: str = "light") -> go.Figure:
    """Return the output's SQNR of every method as bars, in the order given, the first one on top.

    Methods whose weights take other bits are drawn faint; refused ones are left out.
    """
    shown = [found for found in outputs if math.isfinite(found.sqnr_db)][::-1]
    base = next((found.sqnr_db for found in shown if found.method == NEAREST), math.nan)
    names = [METHODS[found.method] + ("" if found.equal_bits else "*") for found in shown]
    bars = go.Bar(
        y=names,
        x=[found.sqnr_db for found in shown],
        orientation="h",
        text=[_beside(found, base) for found in shown],
        textposition=["outside" if found.sqnr_db >= 0 else "none" for found in shown],
        cliponaxis=False,
        marker={"color": [_color(found, theme) for found in shown]},
        hovertemplate="%{y}: %{text}<extra></extra>",
    )
    top = max((found.sqnr_db for found in shown), default=1.0)
    low = min([0.0, *(found.sqnr_db for found in shown)])
    layout = base_layout(theme, 76 + 34 * max(len(shown), 1)) | {
        "xaxis": {"title": "output SQNR (dB)", "range": [low, low + 1.42 * max(top - low, 1.0)]},
        "yaxis": {"showgrid": False, "automargin": True},
        "margin": {"l": 44, "r": 12, "t": 8, "b": 54},
        "bargap": 0.3,
    }
    # to the right of 0, as the names of the methods are on the left
    negative = [
        (name, _beside(found, base)) for name, found in zip(names, shown, strict=True) if found.sqnr_db < 0
    ]
    texts = go.Scatter(
        x=[0.0] * len(negative),
        y=[name for name, _ in negative],
        text=[f" {text}" for _, text in negative],
        mode="text",
        textposition="middle right",
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )
    return go.Figure([bars, texts] if negative else [bars], layout)


def _beside(found: MethodOutput, base: float) -> str:
    more = "" if found.method == NEAREST or math.isnan(base) else f" ({difference(found.sqnr_db, base):+.1f})"
    return (decibels(found.sqnr_db) + more).replace("-", "−")


def _color(found: MethodOutput, theme: str) -> str:
    if not found.equal_bits:
        return DIM[theme]
    return LINE[theme] if found.method == NEAREST else FILL[theme]


def channel_maxima(charts: Mapping[str, Mapping[str, Array]], *, theme: str = "light") -> go.Figure:
    """Return the largest magnitude of every input channel, before and after, of several matrices.

    Args:
        charts: what is measured, such as "max|x|" -> name -> one number per input channel.
    """
    traces, layout, n = [], _beside_each_other(list(charts), theme), len(charts)
    for i, series in enumerate(charts.values(), 1):
        for (name, values), color in zip(series.items(), (LINE[theme], FILL[theme]), strict=False):
            common: dict[str, Any] = {"x": np.arange(len(values)), "y": values, "name": name}
            common |= {"xaxis": f"x{i}", "yaxis": f"y{i}", "legendgroup": name, "showlegend": i == 1}
            common["hovertemplate"] = "channel %{x}: %{y:.4~g}<extra>" + name + "</extra>"
            if len(values) <= 64:
                traces.append(go.Bar(marker={"color": color}, **common))
            else:
                traces.append(go.Scatter(mode="lines", line={"color": color, "width": 1}, **common))
        layout[f"xaxis{i}"] |= {"title": "input channel"}
        layout[f"yaxis{i}"] |= {"rangemode": "tozero", "automargin": n == 1}
    return go.Figure(traces, layout | {"bargap": 0.2, "bargroupgap": 0.05})


def histograms(charts: Mapping[str, Mapping[str, tuple[Array, Array]]], *, theme: str = "light") -> go.Figure:
    """Return the elements before and after, by counts and edges, of several matrices, logarithmic.

    Where there are none, the line is at the bottom, half an element.
    """
    traces, layout = [], _beside_each_other(list(charts), theme)
    for i, series in enumerate(charts.values(), 1):
        for (name, (counts, edges)), color in zip(series.items(), (LINE[theme], FILL[theme]), strict=False):
            traces.append(
                go.Scatter(
                    x=np.repeat(edges, 2)[1:-1],
                    y=np.repeat(np.maximum(counts, _NO_ELEMENT), 2),
                    customdata=np.repeat(counts, 2),
                    name=name,
                    mode="lines",
                    line={"color": color, "width": 2},
                    xaxis=f"x{i}",
                    yaxis=f"y{i}",
                    legendgroup=name,
                    showlegend=i == 1,
                    hovertemplate="near %{x:.4~g}: %{customdata} elements<extra>" + name + "</extra>",
                )
            )
        layout[f"xaxis{i}"] |= {"title": "value"}
        most = max(float(counts.max()) for counts, _ in series.values())
        layout[f"yaxis{i}"] |= {
            "type": "log",
            "dtick": 1,
            "range": np.log10([_NO_ELEMENT, 1.5 * max(most, 1)]),
        }
    return go.Figure(traces, layout)


def _beside_each_other(names: Sequence[str], theme: str, height: int = 300) -> dict[str, Any]:
    """Return a layout of charts side by side, each with its name above it."""
    n, found = len(names), base_layout(theme, height)
    width = (1 - _GAP * (n - 1)) / n
    found["annotations"] = []
    for i, name in enumerate(names, 1):
        left = (i - 1) * (width + _GAP)
        found[f"xaxis{i}"] = {"domain": [left, left + width], "anchor": f"y{i}"}
        found[f"yaxis{i}"] = {"anchor": f"x{i}", "automargin": i == 1}
        found["annotations"].append(title(name, left, 1.0))
    found["margin"] = {"l": 44, "r": 12, "t": 52, "b": 40}
    legend = {"orientation": "h", "y": 1.1, "yanchor": "bottom", "x": 1, "xanchor": "right"}
    return found | {"showlegend": True, "legend": legend}


def awq_search(steps: Sequence[AwqStep], *, theme: str = "light") -> go.Figure:
    """Return the output's error of every ratio that AWQ tried, its minimum marked.

    If it tried clipping thresholds, their errors are next to it, summed over all groups.
    """
    ratios = [step for step in steps if step.losses is None]
    clipped = [step for step in steps if step.losses is not None]
    names = ["Error by ratio", *(["by threshold"] if clipped else [])]
    layout = _beside_each_other(names, theme)
    best = min(ratios, key=lambda step: step.loss)
    traces = _searched([s.ratio for s in ratios], [s.loss for s in ratios], best.ratio, 1, theme)
    layout["xaxis1"] |= {"title": "ratio r of s = mean|x|^r"}
    layout["yaxis1"] |= {"title": "mean squared error of the output"} | _room_below([s.loss for s in ratios])
    if clipped:
        at = [100 * s.fraction for s in clipped]
        sums = [float(s.losses.sum()) / len(s.losses) for s in clipped if s.losses is not None]
        traces += _searched(at, sums, at[int(np.argmin(sums))], 2, theme)
        layout["xaxis2"] |= {"title": "threshold, % of max|w·s|"}
        layout["yaxis2"] |= _room_below(sums)
    return go.Figure(traces, layout | {"showlegend": False})


def _room_below(values: Sequence[float]) -> dict[str, Any]:
    """Return a range from 0 with room for a line of text below the least value."""
    most = max(values, default=0.0) or 1.0
    return {"range": [-0.16 * most, 1.06 * most]}


def _searched(x: list[float], y: list[float], best: float, i: int, theme: str) -> list[go.Scatter]:
    at = {"xaxis": f"x{i}", "yaxis": f"y{i}"}
    least = y[x.index(best)]
    hover = "%{x:.4~g}: %{y:.4~g}<extra></extra>"
    line = go.Scatter(
        x=x, y=y, mode="lines+markers", line={"color": FILL[theme], "width": 2}, hovertemplate=hover, **at
    )
    chosen = go.Scatter(
        x=[best],
        y=[least],
        mode="markers+text",
        text=[f"{least:.3g} at {best:.3g}"],
        textposition="bottom right" if best <= (min(x) + max(x)) / 2 else "bottom left",
        cliponaxis=False,
        marker={"color": LINE[theme], "size": 12},
        name="least error",
        hovertemplate=hover,
        **at,
    )
    return [line, chosen]


def gptq_column(found: Compensated, index: int, *, theme: str = "light", width: float = 560) -> go.Figure:
    """Return the weight while GPTQ codes a column, and below it what it adds to the columns that follow.

    Columns are in the order of processing: those on the left of the frame are quantized.

    Args:
        index: the place of the column in that order.
        width: of a map in px, which decides whether numbers fit.
    """
    step = found.steps[index]
    before = found.weight_before(index).numpy()
    update = np.full(before.shape, np.nan, np.float32)
    update[:, index + 1 :] = step.update.numpy()
    rows, columns = before.shape
    high = min(max(_ROW * rows, 100), 230)  # px of a map
    height = 2 * high + 140
    plot = height - 76
    layout = base_layout(theme, height) | {"annotations": [], "shapes": []}
    traces: list[Any] = []
    maps = ((before, "diverging", 1 - high / plot), (update, "error", 0.0))
    for i, (cells, colors, bottom) in enumerate(maps, 1):
        bound = float(np.nanmax(np.abs(cells), initial=0.0)) or 1.0
        at = {"xaxis": f"x{i}", "yaxis": f"y{i}", **cell_places((1, 1))}
        at |= {"zmin": -bound, "zmax": bound, "colorscale": palette(colors, theme)}
        bar = color_bar([0, 1], len=high / plot, y=bottom + high / plot / 2)
        hover = f"row %{{y}}, column %{{x}}: %{{z:.5~g}}<extra>{_NAMES[i - 1]}</extra>"
        traces.append(go.Heatmap(z=cells, colorbar=bar, name=_NAMES[i - 1], hovertemplate=hover, **at))
        if high / rows >= _LEAST_ROW:
            traces += numbers_in_cells(cells, "{:z.2f}", at, width)
        layout[f"xaxis{i}"] = map_axis(f"y{i}", (0, columns)) | _ticks(found.order.tolist())
        layout[f"yaxis{i}"] = map_axis(f"x{i}", (rows, 0), [bottom, bottom + high / plot])
        layout["annotations"].append(title(_TITLES[i - 1], 0, bottom + high / plot))
        layout["shapes"] += _frames(index, rows, i, theme)
    return go.Figure(traces, layout | {"margin": {"l": 32, "r": 12, "t": 30, "b": 46}})


def _ticks(order: list[int]) -> dict[str, Any]:
    """Label the places of processing with the columns of w, if they differ and fit."""
    if order == sorted(order) or len(order) > 32:
        return {}
    return {"tickmode": "array", "tickvals": list(range(len(order))), "ticktext": [str(c) for c in order]}


def _frames(index: int, rows: int, i: int, theme: str) -> list[dict[str, Any]]:
    """Return the frame of the column that is coded, and a dimmed area where all are done."""
    at = {"type": "rect", "xref": f"x{i}", "yref": f"y{i}", "y0": -0.5, "y1": rows - 0.5}
    frame = {**at, "x0": index - 0.5, "x1": index + 0.5, "line": {"color": LINE[theme], "width": 3}}
    if not index:
        return [frame]
    line = {"color": DIM[theme], "width": 1}
    return [{**at, "x0": -0.5, "x1": index - 0.5, "line": line}, frame]


def outlier_columns(largest: Array, threshold: float, *, theme: str = "light") -> go.Figure:
    """Return the largest magnitude of every column of x, those of LLM.int8's outliers in another color."""
    kept = largest >= threshold
    traces = [
        go.Bar(
            x=np.flatnonzero(mask),
            y=largest[mask],
            name=name,
            marker={"color": color},
            hovertemplate="channel %{x}: max|x| %{y:.4~g}<extra></extra>",
        )
        for mask, name, color in ((~kept, "int8", FILL[theme]), (kept, "kept in 16 bits", LINE[theme]))
    ]
    layout = base_layout(theme, 300) | LEGEND_ABOVE
    layout |= {
        "xaxis": {"title": "input channel", "range": [-0.6, len(largest) - 0.4]},
        "yaxis": {"title": "max|x|", "rangemode": "tozero"},
        "shapes": [line_at("y", threshold, {"color": INK[theme], "width": 1, "dash": "dash"})],
        "bargap": 0.2,
    }
    return go.Figure(traces, layout)


def cache_granularities(found: Mapping[str, tuple[float, float]], *, theme: str = "light") -> go.Figure:
    """Return the output's SQNR with keys, and with values, quantized per token and per channel."""
    traces = [
        go.Bar(
            x=["keys", "values"],
            y=list(pair),
            name=name,
            text=[decibels(value).removesuffix(" dB") for value in pair],
            textposition="outside",
            cliponaxis=False,
            marker={"color": color},
            hovertemplate="%{x} " + name + ": %{y:.2f} dB<extra></extra>",
        )
        for (name, pair), color in zip(found.items(), (LINE[theme], FILL[theme]), strict=False)
    ]
    finite = [value for pair in found.values() for value in pair if math.isfinite(value)]
    layout = base_layout(theme, 300) | LEGEND_ABOVE
    top = max([1.0, *finite])
    layout |= {"yaxis": {"title": "SQNR of the output (dB)", "range": [min([0.0, *finite]), 1.18 * top]}}
    return go.Figure(traces, layout | {"bargap": 0.3})


def cached_keys(keys: Array, *, theme: str = "light") -> go.Figure:
    """Return the keys of a head as a map, [tokens, channels]."""
    bound = float(np.abs(keys).max(initial=0.0)) or 1.0
    heatmap = go.Heatmap(
        z=keys,
        zmin=-bound,
        zmax=bound,
        colorscale=palette("diverging", theme),
        colorbar=color_bar([0, 1]),
        name="keys",
        hovertemplate="token %{y}, channel %{x}: %{z:.4~g}<extra>k</extra>",
    )
    rows, columns = keys.shape
    layout = base_layout(theme, 300) | {"annotations": [title("Keys", 0, 1.0)]}
    layout |= {
        "xaxis": map_axis("y", (0, columns)) | {"title": "channel"},
        "yaxis": map_axis("x", (rows, 0)) | {"title": "token"},
    }
    return go.Figure(heatmap, layout)


def tokens_curve(points: Sequence[TokensPoint], nearest: float, *, theme: str = "light") -> go.Figure:
    """Return the SQNR of each method against how many tokens it was calibrated with.

    Args:
        nearest: that of rounding to nearest, which needs none.
    """
    names = list(dict.fromkeys(point.method for point in points))
    traces = [
        go.Scatter(
            x=[p.tokens for p in points if p.method == name],
            y=[p.sqnr_db if math.isfinite(p.sqnr_db) else None for p in points if p.method == name],
            mode="lines+markers",
            name=METHODS[name],
            line={"color": color, "width": 2},
            hovertemplate="%{x} tokens: %{y:.2f} dB<extra>" + METHODS[name] + "</extra>",
        )
        for name, color in zip(names, _COLORS, strict=False)
    ]
    counts = sorted({point.tokens for point in points})
    if math.isfinite(nearest) and counts:
        ends, line = [counts[0], counts[-1]], {"color": DIM[theme], "width": 2, "dash": "dot"}
        traces.append(go.Scatter(x=ends, y=[nearest] * 2, mode="lines", name=METHODS[NEAREST], line=line))
    labels = {"tickvals": counts, "ticktext": [f"{count:,}" for count in counts]}
    layout = base_layout(theme, 300) | LEGEND_ABOVE
    layout |= {
        "xaxis": {"title": "calibration tokens", "type": "log", **labels},
        "yaxis": {"title": "SQNR of the output (dB)"},
    }
    return go.Figure(traces, layout)
