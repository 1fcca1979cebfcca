"""The error of every weight under every scheme, as a heat map."""

import html
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from quantcore.analysis import decibels
from quantcore.figures.numbers import inks_on
from quantcore.figures.style import base_layout, colors_at, palette
from quantcore.wording import printable

_ROW, _LEAST, _AROUND = 18, 360, 160  # px


def layers(
    names: Sequence[str], schemes: Sequence[str], sqnr_db: Sequence[Sequence[float]], *, theme: str = "light"
) -> go.Figure:
    """Return a row per weight and a column per scheme, colored by the SQNR in dB; cells without a number are empty.

    Args:
        sqnr_db: of shape (weights, schemes); inf where the error is 0.
    """
    values = np.array(sqnr_db, np.float64).reshape(len(names), len(schemes))
    shown = np.where(np.isfinite(values), values, np.nan)
    columns = [html.escape(printable(scheme)) for scheme in schemes]
    figure = go.Figure(
        go.Heatmap(
            z=shown, x=columns, y=[html.escape(printable(name)) for name in names], colorscale=palette("sequential", theme), reversescale=True,
            customdata=[[decibels(value) for value in row] for row in values.tolist()],
            hovertemplate="%{y}<br>%{x}<br>SQNR %{customdata}<extra></extra>",
            colorbar={"title": {"text": "SQNR (dB)", "side": "right"}, "thickness": 10, "outlinewidth": 0},
        )
    )  # fmt: skip
    figure.update_layout(base_layout(theme, max(_LEAST, _ROW * len(names) + _AROUND)))
    figure.update_yaxes(autorange="reversed", automargin=True, dtick=1, type="category")
    wrapped = [column.replace(" ", "<br>") for column in columns]
    figure.update_xaxes(side="top", automargin=True, tickangle=0, tickvals=columns, ticktext=wrapped, type="category")
    return figure


def layer_colors(sqnr_db: Sequence[Sequence[float]], theme: str = "light") -> list[list[str]]:
    """Return the CSS of each cell of a table in the colors of `layers`: its color, and the ink that is read best on it.

    Args:
        sqnr_db: as for `layers`; cells without a number get no color, those without an error that of the highest number.
    """
    values = np.array(sqnr_db, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scale = [[1 - place, color] for place, color in reversed(palette("sequential", theme))]
    colors = colors_at(np.nan_to_num(values.ravel(), nan=low, posinf=high, neginf=low), low, high, scale)
    styles = [
        "" if np.isnan(value) else f"background:rgb({r},{g},{b});color:{ink}"
        for value, (r, g, b), ink in zip(values.ravel(), colors.tolist(), inks_on(colors), strict=True)
    ]
    width = values.shape[-1]
    return [styles[i : i + width] for i in range(0, len(styles), width)]
