"""Colors, type and layout that all figures share, for light and dark backgrounds.

Colors are written as rgb(): Streamlit's front end replaces #000001 to #000040 with colors of its theme.
"""

import math
import re
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.colors
import plotly.graph_objects as go

from quantcore.figures.typography import FAMILY, LARGER, SMALL, TEXT, fits

INK = {"light": "rgb(49,51,63)", "dark": "rgb(250,250,250)"}
PAGE = {"light": "rgb(255,255,255)", "dark": "rgb(23,22,20)"}
FAINT = {"light": "rgba(49,51,63,0.12)", "dark": "rgba(250,250,250,0.15)"}
DIM = {"light": "rgba(49,51,63,0.45)", "dark": "rgba(250,250,250,0.5)"}
FILL = {"light": "rgb(11,110,153)", "dark": "rgb(77,182,226)"}
LINE = {"light": "rgb(179,88,6)", "dark": "rgb(253,184,99)"}

# Blue to red and purple to orange, like RdBu and PuOr, but with a dark middle: on a dark page zero must be
# the quietest color, not a glaring white
_DARK_VALUES = ["146,197,255", "76,142,209", "46,84,126", "46,47,52", "124,56,50", "211,94,78", "255,176,150"]
_DARK_ERROR = [
    "208,188,255",
    "146,116,214",
    "82,66,124",
    "46,47,52",
    "116,76,26",
    "205,130,28",
    "255,204,118",
]
_DARK_CODES = ["120,230,215", "48,160,148", "34,94,90", "46,47,52", "98,82,40", "176,146,58", "240,214,130"]

# Backgrounds for numbers that share a scale; neighbors in the list differ most. A search maximized the
# smallest distance between any two of them, and to the page, for readers with and without color blindness.
BLOCKS = {
    "light": [
        "rgb(179,158,251)",
        "rgb(186,233,140)",
        "rgb(211,138,196)",
        "rgb(82,183,150)",
        "rgb(252,204,255)",
        "rgb(183,171,73)",
        "rgb(143,242,183)",
        "rgb(123,176,109)",
    ],
    "dark": [
        "rgb(44,109,200)",
        "rgb(183,68,135)",
        "rgb(99,118,5)",
        "rgb(84,52,135)",
        "rgb(142,92,85)",
        "rgb(29,70,3)",
        "rgb(119,30,73)",
        "rgb(75,0,75)",
    ],
}
_BLACK, _WHITE = "rgb(0,0,0)", "rgb(255,255,255)"
# relative luminance y of the color on which black and white have the same contrast (WCAG 2.2):
# (1 + 0.05) / (y + 0.05) = (y + 0.05) / 0.05; on every color the better of them has at least 4.58
_EVEN = (1.05 * 0.05) ** 0.5 - 0.05

LEGEND_ABOVE = {"showlegend": True, "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}}
_ZEROS = re.compile(r"(?<=e)([+-])0+")


def palette(name: str, theme: str = "light") -> list[list[Any]]:
    """Return "diverging", "error", "codes", "patterns", "sequential" or "grey" as [[position, rgb()], …].

    The middle of the first three is neutral: 0.
    """
    dark = {"diverging": _DARK_VALUES, "error": _DARK_ERROR, "codes": _DARK_CODES}
    if theme == "dark" and name in dark:
        colors = [f"rgb({c})" for c in dark[name]]
    else:
        scales = {
            "diverging": plotly.colors.diverging.RdBu_r,
            "error": plotly.colors.diverging.PuOr_r,
            "codes": plotly.colors.diverging.BrBG_r,
            "patterns": plotly.colors.sequential.Cividis,
            "sequential": plotly.colors.sequential.Viridis,
            "grey": ["rgb(0,0,0)", "rgb(255,255,255)"],
        }
        colors = plotly.colors.convert_colors_to_same_type(scales[name], colortype="rgb")[0]
    return [[i / (len(colors) - 1), color] for i, color in enumerate(colors)]


def colors_of_codes(low: int, high: int, middle: int, theme: str) -> dict[str, Any]:
    """zmin, zmax and colorscale of integer codes, neutral at ``middle``; sequential if it is not inside."""
    if not low < middle < high:
        return {"zmin": low, "zmax": high, "colorscale": palette("patterns")}
    at = (middle - low) / (high - low)
    colors = [[2 * p * at if p <= 0.5 else 1 - 2 * (1 - p) * (1 - at), c] for p, c in palette("codes", theme)]
    return {"zmin": low, "zmax": high, "colorscale": colors}


def colors_at(
    values: npt.NDArray[Any], low: float, high: float, scale: list[list[Any]]
) -> npt.NDArray[np.uint8]:
    """Return the colors in which a map draws values: uint8 [..., 3].

    Args:
        values: NaN is drawn like ``low``.
        low: the value at the first color of ``scale``, ``high`` that at the last; values beyond are clamped.
    """
    at = np.clip((np.nan_to_num(values.astype(np.float64), nan=low) - low) / ((high - low) or 1.0), 0, 1)
    places = [place for place, _ in scale]
    colors = np.array([plotly.colors.unlabel_rgb(color) for _, color in scale])
    return np.stack([np.interp(at, places, colors[:, k]) for k in range(3)], -1).round().astype(np.uint8)


def short_scheme(name: str) -> str:
    """Return the text of a scheme, or a name, without what most have in common, in at most 30 characters.

    >>> short_scheme("int4 symmetric per_group(32) min_max textbook")
    'int4 per_group(32)'
    >>> short_scheme("int8 asymmetric per_channel(axis=0)")
    'int8 asymmetric per_channel(0)'
    """
    words = [word for word in name.split() if word not in ("symmetric", "min_max", "textbook", "per_tensor")]
    text = " ".join(words).replace("(axis=", "(") or name
    return text if len(text) <= 30 else f"{text[:29]}…"


@cache
def _template(theme: str, size: float) -> go.layout.Template:
    """Return our template, made once: Plotly checks each of its parts, which takes longer than a figure."""
    # Plotly's own titles of axes, legends and color bars are larger
    named = {"title": {"font": {"size": size}}}
    axis = named | {
        "gridcolor": FAINT[theme],
        "linecolor": FAINT[theme],
        "zerolinecolor": FAINT[theme],
        # a power would be written with a small exponent
        "exponentformat": "e",
    }
    bar = {"colorbar": named}
    return go.layout.Template(
        # automargin makes room for tick labels of many digits
        layout={
            "xaxis": axis,
            "yaxis": axis | {"automargin": True},
            "coloraxis": bar,
            "hoverlabel": {"font": {"family": FAMILY, "size": size}},
            "legend": named,
            "title": {"font": {"size": size}},
        },
        data={"heatmap": [bar], **{kind: [{"marker": bar}] for kind in ("bar", "scatter", "treemap")}},
    )


def base_layout(theme: str, height: int, size: float = SMALL) -> dict[str, Any]:
    """Return a layout with its own template: importing streamlit changes the default template.

    Args:
        size: of all type but titles, in px.
    """
    return {
        "template": _template(theme, size),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": DIM[theme], "activecolor": INK[theme]},
        "font": {"color": INK[theme], "family": FAMILY, "size": size},
        "height": height,
        "margin": {"l": 44, "r": 12, "t": 40, "b": 40},
        "showlegend": False,
    }


def unchecked(data: list[dict[str, Any]], layout: dict[str, Any]) -> go.Figure:
    """Return a figure of plain traces, each with its type.

    For figures that follow a hand: Plotly's checks of names and values, which a test makes instead, take ten
    times as long as all else.
    """
    return go.Figure(data, layout, _validate=False)


def title(text: str, x: float, y: float) -> dict[str, Any]:
    """Return a title above the subplot whose upper left corner is at (x, y) of the figure."""
    place = {"xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "showarrow": False}
    return {"text": text, "x": x, "y": y, "font": {"size": TEXT, "weight": 600}, **place}


def log_ticks(low: float, high: float, suffix: str = "") -> dict[str, Any]:
    """Ticks for a logarithmic axis from ``low`` to ``high``: decades, if few, with their 2nd and 5th parts.

    Plotly's own ticks between decades have smaller type.
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    every = max(1, round((last - first) / 6)) if steps == (1,) else 1
    values = [n * 10.0**p for p in range(first, last + 1, every) for n in steps]
    return {"tickvals": values, "ticktext": [_power(v) + suffix for v in values]}


def _power(value: float) -> str:
    """Write a round number as briefly as possible.

    >>> _power(2e-5), _power(0.05), _power(1.0), _power(50.0)
    ('2e−5', '0.05', '1', '50')
    """
    if 1e-3 <= value < 1e5:
        return f"{value:g}"
    digits, power = f"{value:.0e}".split("e")
    return f"{digits}e{int(power)}".replace("-", "−")


def subplot_domain(i: int, n: int, gap: float) -> list[float]:
    """Return the domain of the i-th of n subplots side by side, with a ``gap`` after each."""
    width = 1 / n - gap
    return [i / n, i / n + width]


def map_axis(
    anchor: str, ends: tuple[int, int], domain: list[float] | None = None, matches: str | None = None
) -> dict[str, Any]:
    """Return an axis of cells from end to end, with ticks at integers; (stop, start) reverses it."""
    n = abs(ends[1] - ends[0])
    ticks = {"tick0": 0, "dtick": 1} if n <= 8 else {"nticks": 8}
    span = [ends[0] - 0.5, ends[1] - 0.5]
    plain = {"showgrid": False, "zeroline": False, "ticks": "", **ticks}
    return {"domain": domain, "anchor": anchor, "range": span, "matches": matches, **plain}


def cell_places(step: tuple[int, int], first: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """Return the positions of a map's cells, in elements; ``step``: elements per cell (down, across)."""
    (down, across), (row, column) = step, first
    return {"x0": column + (across - 1) / 2, "dx": across, "y0": row + (down - 1) / 2, "dy": down}


def color_bar(across: list[float], **more: Any) -> dict[str, Any]:
    """Return a color bar close to the map on its left, whose domain is ``across``."""
    return {"x": across[1], "xpad": 4, "thickness": 8, "outlinewidth": 0, "nticks": 5, **more}


def span_at(axis: str, low: float, high: float, **drawn: Any) -> dict[str, Any]:
    """Return a shape from one value of an axis, "x" or "y", to another, across the plot."""
    other = "y" if axis == "x" else "x"
    across = {f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {f"{axis}0": low, f"{axis}1": high, **across, **drawn}


def line_at(axis: str, at: float, line: dict[str, Any], **drawn: Any) -> dict[str, Any]:
    """Return a line across the plot at a value of an axis, "x" or "y"."""
    return span_at(axis, at, at, type="line", line=line, **drawn)


def band_at(axis: str, low: float, high: float, color: str, opacity: float = 0.1) -> dict[str, Any]:
    """Return a shaded band across the plot between two values of an axis, "x" or "y"."""
    return span_at(axis, low, high, type="rect", fillcolor=color, opacity=opacity, line={"width": 0})


TALLER = 1.4  # height of an enlarged figure, over that of the usual one
_LENGTHS = {("marker", "size"), ("line", "width"), ("uniformtext", "minsize"), ("pathbar", "thickness")}


def enlarged(figure: go.Figure) -> go.Figure:
    """Copy a figure to be read from the back row of a room: larger type, thicker lines, more height."""
    found = figure.to_dict()
    layout = _enlarged(found["layout"])
    if layout.get("height"):
        layout["height"] = round(TALLER * found["layout"]["height"])
    return go.Figure([_enlarged(trace) for trace in found["data"]], layout)


def _enlarged(part: Any, name: str = "") -> Any:
    """Enlarge a part's sizes of type, markers, lines and margins; ``name``: its key in the figure."""
    if isinstance(part, list):
        return [_enlarged(item, name) for item in part]
    if not isinstance(part, dict):
        return part
    sizes = {key: _enlarged(value, key) for key, value in part.items()}
    for key, value in part.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        of_type = key == "size" and name.endswith("font")
        if of_type or (name, key) in _LENGTHS or name in ("margin", "pad"):
            sizes[key] = LARGER * value
    return sizes


def thumbnail(values: np.ndarray, name: str, bounds: tuple[float, float], theme: str = "light") -> np.ndarray:
    """Return a matrix in colors: uint8 [rows, columns, 3].

    Args:
        values: [rows, columns]; NaN is drawn like the lower bound.
        name: of a palette; see `palette`.
        bounds: the values at its ends; others are clamped to them.
    """
    return colors_at(values, *bounds, palette(name, theme))


def numbers_in_cells(
    cells: npt.NDArray[Any], template: str, heatmap: dict[str, Any], width: float
) -> list[go.Scatter]:
    """Return the numbers of a map as a trace; none if one of them does not fit into its cell.

    Args:
        cells: [rows, columns] the values drawn; cells that are not finite get no number.
        template: a format, such as "{:.3g}".
        heatmap: x0, dx, y0, dy, xaxis, yaxis, zmin, zmax and colorscale of the map.
        width: of the map, in px.
    """
    # 1e-05 -> 1e−5
    texts = [_ZEROS.sub(r"\1", template.format(value)).replace("-", "−") for value in cells.ravel().tolist()]
    if not fits(texts, width / cells.shape[-1]):
        return []
    down, across = np.indices(cells.shape).reshape(2, -1)
    colors = colors_at(cells.ravel(), heatmap["zmin"], heatmap["zmax"], heatmap["colorscale"])
    return [
        go.Scatter(
            x=heatmap["x0"] + heatmap["dx"] * across,
            y=heatmap["y0"] + heatmap["dy"] * down,
            xaxis=heatmap["xaxis"],
            yaxis=heatmap["yaxis"],
            text=[t if f else "" for t, f in zip(texts, np.isfinite(cells.ravel()), strict=True)],
            mode="text",
            textfont={"size": SMALL, "color": inks_on(colors)},
            hoverinfo="skip",
            showlegend=False,
        )
    ]


def inks_on(colors: npt.NDArray[np.uint8]) -> list[str]:
    """Return black or white for each color, whichever is read better on it: [n, 3] -> n."""
    inks: list[str] = np.where(_luminance(colors) > _EVEN, _BLACK, _WHITE).tolist()
    return inks


def _luminance(colors: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Relative luminance of sRGB colors, from 0 to 1 (WCAG 2.2): [n, 3] -> [n]."""
    c = colors / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))


def tooltip_style(theme: str) -> dict[str, Any]:
    """Return the tooltip's style: on the page's colour, since the ink is unreadable on a mark's own."""
    font = {"color": INK[theme]}
    return {"align": "left", "bordercolor": DIM[theme], "bgcolor": PAGE[theme], "font": font}
