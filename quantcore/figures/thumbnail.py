"""Small pictures of values, for cards."""

import numpy as np

from quantcore.figures.style import colors_at, palette


def thumbnail(values: np.ndarray, name: str, bounds: tuple[float, float], theme: str = "light") -> np.ndarray:
    """Return a matrix in colors: uint8 [rows, columns, 3].

    Args:
        values: [rows, columns]; NaN is drawn like the lower bound.
        name: of a palette; see `palette`.
        bounds: the values at its ends; others are clamped to them.
    """
    return colors_at(values, *bounds, palette(name, theme))
