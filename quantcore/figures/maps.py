"""The four maps: original, codes, dequantized, error; fewer if there is no original or there are no codes."""

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.analysis import Cells, MapData, View, element, map_data
from quantcore.figures.style import (
    INK,
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
from quantcore.formats import Format, IntFormat
from quantcore.quantization import Quantized, check_result

TITLES = {"x": "Original x", "codes": "Codes q", "dequantized": "Dequantized x̂", "error": "Error x − x̂"}
DIFFERENCE = "|error| − |reference error|"
RMS = "RMS error"
NUMBERS_UP_TO = 256  # cells; the text takes longer to draw than the rest of a map
WIDTH = 1000  # px of a figure, in a notebook or beside a sidebar: Plotly would shrink numbers until they fit
# with MANY cells or more, one in FEW may lie outside the color range, if FAR times as far out as the others
MANY, FEW, FAR = 2000, 1000, 3.0
FROM_ZERO = 0.5  # values of one sign that begin below this fraction of the largest are colored from 0
GREY = (0.0, 255.0)  # black and white
BORDERS_UP_TO = 32  # lines along one axis; at this size more would hide the cells


def titles_of_maps(data: MapData) -> dict[str, str]:
    """Return the title of each map, by its name."""
    titles = TITLES if data.other is None else {**TITLES, "error": DIFFERENCE}
    if data.rms is not None:
        titles = {**TITLES, "error": RMS}
    if data.titles:
        titles = dict(zip(data.names, data.titles, strict=True))
    elif "x" not in data.names:  # without an original
        titles = {**titles, "dequantized": "Values x̂" if "codes" in data.names else "Values"}
    return {name: titles[name] for name in data.names}


def scales_of_maps(
    data: MapData, fmt: Format | None, theme: str = "light", *, grey: bool = False
) -> dict[str, dict[str, Any]]:
    """Return zmin, zmax and colorscale of each of the maps.

    Args:
        fmt: what a code is; None if there are none.
        grey: draw the values as the grey levels of an image, 0 black and 255 white.
    """
    ranges = _colors_of(data, grey)
    low, high, _ = ranges["values"]
    values = (
        {"zmin": low, "zmax": high, "colorscale": palette("grey")} if grey else _of_values(low, high, theme)
    )
    found = {"x": values, "dequantized": values}
    if fmt is not None:
        # bit patterns and indices have no middle
        middle = fmt.middle if isinstance(fmt, IntFormat) else fmt.qmin
        found["codes"] = colors_of_codes(fmt.qmin, fmt.qmax, middle, theme)
    if "error" in data.names:
        low, high, _ = ranges["error"]
        most = max(-low, high) or 1.0
        found["error"] = {"zmin": -most, "zmax": most, "colorscale": palette("error", theme)}
        if data.rms is not None:
            found["error"] |= {"zmin": 0.0, "colorscale": _half(palette("error", theme), 1)}
    return {name: found[name] for name in data.names}


def _of_values(low: float, high: float, theme: str) -> dict[str, Any]:
    """Return zmin, zmax and colorscale of values: a color means the same sign in every tensor."""
    colors, most = palette("diverging", theme), max(-low, high)
    if low < 0 < high:
        return {"zmin": -most, "zmax": most, "colorscale": colors}
    if low == high or min(abs(low), abs(high)) < FROM_ZERO * most:  # of one sign, from 0
        if low < 0:
            return {"zmin": low, "zmax": 0.0, "colorscale": _half(colors, -1)}
        return {"zmin": 0.0, "zmax": high or 1.0, "colorscale": _half(colors, 1)}
    return {"zmin": low, "zmax": high, "colorscale": palette("sequential")}  # far from 0, where they differ


def _half(colors: list[list[Any]], sign: int) -> list[list[Any]]:
    """Return the part of a diverging scale for one sign."""
    if sign < 0:
        return [[2 * at, color] for at, color in colors if at <= 0.5]
    return [[2 * at - 1, color] for at, color in colors if at >= 0.5]


def maps(
    result: Quantized,
    view: View | None = None,
    *,
    numbers: bool = True,
    borders: bool = False,
    columns: int = 4,
    theme: str = "light",
    against: Quantized | None = None,
    grey: bool = False,
) -> go.Figure:
    """Return the four maps, original | codes | dequantized | error, in one figure with linked axes.

    In a large tensor a cell represents several elements and shows one of them: ``map_data(result,
    view).legend`` says which.

    Args:
        numbers: write the numbers into the cells where they fit, in a figure 1,000 px wide.
        borders: draw the borders of blocks.
        columns: 4 for a row, 2 for a square.
        against: another result of the same x; the last map then shows |error| minus the other's |error|.
        grey: draw the values as the grey levels of an image, 0 black and 255 white, with square cells.

    >>> import quantcore as qc
    >>> figure = maps(qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme(qc.INT4)))
    >>> [note.text for note in figure.layout.annotations]
    ['Original x', 'Codes q', 'Dequantized x̂', 'Error x − x̂']
    """
    check_result(result, "maps")
    view = view or View()
    looks: dict[str, Any] = {
        "numbers": numbers,
        "borders": borders,
        "columns": columns,
        "theme": theme,
        "grey": grey,
    }
    shape = tuple(result.x.shape)
    return drawn_maps(map_data(result, view, against), result.scheme.format, shape, view, **looks)


def drawn_maps(
    data: MapData,
    fmt: Format | None,
    shape: tuple[int, ...],
    view: View,
    *,
    numbers: bool = True,
    borders: bool = False,
    columns: int = 4,
    theme: str = "light",
    grey: bool = False,
) -> go.Figure:
    """Return `maps` for data that is already computed.

    Args:
        fmt: what a code is; None if there are none.
        shape: of the tensor.
    """
    colors = scales_of_maps(data, fmt, theme, grey=grey)
    columns = min(columns, len(data.names))
    rows = -(-len(data.names) // columns)
    layout = {**base_layout(theme, 300 * rows + 60), "annotations": [], "shapes": []}
    shared = cell_places(data.step, (data.rows[0], data.columns[0]))
    traces: list[dict[str, Any]] = []
    written: list[go.Scatter] = []
    few = numbers and data.largest.x.size <= NUMBERS_UP_TO
    for i, (name, text) in enumerate(titles_of_maps(data).items()):
        across, down = (
            subplot_domain(i % columns, columns, 0.075),
            subplot_domain(rows - 1 - i // columns, rows, 0.12),
        )
        axis = str(i + 1) if i else ""
        bar = color_bar(across, y=sum(down) / 2, len=down[1] - down[0])  # as high as its map
        own: dict[str, Any] = {"z": data.map(name), "name": text, "colorbar": bar}
        own |= {"xaxis": f"x{axis}", "yaxis": f"y{axis}"} | shared | colors[name]
        traces.append(own | _hover(data, data.of(name), shape, view))
        if few:
            template = "{}" if name == "codes" else "{:.3g}"
            written += numbers_in_cells(own["z"], template, own, WIDTH * (across[1] - across[0]))
        layout[f"xaxis{axis}"] = map_axis(f"y{axis}", data.columns, across, "x" if i else None)
        layout[f"yaxis{axis}"] = map_axis(f"x{axis}", data.rows[::-1], down, "y" if i else None)
        if grey:
            layout[f"xaxis{axis}"]["constrain"] = layout[f"yaxis{axis}"]["constrain"] = "domain"
            layout[f"yaxis{axis}"]["scaleanchor"] = f"x{axis}"
        layout["annotations"].append(title(text, across[0], down[1]))
        layout["shapes"] += _borders(data, axis, theme) if borders else []
    return go.Figure([*(go.Heatmap(**trace) for trace in traces), *written], layout)


def beyond_colors(data: MapData, *, grey: bool = False) -> str:
    """Return sentences on cells outside the color ranges of `scales_of_maps`; empty if there are none."""
    return " ".join(filter(None, (colors.beyond for colors in _colors_of(data, grey).values())))


class _Colors(NamedTuple):
    """The lowest and highest values in the color range, and a sentence on cells outside it, if any."""

    low: float
    high: float
    beyond: str

    @classmethod
    def of(
        cls, what: str, values: npt.NDArray[np.float32], bounds: tuple[float, float] | None = None
    ) -> "_Colors":
        low, high = bounds or _color_range(values)
        beyond = values[np.isfinite(values) & ((values < low) | (values > high))]
        if not beyond.size:
            return cls(low, high, "")
        farthest = float(beyond[np.abs(beyond).argmax()])
        cells, at = ("cell lies", "at") if beyond.size == 1 else ("cells lie", "the farthest at")
        text = f"{beyond.size:,} {cells} outside the color range of the {what}, {at} {farthest:.4g}."
        return cls(low, high, text.replace("-", "−"))


# a page draws the same data many times, but scans it once
_known: WeakKeyDictionary[MapData, dict[bool, dict[str, _Colors]]] = WeakKeyDictionary()


def _colors_of(data: MapData, grey: bool) -> dict[str, _Colors]:
    """Return the color ranges of the values and of the error, if there is one."""
    known = _known.setdefault(data, {})
    if grey not in known:
        values = [data.map(name).ravel() for name in ("x", "dequantized") if name in data.names]
        found = {"values": _Colors.of("values", np.concatenate(values), GREY if grey else None)}
        if "error" in data.names:
            found["error"] = _Colors.of("error", data.map("error"))
        known[grey] = found
    return known[grey]


def _color_range(values: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return the lowest and highest values in the color range; (0, 0) if none are finite.

    With given parameters, x̂ can overflow. If a few of many cells lie so far out that all others would share
    one color, the range excludes them.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 0.0
    low, high = float(finite.min()), float(finite.max())
    if finite.size < MANY:
        return low, high
    place = finite.size - 1 - finite.size // FEW
    usual = float(np.partition(np.abs(finite), place)[place])
    if not 0 < FAR * usual < max(-low, high):
        return low, high
    return max(low, -usual), min(high, usual)


# array of the cells -> its label and number format in the tooltip
_LABELS = {
    "x": ("x", ":.6~g"),
    "codes": ("q", ""),
    "dequantized": ("x̂", ":.6~g"),
    "error": ("error", ":.4~g"),
    "scale": ("scale", ":.6~g"),
    "zero_point": ("zero point", ""),
}


def _hover(data: MapData, cells: Cells, shape: tuple[int, ...], view: View) -> dict[str, Any]:
    """Return the numbers of the element that a cell shows, for its tooltip."""
    shown = [name for name in _LABELS if name in data.names]
    shown += ["scale", "zero_point"] if "codes" in data.names else []
    arrays = [getattr(cells, name) for name in ("row", "column", *shown)]
    # float32, half the payload, holds integers up to 2^24
    largest = max(int(np.abs(a.astype(np.int64)).max()) for a in arrays if a.dtype == np.int32)
    numbers = np.stack(arrays, -1).astype(np.float32 if largest <= 1 << 24 else np.float64)
    index = element(view, shape, "%{customdata[0]}", "%{customdata[1]}")
    lines = [
        f"<br>{_LABELS[name][0]} %{{customdata[{i}]{_LABELS[name][1]}}}" for i, name in enumerate(shown, 2)
    ]
    head = f"element ({', '.join(map(str, index))})"
    return {"customdata": numbers, "hovertemplate": f"{head}{''.join(lines)}<extra></extra>"}


def _borders(data: MapData, axis: str, theme: str) -> list[dict[str, Any]]:
    (top, bottom), (left, right) = data.rows, data.columns
    down, across = (b if len(b) <= BORDERS_UP_TO else () for b in data.borders)
    lines = [(left, right, row, row) for row in down]
    lines += [(column, column, top, bottom) for column in across]
    style = {
        "type": "line",
        "xref": f"x{axis}",
        "yref": f"y{axis}",
        "line": {"color": INK[theme], "width": 1},
    }
    return [
        style | {"x0": x0 - 0.5, "x1": x1 - 0.5, "y0": y0 - 0.5, "y1": y1 - 0.5} for x0, x1, y0, y1 in lines
    ]
