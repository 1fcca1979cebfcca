"""A checkpoint's tensors as tiles."""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import Leaf, Tile
from quantcore.figures.style import FAINT, INK, PAGE, base_layout, palette, tooltip_style
from quantcore.figures.typography import SMALL
from quantcore.wording import printable

_BITS = (2, 3, 4, 6, 8, 16)  # on the color bar
_LABEL = 40  # characters


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
            "line": {"width": 1.5, "color": PAGE[theme]},
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
    layout["hoverlabel"] = tooltip_style(theme)
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
