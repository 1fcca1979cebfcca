"""Plotly figures of results; the only module of quantcore that imports plotly.

Colours: original and dequantized share one scale, so that equal colours mean equal values; error is
diverging and centred on 0; codes span the format's full range. All palettes can be told apart by
colour-blind people. They are rgb() lists: Streamlit's front end replaces #000001 to #000040.
"""

import math
from typing import Any

import numpy as np
import plotly.colors
import plotly.graph_objects as go
import torch

from quantcore.granularity import block_bounds
from quantcore.inputs import CHUNK
from quantcore.metrics import block_errors
from quantcore.quantize import Quantized
from quantcore.views import MAX_CELLS, MapData, View, map_data

TITLES = {"x": "Original x", "codes": "Codes q", "dequantized": "Dequantized x̂", "error": "Error x - x̂"}
NUMBERS_UP_TO = 256  # cells; text costs more than all the rest of a map
MAX_LINES = 64  # representable values drawn as lines; more become a rug
_INK = {"light": "rgb(49,51,63)", "dark": "rgb(250,250,250)"}
_GRID = {"light": "rgba(49,51,63,0.12)", "dark": "rgba(250,250,250,0.15)"}
_ACCENT = {"light": "rgb(11,110,153)", "dark": "rgb(77,182,226)"}
_LINE = {"light": "rgb(179,88,6)", "dark": "rgb(253,184,99)"}


def palette(name: str) -> list[list[Any]]:
    """A palette as [[place, rgb()], …]: "diverging", "error", "codes" or "sequential"."""
    scales = {
        "diverging": plotly.colors.diverging.RdBu_r,
        "error": plotly.colors.diverging.PuOr_r,
        "codes": plotly.colors.sequential.Cividis,
        "sequential": plotly.colors.sequential.Viridis,
    }
    colours = plotly.colors.convert_colors_to_same_type(scales[name], colortype="rgb")[0]
    return [[i / (len(colours) - 1), colour] for i, colour in enumerate(colours)]


def scales_of_maps(data: MapData, result: Quantized) -> dict[str, dict[str, Any]]:
    """Return zmin, zmax and colorscale of each of the four maps."""
    low = float(min(data.x.min(), data.dequantized.min()))
    high = float(max(data.x.max(), data.dequantized.max()))
    if low < 0 < high:
        most = max(-low, high)
        values = {"zmin": -most, "zmax": most, "colorscale": palette("diverging")}
    else:
        values = {"zmin": low, "zmax": high if high > low else low + 1.0, "colorscale": palette("sequential")}
    most = float(np.abs(data.error).max()) or 1.0
    fmt = result.scheme.format
    return {
        "x": values,
        "codes": {"zmin": fmt.qmin, "zmax": fmt.qmax, "colorscale": palette("codes")},
        "dequantized": values,
        "error": {"zmin": -most, "zmax": most, "colorscale": palette("error")},
    }


def maps(
    result: Quantized,
    view: View | None = None,
    *,
    numbers: bool = True,
    borders: bool = False,
    columns: int = 4,
    theme: str = "light",
) -> go.Figure:
    """Return the four maps, original | codes | dequantized | error, in one figure with linked axes.

    Args:
        numbers: write the numbers into the cells, where there are at most 256.
        borders: draw where blocks begin.
        columns: 4 for a row, 2 for a square.
    """
    data = map_data(result, view)
    colours = scales_of_maps(data, result)
    rows = 4 // columns
    figure = go.Figure(layout=base_layout(theme, 300 * rows + 40))
    hover = np.stack(
        [
            data.row,
            data.column,
            data.x,
            data.codes,
            data.dequantized,
            data.error,
            data.scale,
            data.zero_point,
        ],
        -1,
    )
    for i, (name, title) in enumerate(TITLES.items()):
        domain_x, domain_y = _domain(i % columns, columns, 0.05), _domain(rows - 1 - i // columns, rows, 0.12)
        axis = str(i + 1) if i else ""
        values = getattr(data, name)
        figure.add_trace(
            go.Heatmap(
                z=values,
                x0=_first(data.columns, data.step[1]),
                dx=data.step[1],
                y0=_first(data.rows, data.step[0]),
                dy=data.step[0],
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                customdata=hover,
                hovertemplate=_HOVER,
                name=title,
                **colours[name],
                texttemplate=("%{z}" if name == "codes" else "%{z:.3~g}")
                if numbers and values.size <= NUMBERS_UP_TO
                else None,
                colorbar={
                    "x": domain_x[1],
                    "xpad": 4,
                    "thickness": 8,
                    "y": sum(domain_y) / 2,
                    "len": domain_y[1] - domain_y[0],
                    "nticks": 5,
                },
            )
        )
        match = {} if i == 0 else {"matches": "x"}
        figure.layout[f"xaxis{axis}"] = {
            "domain": domain_x,
            "anchor": f"y{axis}",
            "showgrid": False,
            "zeroline": False,
            **match,
        }
        match = {} if i == 0 else {"matches": "y"}
        figure.layout[f"yaxis{axis}"] = {
            "domain": domain_y,
            "anchor": f"x{axis}",
            "showgrid": False,
            "zeroline": False,
            "range": [data.rows[1] - 0.5, data.rows[0] - 0.5],
            **match,
        }
        figure.add_annotation(
            text=title,
            x=domain_x[0],
            y=domain_y[1],
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
        )
        if borders:
            _draw_borders(figure, data, axis, theme)
    return figure


_HOVER = (
    "row %{customdata[0]}, column %{customdata[1]}<br>x %{customdata[2]:.6~g}<br>q %{customdata[3]}"
    "<br>x̂ %{customdata[4]:.6~g}<br>error %{customdata[5]:.4~g}<br>scale %{customdata[6]:.6~g}"
    "<br>zero_point %{customdata[7]}<extra></extra>"
)


def base_layout(theme: str, height: int) -> dict[str, Any]:
    """A layout with a template of its own: Streamlit makes another one the default, whose colours only it replaces."""
    ink = {"color": _INK[theme]}
    axis = {
        "gridcolor": _GRID[theme],
        "linecolor": _GRID[theme],
        "zerolinecolor": _GRID[theme],
        "tickfont": ink,
    }
    return {
        "template": go.layout.Template(layout={"xaxis": axis, "yaxis": axis}),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": ink,
        "height": height,
        "margin": {"l": 44, "r": 12, "t": 32, "b": 36},
        "showlegend": False,
    }


def distribution(
    result: Quantized, block: tuple[int, ...] | None = None, *, log: bool = False, theme: str = "light"
) -> go.Figure:
    """Return the histogram of x with the values that the codes stand for drawn into it.

    Args:
        block: position in the grid of blocks: only its elements, and its values. By default all of x, and
            the values of the block with the largest scale.
        log: count on a logarithmic axis.
    """
    where = block if block is not None else _widest(result)
    x = result.x if block is None else result.x[_box(result, block)]
    counts, edges = histogram(x)
    grid, fmt = grid_values(result, where), result.scheme.format
    figure = go.Figure(layout=base_layout(theme, 340))
    figure.add_trace(
        go.Bar(
            x=(edges[:-1] + edges[1:]) / 2,
            y=counts,
            width=np.diff(edges),
            marker={"color": _ACCENT[theme], "line": {"width": 0}},
            hovertemplate="x near %{x:.4~g}: %{y} elements<extra></extra>",
        )
    )
    shown = grid[(grid >= edges[0] - (edges[-1] - edges[0])) & (grid <= edges[-1] + (edges[-1] - edges[0]))]
    if len(shown) <= MAX_LINES:
        for value in shown:
            figure.add_vline(x=float(value), line={"color": _LINE[theme], "width": 1}, opacity=0.75)
    else:
        figure.add_trace(
            go.Scatter(
                x=shown,
                y=np.zeros(len(shown)),
                mode="markers",
                hovertemplate="x̂ %{x:.6~g}<extra></extra>",
                marker={"symbol": "line-ns", "size": 9, "line": {"color": _LINE[theme], "width": 1}},
            )
        )
    if len(grid):
        figure.add_vrect(
            x0=float(grid[0]), x1=float(grid[-1]), fillcolor=_LINE[theme], opacity=0.08, line={"width": 0}
        )
    what = "all of x" if block is None else f"the block at {block}"
    figure.update_layout(
        title={
            "text": f"{what}, and the {fmt.available:,} values that {fmt} represents there (in the shaded range)",
            "font": {"size": 13},
        },
        xaxis_title="value",
        yaxis={"title": "elements", "type": "log" if log else "linear"},
        bargap=0,
    )
    return figure


def histogram(x: torch.Tensor, bins: int = 120) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and edges of ``bins`` equal bins from the lowest to the highest element."""
    low, high = (float(v) for v in torch.aminmax(x))
    if low == high:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    flat = x.reshape(-1)
    counts = np.zeros(bins, np.int64)
    for start in range(0, len(flat), CHUNK):
        counts += np.histogram(flat[start : start + CHUNK].cpu().numpy(), bins, (low, high))[0]
    return counts, np.linspace(low, high, bins + 1)


def grid_values(result: Quantized, block: tuple[int, ...]) -> np.ndarray:
    """Return (q - zero_point) * scale for every code of a block, float32, ascending."""
    fmt = result.scheme.format
    codes = np.arange(fmt.qmin, fmt.qmax + 1, dtype=np.int64)
    zero_point, scale = int(result.zero_point[block]), np.float32(result.scale[block].item())
    return (codes - zero_point).astype(np.float32) * scale


def scales(result: Quantized, *, theme: str = "light") -> go.Figure:
    """Return the scale of every block and its mean squared error, side by side as maps of the grid."""
    figure = go.Figure(layout=base_layout(theme, 320))
    for i, (title, values) in enumerate(
        {"scale": result.scale, "MSE of the block": block_errors(result)}.items()
    ):
        cells, step = _reduced(values.cpu().numpy().astype(np.float32))
        axis = "" if i == 0 else "2"
        domain = _domain(i, 2, 0.1)
        figure.add_trace(
            go.Heatmap(
                z=cells,
                dx=step[1],
                dy=step[0],
                x0=(step[1] - 1) / 2,
                y0=(step[0] - 1) / 2,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                colorscale=palette("sequential"),
                colorbar={"x": domain[1], "xpad": 4, "thickness": 8, "nticks": 5},
                hovertemplate=f"block (%{{y}}, %{{x}}): {title} %{{z:.5~g}}<extra></extra>",
            )
        )
        figure.layout[f"xaxis{axis}"] = {
            "domain": domain,
            "anchor": f"y{axis}",
            "title": "block",
            "showgrid": False,
            **_ticks(cells.shape[1], step[1]),
        }
        figure.layout[f"yaxis{axis}"] = {
            "anchor": f"x{axis}",
            "autorange": "reversed",
            "showgrid": False,
            **_ticks(cells.shape[0], step[0]),
        }
        note = "" if step == (1, 1) else f", largest of {step[0]} × {step[1]} blocks"
        figure.add_annotation(
            text=title + note,
            x=domain[0],
            y=1,
            xref="paper",
            yref="paper",
            xanchor="left",
            yanchor="bottom",
            showarrow=False,
        )
    return figure


def to_html(figure: go.Figure) -> str:
    """Return a page that opens offline: plotly.js is inside."""
    config = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, config=config)
    return page


def _domain(i: int, n: int, gap: float) -> list[float]:
    width = (1 - gap * n) / n
    return [i * (width + gap), i * (width + gap) + width]


def _first(span: tuple[int, int], step: int) -> float:
    """Middle of the first cell."""
    return span[0] + (step - 1) / 2


def _ticks(cells: int, step: int) -> dict[str, Any]:
    return {"dtick": 1} if cells * step <= 10 else {"nticks": 8}


def _draw_borders(figure: go.Figure, data: MapData, axis: str, theme: str) -> None:
    line = {"color": _INK[theme], "width": 1}
    for row in data.borders[0]:
        figure.add_shape(
            type="line",
            x0=data.columns[0] - 0.5,
            x1=data.columns[1] - 0.5,
            y0=row - 0.5,
            y1=row - 0.5,
            xref=f"x{axis}",
            yref=f"y{axis}",
            line=line,
        )
    for column in data.borders[1]:
        figure.add_shape(
            type="line",
            y0=data.rows[0] - 0.5,
            y1=data.rows[1] - 0.5,
            x0=column - 0.5,
            x1=column - 0.5,
            xref=f"x{axis}",
            yref=f"y{axis}",
            line=line,
        )


def _widest(result: Quantized) -> tuple[int, ...]:
    flat = int(result.scale.reshape(-1).argmax())
    return (
        tuple(int(i) for i in np.unravel_index(flat, tuple(result.scale.shape))) if result.scale.dim() else ()
    )


def _box(result: Quantized, block: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(*bound) for bound in block_bounds(tuple(result.x.shape), result.block, block))


def _reduced(values: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """A grid of any rank as a map of at most 256×256: leading axes become rows, cells show the largest."""
    plane = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values.reshape(1, -1)
    step = (math.ceil(plane.shape[0] / MAX_CELLS), math.ceil(plane.shape[1] / MAX_CELLS))
    short = tuple(-n % s for n, s in zip(plane.shape, step, strict=True))
    padded = np.pad(plane, ((0, short[0]), (0, short[1])), mode="edge")
    cells = padded.reshape(padded.shape[0] // step[0], step[0], padded.shape[1] // step[1], step[1])
    return cells.max((1, 3)), step
