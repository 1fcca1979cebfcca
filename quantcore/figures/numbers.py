"""The numbers in the cells of a map, in the ink that is read best on each cell's color."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from quantcore.figures.style import colors_at
from quantcore.figures.typography import SMALL, fits

_BLACK, _WHITE = "rgb(0,0,0)", "rgb(255,255,255)"
# relative luminance of the color on which black and white have the same contrast: (1 + 0.05) / (y + 0.05) = (y + 0.05) / 0.05
# (WCAG 2.2, contrast ratio); on every color the better of them has at least 4.58
_EVEN = (1.05 * 0.05) ** 0.5 - 0.05

_ZEROS = re.compile(r"(?<=e)([+-])0+")


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
