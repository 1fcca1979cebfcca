"""The scale of every block, and the error that it causes."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.analysis import MAX_CELLS, Span, block_errors
from quantcore.figures.style import (
    FILL,
    LINE,
    base_layout,
    cell_places,
    color_bar,
    map_axis,
    palette,
    subplot_domain,
    title,
)
from quantcore.quantization import Quantized

Array = npt.NDArray[Any]


def scales(result: Quantized, *, theme: str = "light") -> go.Figure:
    """Return the scale of every block and its mean squared error, side by side.

    Blocks in a single row or column are drawn as bars, others as a map of the grid, in which leading axes
    become rows. Beyond 256 blocks per side, a cell shows the largest of several.
    """
    grid = tuple(result.scale.shape) or (1,)
    plane = (math.prod(grid[:-1]), grid[-1])
    bars = 1 in plane and max(plane) <= MAX_CELLS
    layout = base_layout(theme, 320) | {"annotations": [], "bargap": 0.1}
    traces = []
    columns = {"Scale": result.scale, "MSE": block_errors(result)}
    for i, (name, values) in enumerate(columns.items()):
        cells, row, column, step = largest(values.cpu().numpy().astype(np.float32).reshape(plane))
        axis = "2" if i else ""
        domain = subplot_domain(i, 2, 0.06 if bars else 0.1)
        index = [*np.unravel_index(row, grid[:-1]), column] if len(grid) > 1 else [column]
        places = np.stack([np.asarray(n, np.int32) for n in index], -1)
        at = ", ".join(f"%{{customdata[{n}]}}" for n in range(len(index)))
        hover = f"block ({at})<br>{name} %{{{'y' if bars else 'z'}:.5~g}}<extra></extra>"
        common = {"xaxis": f"x{axis}", "yaxis": f"y{axis}", "hovertemplate": hover}
        if bars:
            marker = {"color": (LINE if i else FILL)[theme], "line": {"width": 0}}
            flat = places.reshape(cells.size, -1)
            traces.append(go.Bar(y=cells.reshape(-1), customdata=flat, marker=marker, **common))
        else:
            common |= cell_places(step) | {"colorscale": palette("sequential"), "colorbar": color_bar(domain)}
            traces.append(go.Heatmap(z=cells, customdata=places, **common))
        many = "" if step == (1, 1) else f", the largest of {step[0]} × {step[1]} blocks"
        layout["annotations"].append(title(f"{name} of each block{many}", domain[0], 1))
        rows, columns = (n * many for n, many in zip(cells.shape, step, strict=True))
        across = map_axis(f"y{axis}", (0, cells.size if bars else columns), domain)
        down = {"anchor": f"x{axis}"} if bars else map_axis(f"x{axis}", (rows, 0))
        layout[f"xaxis{axis}"] = across | {"title": "block"}
        layout[f"yaxis{axis}"] = down | {"rangemode": "tozero"}
    return go.Figure(traces, layout)


def largest(values: Array) -> tuple[Array, Array, Array, Span]:
    """Reduce a plane to at most 256×256 cells.

    Return the largest value of each cell, its row and column in the plane, and how many elements (down,
    across) a cell represents.
    """
    step = (-(-values.shape[0] // MAX_CELLS), -(-values.shape[1] // MAX_CELLS))
    short = [(0, -n % s) for n, s in zip(values.shape, step, strict=True)]
    padded = np.pad(values, short, constant_values=-np.inf)  # no value is that low
    rows, columns = padded.shape[0] // step[0], padded.shape[1] // step[1]
    cells = padded.reshape(rows, step[0], columns, step[1]).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    place = cells.argmax(-1)
    row = np.arange(rows)[:, None] * step[0] + place // step[1]
    column = np.arange(columns) * step[1] + place % step[1]
    return cells.max(-1), row, column, step
