"""Tables of results: columns and formats, which rows are shown, where a click leads, files with all rows.


In code a column has quantcore's name (``sqnr_db``); its label is defined only here. The number format and the
width of a column follow from all its numbers, so that none is truncated.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from quantcore.wording import sentence

if TYPE_CHECKING:  # a first page draws no table, and pandas takes a third of a second
    import pandas as pd

# of columns whose name does not say it in words
LABELS = {
    "offset": "Offset (AIMET)",
    "sqnr_db": "SQNR (dB)",
    "output_sqnr_db": "Output SQNR (dB)",
    "SQNR": "SQNR (dB)",
    "mse": "MSE",
    "mae": "MAE",
    "sse": "Sum of squared errors",
    "rmse": "RMSE",
    "max_abs_error": "max |error|",
    "cosine": "Cosine similarity",
    "clipped_fraction": "Clipped",  # its cells show the percent sign
    "clipping_sse": "Clipping error (SSE)",
    "rounding_sse": "Rounding error (SSE)",
    "seconds": "Time (s)",
    "refused": "Not supported because",
    "lowest normal": "Smallest normal",
    "smallest": "Smallest above 0",
}
T = TypeVar("T")
PERCENT = {"clipped", "clipped_fraction"}  # stored as fractions
DIGIT, LETTER, MARGIN = 7, 6.2, 22  # px: per digit, per letter of a header, and padding
MIN_FIXED, MAX_FIXED = 1e-3, 1e9  # columns whose largest number is outside use scientific notation


def label(name: str) -> str:
    """Return the label of a column: one of `LABELS`, or its name in words."""
    return LABELS.get(name) or sentence(name.replace("_", " "))


def headed(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of a table whose headers begin with a capital, as those of all tables do."""
    return [{sentence(name): value for name, value in row.items()} for row in rows]


def number_format(values: Any, digits: int = 4) -> str:
    """Return the printf format of a column: for integers, for very small or large numbers, and for others.

    >>> [number_format(column) for column in ([3.0, -8.0], [0.5, -6e-5], [0.0, 6e-5], [2.5e9])]
    ['%d', '%.4g', '%.3e', '%.3e']
    """
    finite = _numbers(values)
    largest = float(np.abs(finite).max(initial=0.0))
    if largest < MAX_FIXED and (finite == np.round(finite)).all():
        return "%d"
    return f"%.{digits}g" if MIN_FIXED <= largest < MAX_FIXED else f"%.{digits - 1}e"


def width(values: Any, shown: str, head: str) -> int:
    """Return the width in px that a column needs for its longest number and its header."""
    longest = max((len(written(v, shown)) for v in np.unique(_numbers(values))), default=1)
    return int(max(DIGIT * longest, LETTER * len(head))) + MARGIN


def filling(key: str, rows: int) -> DeltaGenerator:
    """Return a place for a table of so many rows that fills the window to its bottom (page.css), but has no
    empty rows; give the table the height "stretch".
    """
    st.html(f"<style>html{{--qs-rows:{rows}}}</style>")
    return st.container(key=key, height=400, border=False)


def columns(
    frame: "pd.DataFrame", digits: int = 4, skip: Iterable[str] = (), heads: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the configuration of all columns of a table except ``skip``, for st.dataframe.

    Args:
        digits: significant digits of numbers.
        heads: labels that replace those of `label`, by column.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    found: dict[str, Any] = {}
    for name in frame.columns:
        if name in skip:
            continue
        head, values = (heads or {}).get(name) or label(name), frame[name]
        if is_bool_dtype(values) or not is_numeric_dtype(values):
            found[name] = st.column_config.Column(head)
            continue
        if name in PERCENT:
            found[name] = st.column_config.NumberColumn(head, format="percent")
            continue
        shown = number_format(values, digits)
        found[name] = st.column_config.NumberColumn(head, format=shown, width=width(values, shown, head))
    return found


def numbers(frame: "pd.DataFrame") -> dict[str, Any]:
    """Return the configuration of a table of numbers of one kind: one format and width for all columns."""
    if frame.to_numpy().dtype.kind == "i":
        return {}
    shown = number_format(frame.to_numpy(), 6)
    room = width(frame.to_numpy(), shown, "")
    return {name: st.column_config.NumberColumn(format=shown, width=room) for name in frame.columns}


def sqnr_column(
    frame: "pd.DataFrame", name: str, label: str, pattern: str = "%.4g"
) -> tuple["pd.DataFrame", Any]:
    """Return a table and how to show its SQNR: numbers, or text if one is infinite; NaN stays empty."""
    values = frame[name]
    if not np.isinf(values).any():
        return frame, st.column_config.NumberColumn(label, format=pattern)
    words = [None if np.isnan(v) else pattern % v if np.isfinite(v) else qc.decibels(v) for v in values]
    return frame.assign(**{name: words}), st.column_config.TextColumn(label, alignment="right")


def _numbers(values: Any) -> np.ndarray:
    array = np.asarray(values, np.float64).reshape(-1)
    return array[np.isfinite(array)]


def written(value: float, shown: str) -> str:
    """Write a number as the browser does: %g is positional down to 1e-6.

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


def containing(frame: "pd.DataFrame", columns: list[str], typed: str) -> "pd.DataFrame":
    """Return the rows in whose columns every typed word occurs."""
    text = frame[columns].agg(" ".join, axis=1).str.lower()
    for word in typed.lower().split():
        inside = text.str.contains(word, regex=False)
        frame, text = frame[inside], text[inside]
    return frame


def clickable(
    frame: "pd.DataFrame", key: str, targets: Sequence[T], on_click: Callable[[T], None], **options: Any
) -> None:
    """Draw a table; a click on any cell of a row calls ``on_click`` with the row's target.

    Args:
        options: of `st.dataframe`.
    """

    def clicked() -> None:
        for row, _ in st.session_state[key]["selection"]["cells"]:
            if row < len(targets):
                on_click(targets[row])

    st.dataframe(
        frame,
        hide_index=True,
        placeholder="–",
        key=key,
        on_select=clicked,
        selection_mode="single-cell",
        **options,
    )


def downloads(
    frame: "pd.DataFrame", shown: "pd.DataFrame", name: str, head: Callable[[str], str] = str
) -> None:
    """Draw the buttons that download a table: all of ``frame`` as CSV, the columns ``shown`` as Markdown."""
    with st.container(horizontal=True):
        st.download_button("CSV", frame.to_csv(index=False), f"{name}.csv", "text/csv")
        st.download_button("Markdown", markdown(shown, head), f"{name}.md", "text/markdown")


def markdown(frame: "pd.DataFrame", head: Callable[[str], str] = str) -> str:
    """Write a table as Markdown; ``head``: what a column is called."""
    lines = [[head(column) for column in frame.columns], ["---"] * len(frame.columns)]
    lines += [
        [f"{v:.5g}" if isinstance(v, float) else " ".join(str(v).replace("|", "\\|").split()) for v in row]
        for row in frame.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
