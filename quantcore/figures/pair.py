"""Two sets of codes for one tensor, and where they differ: three maps side by side."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.analysis import MAX_CELLS, Span
from quantcore.figures.maps import NUMBERS_UP_TO, WIDTH
from quantcore.figures.style import (
    base_layout,
    cell_places,
    color_bar,
    colors_of_codes,
    map_axis,
    numbers_in_cells,
    palette,
    subplot_domain,
    title,
)

Codes = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class PairData:
    """Cells of the maps: both codes, and the row and column of the element that a cell shows.

    ``step``: how many elements (down, across) a cell represents; the maps of codes show the one whose codes
    differ most. ``differing``: how many of a cell's elements have different codes; ``size``: how many there
    are.
    """

    first: Codes
    second: Codes
    row: Codes
    column: Codes
    step: Span
    differing: Codes
    size: Codes

    @property
    def reduced(self) -> bool:
        """Whether a cell represents several elements."""
        return self.step != (1, 1)

    @property
    def percent(self) -> npt.NDArray[np.float64]:
        """The percentage of each cell's elements that have different codes."""
        return 100.0 * self.differing / self.size

    @property
    def legend(self) -> str:
        """What a cell shows, in two sentences; empty if every cell is one element."""
        if not self.reduced:
            return ""
        down, across = self.step
        differing, total = int(self.differing.sum()), int(self.size.sum())
        return (
            f"Each cell represents {down} × {across} elements: the maps of codes show the element whose "
            "codes differ most, the third map the percentage of the cell's elements that differ. Overall, "
            f"{percent(differing, total)} of the elements differ."
        )


def percent(count: int, total: int) -> str:
    """``count`` of ``total`` as text: "12.5 %", and 0 % or 100 % only if it is exactly that.

    >>> percent(1, 8), percent(1, 10**6), percent(0, 8), percent(10**6 - 1, 10**6)
    ('12.5 %', 'less than 0.1 %', '0 %', 'more than 99.9 %')
    """
    if count in (0, total):
        return "100 %" if count else "0 %"
    if 1000 * count < total:
        return "less than 0.1 %"
    return "more than 99.9 %" if 1000 * (total - count) < total else f"{100 * count / total:.1f} %"


def pair_data(first: Codes, second: Codes) -> PairData:
    """Return at most 256×256 cells for two arrays of the same shape; leading axes become rows.

    Memory: a few copies of one row of cells, never of a whole array.
    """
    a, b = (c.reshape(-1, c.shape[-1] if c.ndim else 1) for c in (first, second))
    step = (-(-a.shape[0] // MAX_CELLS), -(-a.shape[1] // MAX_CELLS))
    starts = range(0, a.shape[0], step[0])
    found = [_row_of_cells(a[start : start + step[0]], b[start : start + step[0]], step) for start in starts]
    down, column, differing, size = (np.stack(each) for each in zip(*found, strict=True))
    row = np.array(starts)[:, None] + down
    first, second = (c[row, column].astype(np.int64) for c in (a, b))
    return PairData(first, second, row, column, step, differing, size)


def _row_of_cells(a: Codes, b: Codes, step: Span) -> tuple[Codes, Codes, Codes, Codes]:
    """For each cell of one row: row and column of the element shown (from 0), how many of how many differ."""
    short = [(0, n - m) for n, m in zip((step[0], -(-a.shape[1] // step[1]) * step[1]), a.shape, strict=True)]
    difference = abs(a.astype(np.int64) - b)
    padded = np.pad(difference, short, constant_values=-1)  # no difference is negative
    boxes = padded.reshape(step[0], -1, step[1]).transpose(1, 0, 2).reshape(-1, step[0] * step[1])
    place = boxes.argmax(-1)
    column = np.arange(len(boxes)) * step[1] + place % step[1]
    return place // step[1], column, (boxes > 0).sum(-1), (boxes >= 0).sum(-1)


def pair(
    first: Codes, second: Codes, titles: tuple[str, str], *, bounds: Span, theme: str = "light"
) -> go.Figure:
    """Return maps of both sets of codes and of where they differ, with linked axes.

    The third map shows first - second if each cell is one element; otherwise the percentage of the cell's
    elements that differ. `pair_data` has the numbers and a legend.

    Args:
        titles: names of the two.
        bounds: the lowest and highest codes, where the color range ends.
    """
    data = pair_data(first, second)
    height, width = data.first.shape  # cells are roughly square, and the maps fit on a page
    rows, columns = height * data.step[0], width * data.step[1]
    layout = {**base_layout(theme, int(min(max(290 * height / width, 150), 420)) + 80), "annotations": []}
    codes = colors_of_codes(*bounds, 0, theme)
    hover = _hover(data, tuple(first.shape), titles)
    difference, name, differ = _difference(data, titles, theme)
    maps = ((data.first, titles[0]), (data.second, titles[1]), (difference, name))
    traces: list[Any] = []
    written: list[Any] = []
    for i, (cells, name) in enumerate(maps):
        axis, domain = str(i + 1) if i else "", subplot_domain(i, 3, 0.075)
        own = {
            "z": cells,
            "name": name,
            "colorbar": color_bar(domain),
            "xaxis": f"x{axis}",
            "yaxis": f"y{axis}",
        }
        own |= (differ if i == 2 else codes) | cell_places(data.step)
        traces.append(go.Heatmap(**own, **hover))
        if data.first.size <= NUMBERS_UP_TO and not data.reduced:
            written += numbers_in_cells(cells, "{}", own, WIDTH * (domain[1] - domain[0]))
        layout[f"xaxis{axis}"] = map_axis(f"y{axis}", (0, columns), domain, "x" if i else None)
        layout[f"yaxis{axis}"] = map_axis(f"x{axis}", (rows, 0), None, "y" if i else None)
        layout["annotations"].append(title(name, domain[0], 1))
    return go.Figure(traces + written, layout)


def _difference(data: PairData, titles: tuple[str, str], theme: str) -> tuple[Any, str, dict[str, Any]]:
    """Cells, title and colors of the third map."""
    colors = palette("error", theme)
    if not data.reduced:
        difference = data.first - data.second
        most = int(abs(difference).max()) or 1
        name = f"{titles[0]} − {titles[1]}"
        return difference, name, {"zmin": -most, "zmax": most, "colorscale": colors}
    # from 0 to 100, so that equal colors mean equal percentages in every comparison; only 0 has the quiet
    # middle color, so that even one element of a large cell stands out
    middle, *others = [color for _, color in colors[len(colors) // 2 :]]
    none, last = 0.5 / int(data.size.max()), len(others) - 1
    rising = [[none + (1 - none) * i / last, color] for i, color in enumerate(others)]
    scale = [[0.0, middle], [none, middle], *rising]
    return data.percent, "Elements that differ (%)", {"zmin": 0.0, "zmax": 100.0, "colorscale": scale}


def _hover(data: PairData, shape: tuple[int, ...], titles: tuple[str, str]) -> dict[str, Any]:
    """Return the element's index and both codes, for the tooltip of each map."""
    leading = np.unravel_index(data.row, shape[:-1]) if len(shape) > 1 else ()
    index = [*leading, *([data.column] if shape else [])]
    cells = np.stack([*index, data.first, data.second, data.differing, data.size], -1).astype(np.int32)
    n = len(index)
    where = ", ".join(f"%{{customdata[{i}]}}" for i in range(n))
    words = f"{titles[0]} %{{customdata[{n}]}}<br>{titles[1]} %{{customdata[{n + 1}]}}"
    if data.reduced:
        words += f"<br>%{{customdata[{n + 2}]}} of the cell's %{{customdata[{n + 3}]}} elements differ"
    return {"customdata": cells, "hovertemplate": f"element ({where})<br>{words}<extra></extra>"}
