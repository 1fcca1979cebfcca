"""The colors of a table of weights and schemes."""

from collections.abc import Sequence

import numpy as np

from quantcore.figures.numbers import inks_on
from quantcore.figures.style import colors_at, palette


def layer_colors(sqnr_db: Sequence[Sequence[float]]) -> list[list[str]]:
    """Return the CSS of each cell: its color, and the ink that is read best on it.

    Args:
        sqnr_db: of shape (weights, schemes); cells without a number get no color, those without an error that of the
            highest number.
    """
    values = np.array(sqnr_db, np.float64)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    scale = [[1 - place, color] for place, color in reversed(palette("sequential"))]
    colors = colors_at(np.nan_to_num(values, nan=low, posinf=high, neginf=low), low, high, scale)
    return [
        ["" if np.isnan(value) else f"background:rgb({r},{g},{b});color:{ink}"
         for value, (r, g, b), ink in zip(row, own.tolist(), inks_on(own), strict=True)]
        for row, own in zip(values, colors, strict=True)
    ]  # fmt: skip
