"""How the values are spread, and which of them the codes can stand for."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import torch

from quantcore.figures.style import FILL, LINE, base_layout
from quantcore.formats import IntFormat
from quantcore.granularity import block_bounds
from quantcore.inputs import CHUNK
from quantcore.quantize import Quantized, decode

MAX_LINES = 64  # representable values drawn as lines; more become a rug
MAX_MARKS = 256  # marks of the rug; of more values only the span is shown

Array = npt.NDArray[Any]


def distribution(
    result: Quantized, block: tuple[int, ...] | None = None, *, log: bool = False, theme: str = "light"
) -> go.Figure:
    """Return the histogram of x with the values that the codes stand for drawn into it.

    Args:
        block: position in the grid of blocks: only its elements, and its values. By default all of x, and
            the values of the block with the largest scale.
        log: count on a logarithmic axis.
    """
    where = _widest(result) if block is None else block
    counts, edges = histogram(
        result.x if block is None else result.x.reshape(result.laid_shape)[_box(result, where)]
    )
    values = grid_values(result, where)
    low, high = _visible(edges, values)
    shown = values[(values >= low) & (values <= high)]
    bars = go.Bar(
        x=(edges[:-1] + edges[1:]) / 2,
        y=counts,
        width=np.diff(edges),
        marker={"color": FILL[theme], "line": {"width": 0}},
        hovertemplate="x near %{x:.4~g}: %{y} elements<extra></extra>",
    )
    layout = base_layout(theme, 340) | {
        "title": {
            "text": _title(result, block, where, len(shown)),
            "font": {"size": 13},
            "x": 0,
            "xref": "paper",
        },
        "xaxis": {"title": "value", "range": [low, high]},
        "yaxis": {"title": "elements", "type": "log" if log else "linear"},
        # for the rug: 0 of the first axis has no place when that is logarithmic
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "bargap": 0,
        "shapes": _marks(values, shown, theme),
    }
    return go.Figure([bars, *_rug(shown, theme)], layout)


def histogram(x: torch.Tensor, bins: int = 120) -> tuple[Array, Array]:
    """Return counts and edges of ``bins`` equal bins from the lowest to the highest finite element."""
    low, high = (float(v) for v in torch.aminmax(x))
    if not (math.isfinite(low) and math.isfinite(high)):
        x = x[x.isfinite()]
        low, high = (float(v) for v in torch.aminmax(x)) if len(x) else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    flat = x.reshape(-1)
    counts = np.zeros(bins, np.int64)
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK].cpu().numpy()
        # numpy subtracts the lowest in the array's own type, where the width of the range may not fit
        wide = high - low > float(np.finfo(part.dtype).max)
        counts += np.histogram(part.astype(np.float64) if wide else part, bins, (low, high))[0]
    return counts, np.linspace(low, high, bins + 1)


def grid_values(result: Quantized, block: tuple[int, ...]) -> Array:
    """Return (q - zero_point) * scale for every code of a block, float32, ascending."""
    fmt = result.scheme.format
    if not isinstance(fmt, IntFormat):
        table = fmt.table.numpy()
        stood_for: Array = np.unique(table[np.isfinite(table)]) * float(result.scale[block])
        return np.sort(stood_for)
    codes = torch.arange(fmt.qmin, fmt.qmax + 1)
    values = decode(
        codes, result.scale[block], result.params.zero_point[block], torch.empty(codes.shape), fmt
    )
    return values.cpu().numpy()


def _visible(edges: Array, values: Array) -> tuple[float, float]:
    """All elements, and the representable range as far as it is not much wider than they are."""
    span = edges[-1] - edges[0]
    low = max(min(edges[0], float(values[0])), edges[0] - span)
    high = min(max(edges[-1], float(values[-1])), edges[-1] + span)
    margin = 0.02 * (high - low)
    return low - margin, high + margin


def _marks(values: Array, shown: Array, theme: str) -> list[dict[str, Any]]:
    """The representable range as a shade, and its values as lines where they are few."""
    shade = {"type": "rect", "fillcolor": LINE[theme], "opacity": 0.1, "line": {"width": 0}}
    marks = [shade | {"x0": float(values[0]), "x1": float(values[-1]), "y0": 0, "y1": 1, "yref": "paper"}]
    line = {"type": "line", "line": {"color": LINE[theme], "width": 1}, "opacity": 0.75}
    if len(shown) <= MAX_LINES:
        marks += [line | {"x0": v, "x1": v, "y0": 0, "y1": 1, "yref": "paper"} for v in map(float, shown)]
    return marks


def _rug(shown: Array, theme: str) -> list[go.Scatter]:
    if not MAX_LINES < len(shown) <= MAX_MARKS:
        return []
    marker = {"symbol": "line-ns", "size": 9, "line": {"color": LINE[theme], "width": 1}}
    return [
        go.Scatter(
            x=shown,
            y=np.full(len(shown), 0.02),
            yaxis="y2",
            mode="markers",
            marker=marker,
            hovertemplate="x̂ %{x:.6~g}<extra></extra>",
        )
    ]


def _title(result: Quantized, block: tuple[int, ...] | None, where: tuple[int, ...], shown: int) -> str:
    fmt = result.scheme.format
    drawn = (
        "lines" if shown <= MAX_LINES else "ticks at the foot" if shown <= MAX_MARKS else "too close to draw"
    )
    values = f"the {fmt.available:,} values of {fmt} ({drawn}; their range is shaded)"
    if block is not None:
        return f"The block at {block}, and {values}"
    return f"All of x, and {values}" + (
        f" in the block with the largest scale, {where}" if result.scale.numel() > 1 else ""
    )


def _widest(result: Quantized) -> tuple[int, ...]:
    grid = tuple(result.scale.shape)
    return (
        tuple(int(i) for i in np.unravel_index(int(result.scale.reshape(-1).argmax()), grid)) if grid else ()
    )


def _box(result: Quantized, block: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(*bound) for bound in block_bounds(result.laid_shape, result.block, block))
