"""What columns of tables are called on the page, and how their numbers are written.

In code a column has quantcore's name (``sqnr_db``); the words for it are here, and nowhere else. A number's
format and its column's width follow from all the numbers of the column, so that none loses digits at its edge.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

LABELS = {
    # of schemes and blocks
    "name": "Name",
    "scheme": "Scheme",
    "format": "Format",
    "library": "Library",
    "method": "Method",
    "block": "Block",
    "scale": "Scale",
    "zero_point": "Zero point",
    "low": "Low",
    "high": "High",
    "offset": "Offset (AIMET)",
    "min": "Min",
    "max": "Max",
    # metrics
    "bits_per_element": "Bits per element",
    "sqnr_db": "SQNR (dB)",
    "SQNR": "SQNR (dB)",
    "mse": "MSE",
    "MSE": "MSE",
    "mae": "MAE",
    "sse": "Sum of squared errors",
    "rmse": "RMSE",
    "max_abs_error": "max |error|",
    "cosine": "Cosine similarity",
    "clipped": "Clipped",  # its cells bear the percent sign
    "clipped_fraction": "Clipped",
    "clipping_sse": "Clipping error (SSE)",
    "rounding_sse": "Rounding error (SSE)",
    "codes_used": "Codes used",
    "codes_available": "Codes available",
    "seconds": "Time (s)",
    "refused": "Not supported because",
    "codes that differ": "Codes that differ",
    # of number formats
    "bits": "Bits",
    "values": "Values",
    "lowest normal": "Smallest normal",
    "smallest": "Smallest above 0",
    "epsilon": "Epsilon",
    "code": "Code",
    "rounds to": "Rounds to",
    "error": "Error",
    "note": "Note",
}
PERCENT = {"clipped", "clipped_fraction"}  # held as fractions
DIGIT, LETTER, MARGIN = 7, 6.2, 22  # px: of a number and of a head at the tables' size, and beside them
MIN_FIXED, MAX_FIXED = 1e-3, 1e9  # a column of numbers below or up to these has powers of ten


def label(name: str) -> str:
    """What a column is called on the page."""
    return LABELS[name]


def number_format(values: Any, digits: int = 4) -> str:
    """Return the printf format of a column: of integers, of small or large numbers alone, of any others.

    >>> number_format([3.0, -8.0]), number_format([0.5, -6e-5]), number_format([0.0, 6e-5]), number_format([2.5e9])
    ('%d', '%.4g', '%.3e', '%.3e')
    """
    finite = _numbers(values)
    largest = float(np.abs(finite).max(initial=0.0))
    if largest < MAX_FIXED and (finite == np.round(finite)).all():
        return "%d"
    return f"%.{digits}g" if MIN_FIXED <= largest < MAX_FIXED else f"%.{digits - 1}e"


def width(values: Any, shown: str, head: str) -> int:
    """Return the px that a column needs for its longest number and its head."""
    longest = max((len(written(v, shown)) for v in np.unique(_numbers(values))), default=1)
    return int(max(DIGIT * longest, LETTER * len(head))) + MARGIN


def columns(
    frame: pd.DataFrame, digits: int = 4, skip: Iterable[str] = (), heads: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the configuration of every column of a table but ``skip``, for st.dataframe.

    Args:
        digits: significant digits of numbers.
        heads: other words than `LABELS` has, by column.
    """
    found: dict[str, Any] = {}
    for name in frame.columns:
        if name in skip:
            continue
        head, values = (heads or {}).get(name) or LABELS[name], frame[name]
        if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
            found[name] = st.column_config.Column(head)
            continue
        if name in PERCENT:
            found[name] = st.column_config.NumberColumn(head, format="percent")
            continue
        shown = number_format(values, digits)
        found[name] = st.column_config.NumberColumn(head, format=shown, width=width(values, shown, head))
    return found


def numbers(frame: pd.DataFrame, digits: int = 6) -> dict[str, Any]:
    """Return the configuration of a table of one kind of numbers: all in one format, in columns of one width."""
    if frame.to_numpy().dtype.kind == "i":
        return {}
    shown = number_format(frame.to_numpy(), digits)
    room = width(frame.to_numpy(), shown, "")
    return {name: st.column_config.NumberColumn(format=shown, width=room) for name in frame.columns}


def _numbers(values: Any) -> np.ndarray:
    array = np.asarray(values, np.float64).reshape(-1)
    return array[np.isfinite(array)]


def written(value: float, shown: str) -> str:
    """A number as the browser writes it: %g keeps all zeros before the digits down to 1e-6.

    >>> written(6.948e-05, "%.4g"), written(6.948e-05, "%.3e"), written(0.5, "%.4g")
    ('0.00006948', '6.948e-5', '0.5')
    """
    text = shown % value
    if shown.endswith("e"):
        digits, _, power = text.partition("e")
        return f"{digits}e{int(power):+d}"
    rounded = float(text)
    return (
        np.format_float_positional(rounded, trim="-") if 1e-6 <= abs(rounded) < 1e21 or not rounded else text
    )
