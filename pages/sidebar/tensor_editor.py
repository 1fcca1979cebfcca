"""A grid for editing a small tensor like a spreadsheet."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import quantcore as qc

SIDE = 16
_BASE, _VERSION = "_grid_base", "_grid_version"
_ROWS, _COLUMNS = "_grid_rows", "_grid_columns"


def restart() -> None:
    """Discard what was typed; the next `draw` starts from its argument."""
    for key in (_BASE, _ROWS, _COLUMNS):
        st.session_state.pop(key, None)


def draw(x: np.ndarray) -> np.ndarray:
    """Draw an editor for x, of up to 16×16 elements, and return the edited values.

    The widget stores edits relative to the frame it was given, so that frame stays the same until the editor
    disappears (another source, another page) or its size changes; then it restarts from x.

    Raises:
        QuantError: a cell is empty or not a number, or x is too large.
    """
    rows, columns = x.reshape(-1, x.shape[-1]).shape if x.ndim else (1, 1)
    if max(rows, columns) > SIDE or x.ndim > 2:
        raise qc.QuantError(
            f"The grid holds up to {SIDE}×{SIDE} elements, and this tensor has shape {x.shape}; paste it instead."
        )
    left, right = st.columns(2)
    wanted = (
        left.number_input("Rows", 1, SIDE, rows, key=_ROWS),
        right.number_input("Columns", 1, SIDE, columns, key=_COLUMNS),
    )
    values = np.zeros(wanted, np.float32)
    values[:rows, :columns] = x.reshape(rows, columns)[: wanted[0], : wanted[1]]
    version = st.session_state.setdefault(_VERSION, 0)
    base = st.session_state.get(_BASE)
    if base is None or base.shape != wanted or f"_grid_{version}" not in st.session_state:
        st.session_state[_VERSION] = version = version + 1
        # as text: a numeric column silently reads 1e-3 as 13
        exact = [[str(v).removesuffix(".0") for v in row] for row in values]
        st.session_state[_BASE] = base = pd.DataFrame(exact, columns=[str(i) for i in range(wanted[1])])
    typed = st.data_editor(
        base,
        key=f"_grid_{version}",
        num_rows="fixed",
        height="content",
        column_config=_columns(base),
    )
    return np.array([[_number(v, r, c) for c, v in enumerate(row)] for r, row in enumerate(typed.to_numpy())])


def _columns(base: pd.DataFrame) -> dict[str, Any]:
    """Make columns wide enough for their numbers: one too long for its column would lose its first digits."""
    widths = {c: max(64, 18 + 7 * int(base[c].str.len().max())) for c in base.columns}
    return {c: st.column_config.TextColumn(c, width=w, alignment="right") for c, w in widths.items()}


def _number(typed: object, row: int, column: int) -> np.float32:
    text, cell = str(typed or "").strip().replace("−", "-"), f"The cell in row {row}, column {column}"
    if not text:
        raise qc.QuantError(f"{cell} is empty; type a number.")
    try:
        value = float(text)
    except ValueError:
        raise qc.QuantError(
            f"{cell} contains {text[:40]!r}, which is not a number; type one such as 0.5."
        ) from None
    if np.isfinite(value) and abs(value) > np.finfo(np.float32).max:
        raise qc.QuantError(
            f"{cell} is outside float32, whose largest value is 3.4e38; type a smaller number."
        )
    return np.float32(value)
