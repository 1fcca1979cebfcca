"""Small pictures of values, for cards."""

import numpy as np
from plotly.colors import unlabel_rgb

from quantcore.figures.style import palette


def thumbnail(values: np.ndarray, name: str, bounds: tuple[float, float], theme: str = "light") -> np.ndarray:
    """Return a matrix in colors: uint8 [rows, columns, 3].

    Args:
        values: [rows, columns]; NaN is drawn like the lower bound.
        name: of a palette; see `palette`.
        bounds: the values at its ends; others are clamped to them.
    """
    low, high = bounds
    scale = palette(name, theme)
    at = np.clip((np.nan_to_num(values, nan=low) - low) / ((high - low) or 1.0), 0, 1)
    places = [place for place, _ in scale]
    colors = np.array([unlabel_rgb(color) for _, color in scale])
    return np.stack([np.interp(at, places, colors[:, k]) for k in range(3)], -1).round().astype(np.uint8)
