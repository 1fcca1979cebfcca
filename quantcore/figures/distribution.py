"""How the values are distributed, and which values the codes represent."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go
import torch

from quantcore.analysis import blocks
from quantcore.figures.style import DIM, FILL, LINE, band_at, base_layout, line_at
from quantcore.formats import IntFormat
from quantcore.granularity import block_name
from quantcore.numerics import CHUNK
from quantcore.qparams import unscale
from quantcore.quantization import Quantized
from quantcore.wording import sentence

MAX_LINES = 64  # representable values drawn as lines; more are drawn as a rug
MAX_MARKS = 256  # marks of the rug; beyond that only the range is shown

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class DistributionData:
    """How a block's elements are distributed, and which values its codes represent.

    ``block``: its position in the grid; ``name``: its readable name; ``counts``: its elements between
    ``edges``; ``whole``: all elements of x between the same edges, None if only the block is shown or it is
    all of x; ``values``: what its codes represent, ascending; ``size``: how many elements it has;
    ``clipped``: how many of these are clipped.
    """

    block: tuple[int, ...]
    name: str
    counts: Array
    edges: Array
    whole: Array | None
    values: Array
    size: int
    clipped: int


def distribution_data(
    result: Quantized,
    block: tuple[int, ...] | None = None,
    *,
    alone: bool = False,
    whole: tuple[Array, Array] | None = None,
) -> DistributionData:
    """Return the histogram of one block, and that of all elements.

    Args:
        block: position in the grid of blocks; by default the block with the largest scale.
        alone: only the block, in its own bins.
        whole: the `histogram` of x, if already computed.
    """
    where = _widest(result) if block is None else block
    own = blocks.elements_of(result.x, result.scheme.granularity, where)
    alone = alone or result.scale.numel() == 1
    if alone:
        counts, edges = whole if whole is not None and result.scale.numel() == 1 else histogram(own)
    else:
        all_counts, edges = whole or histogram(result.x)
        counts = histogram(own, len(all_counts), (float(edges[0]), float(edges[-1])))[0]
    values = grid_values(result, where)
    low, high = (float(v) for v in torch.aminmax(own))
    # if all elements are within the representable range, nothing is clipped and no pass over x is needed
    plain = result.dequantizer.is_product
    clipped = 0 if plain and values[0] <= low and high <= values[-1] else blocks.clipped(result, where)
    name = block_name(result.blocks.bounds(where), tuple(result.x.shape))
    return DistributionData(
        where, name, counts, edges, None if alone else all_counts, values, own.numel(), clipped
    )


def distribution(
    result: Quantized,
    block: tuple[int, ...] | None = None,
    *,
    alone: bool = False,
    log: bool = False,
    theme: str = "light",
    whole: tuple[Array, Array] | None = None,
) -> go.Figure:
    """Return the histogram of a block, with the values that its codes represent marked in it.

    With several blocks, the bars are percentages, and all of x is drawn faintly in the background. For
    ``block``, ``alone`` and ``whole`` see `distribution_data`.

    Args:
        log: whether the axis of counts or percentages is logarithmic.
    """
    data = distribution_data(result, block, alone=alone, whole=whole)
    low, high = _visible(data.edges, data.values)
    shown = data.values[(data.values >= low) & (data.values <= high)]
    bars = [] if data.whole is None else [_bars(data, data.whole, "all of x", DIM[theme], 0.45)]
    bars.append(_bars(data, data.counts, data.name, FILL[theme], 1.0 if data.whole is None else 0.8))
    layout = base_layout(theme, 340) | {
        "title": {"text": _title(result, data, len(shown)), "x": 0, "xref": "container"},
        "margin": {"l": 60, "r": 12, "t": 72, "b": 40},
        "xaxis": {"title": "value", "range": [low, high]},
        "yaxis": {
            "title": "% of elements" if data.whole is not None else "elements",
            "type": "log" if log else "linear",
        },
        # for the rug: a logarithmic first axis has no 0
        "yaxis2": {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True},
        "bargap": 0,
        "barmode": "overlay",
        "shapes": _marks(data.values, shown, theme),
    }
    return go.Figure([*bars, *_rug(shown, theme)], layout)


def _bars(data: DistributionData, counts: Array, name: str, color: str, opacity: float) -> go.Bar:
    """Draw a histogram: counts if one block is shown alone, otherwise percentages of its own elements."""
    total = int(counts.sum())
    return go.Bar(
        x=(data.edges[:-1] + data.edges[1:]) / 2,
        y=counts if data.whole is None else 100 * counts / max(1, total),
        customdata=counts,
        width=np.diff(data.edges),
        name=name,
        marker={"color": color, "opacity": opacity, "line": {"width": 0}},
        hovertemplate=f"x near %{{x:.4~g}}: %{{customdata}} of {total:,} elements, {name}<extra></extra>",
    )


def histogram(
    x: torch.Tensor, bins: int = 120, bounds: tuple[float, float] | None = None
) -> tuple[Array, Array]:
    """Return counts and edges of ``bins`` equal bins from the lowest to the highest finite element.

    ``bounds``: the first and last edges to use instead.

    >>> histogram(torch.tensor([0.0, 1.0, 1.0, 2.0]), bins=2)
    (array([1, 3]), array([0., 1., 2.]))
    """
    low, high = bounds or (float(v) for v in torch.aminmax(x))
    if not (math.isfinite(low) and math.isfinite(high)):
        x = x[x.isfinite()]
        low, high = (float(v) for v in torch.aminmax(x)) if len(x) else (0.0, 0.0)
    if low == high:
        low, high = low - 0.5 * (abs(low) or 1), high + 0.5 * (abs(high) or 1)
    flat = x.reshape(-1)
    counts = np.zeros(bins, np.int64)
    for start in range(0, len(flat), CHUNK):
        part = flat[start : start + CHUNK].cpu().numpy()
        # numpy subtracts the lowest value in the array's own dtype, in which the width of the range may
        # overflow
        wide = high - low > float(np.finfo(part.dtype).max)
        counts += np.histogram(part.astype(np.float64) if wide else part, bins, (low, high))[0]
    return counts, np.linspace(low, high, bins + 1)


def grid_values(result: Quantized, block: tuple[int, ...]) -> Array:
    """Return what every code of a block stands for, float32, ascending."""
    fmt, zero_point = result.scheme.format, result.zero_point
    if isinstance(fmt, IntFormat):
        values = torch.arange(fmt.qmin, fmt.qmax + 1, dtype=torch.float32)
    else:
        table = fmt.table.numpy()
        values = torch.from_numpy(np.unique(table[np.isfinite(table)]))
    shift = None if zero_point is None else zero_point[block].to(torch.float32)
    dequantizer = result.dequantizer.at(lambda number: number[block])
    found: Array = unscale(values, result.scale[block], shift, dequantizer).cpu().numpy()
    return np.sort(found)


def _visible(edges: Array, values: Array) -> tuple[float, float]:
    """Return the range of all elements, extended to the representable range unless that is much wider."""
    span = edges[-1] - edges[0]
    low = max(min(edges[0], float(values[0])), edges[0] - span)
    high = min(max(edges[-1], float(values[-1])), edges[-1] + span)
    margin = 0.02 * (high - low)
    return low - margin, high + margin


def _marks(values: Array, shown: Array, theme: str) -> list[dict[str, Any]]:
    """Return the shaded representable range, and its values as lines if there are few."""
    few = shown.tolist() if len(shown) <= MAX_LINES else []
    line = {"color": LINE[theme], "width": 1}
    shade = band_at("x", float(values[0]), float(values[-1]), LINE[theme])
    return [shade, *(line_at("x", value, line, opacity=0.75) for value in few)]


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


def _title(result: Quantized, data: DistributionData, shown: int) -> str:
    """Which block is drawn, what its codes represent, how many elements are clipped, and the background."""
    fmt, name = result.scheme.format, sentence(data.name)
    drawn = (
        "lines"
        if shown <= MAX_LINES
        else "ticks at the bottom"
        if shown <= MAX_MARKS
        else "too dense to draw"
    )
    ends = f"{data.values[0]:.4g} to {data.values[-1]:.4g}".replace("-", "\N{MINUS SIGN}")
    # lines that a phone shows whole
    first = f"<b>{name}</b>: codes represent {ends} (shaded)<br>{fmt.available:,} values of {fmt} ({drawn})"
    of = f"{data.clipped:,} of {data.size:,} elements clipped ({100 * data.clipped / data.size:.3g} %)"
    behind = "" if data.whole is None else f"; in the background: all {result.x.numel():,} elements of x"
    return f"{first}<br>{of}{behind}"


def _widest(result: Quantized) -> tuple[int, ...]:
    at, grid = int(result.scale.reshape(-1).argmax()), tuple(result.scale.shape)
    return tuple(int(i) for i in np.unravel_index(at, grid)) if grid else ()
