"""What the code pasted into Match does to the tensor, compared with the scheme that it intends."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import quantcore as qc
from pages.maps import cells
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state.selection import Tensor
from quantcore import code_reading

_CHOSEN = "match_code_chosen"
MOST = 1 << 18  # elements; a larger tensor is reduced to its first rows
SIDE = 8  # rows and columns of the tensor shown as numbers


def draw(reading: qc.CodeReading, tensor: Tensor) -> None:
    """Draw the errors of the code and of the scheme that it intends, and the codes of both."""
    if not reading.quantizers:
        return
    st.markdown(f"##### On the tensor {messages.plain(tensor.title)}")
    place = _chosen(reading)
    try:
        shown = cache.cached(
            tensor,
            f"code {place} {reading.text}",
            lambda: code_reading.show(reading.quantizers[place], _first_rows(tensor)),
        )
    except qc.QuantError as error:
        messages.hint(str(error))
        return
    differing = int(shown.codes.ne(shown.right.codes.float()).sum())
    _table(shown, differing)
    if shown.codes.numel() < cache.size(tensor):
        rows = shown.codes.shape[0]
        st.caption(
            f"This tensor is large: only the first {rows:,} indices along axis 0 are used, even for the scale."
        )
    st.caption(messages.plain(_sentence(shown, differing)))
    _numbers(shown)


def _chosen(reading: qc.CodeReading) -> int:
    """Draw the choice of a quantizer if the code has several; return its index. Default: the first with a mistake."""
    quantizers = list(reading.quantizers)
    wrong = next((f.quantizer for f in reading.findings if f.quantizer is not None and f.certain), None)
    place = quantizers.index(wrong) if wrong in quantizers else 0
    if len(quantizers) == 1:
        return place
    lines = [quantizer.codes.ops[0].line for quantizer in quantizers]
    return int(
        st.selectbox(
            "Quantizer",
            range(len(quantizers)),
            index=place,
            key=f"{_CHOSEN}_{len(quantizers)}_{place}",
            format_func=lambda i: f"Quantizer {i + 1}, line {lines[i]}",
            width=260,
        )
    )


def _table(shown: code_reading.Shown, differing: int) -> None:
    """Draw the errors of the code and of the scheme."""
    size = shown.codes.numel()
    code_db, right_db = shown.sqnr_db
    columns = {
        "": ["Your code", str(shown.scheme)],
        "Codes that differ": [f"{differing:,} of {size:,}", ""],
        "Values made worse": [f"{int(shown.too_far.sum()):,} of {size:,}", ""],
        "SQNR (dB)": [f"{code_db:.2f}", f"{right_db:.2f}"],
    }
    worse = st.column_config.TextColumn(help="Off by more than half a step, and by more than with the scheme")
    st.dataframe(
        pd.DataFrame(columns), hide_index=True, column_config={"Values made worse": worse}, width="stretch"
    )


def _first_rows(tensor: Tensor) -> np.ndarray:
    """The tensor, or as many of its first rows as can be quantized quickly; at least one."""
    x = cache.values(tensor)
    return x[: max(1, MOST * len(x) // x.size)] if x.size > MOST else x


def _sentence(shown: code_reading.Shown, differing: int) -> str:
    """How the pasted code's result differs from the scheme's."""
    size, wrong = shown.codes.numel(), int(shown.wrong_cells.sum())
    if shown.outside:
        verb = "is not a code" if shown.outside == 1 else "are not codes"
        return f"{shown.outside:,} of {size:,} values {verb} of {shown.scheme.format} and can't be stored."
    if not wrong:
        return f"On this tensor all {size:,} codes equal those of {shown.scheme}."
    if not differing:
        return f"The codes are equal; {wrong:,} of {size:,} dequantized values differ."
    code_db, right_db = shown.sqnr_db
    change = code_db - right_db
    effect = (
        f"SQNR {change:+.2f} dB against {shown.scheme}" if np.isfinite(change) else "see both SQNRs above"
    )
    return f"{differing:,} of {size:,} codes differ: {effect}."


def _numbers(shown: code_reading.Shown) -> None:
    """Draw the first rows and columns, with the cells that differ marked."""

    def corner(values: Any) -> np.ndarray:
        array = np.atleast_1d(values.numpy() if hasattr(values, "numpy") else values)
        return array.reshape(-1, array.shape[-1])[:SIDE, :SIDE]

    marks = np.where(corner(shown.codes.ne(shown.right.codes.float())), "wrong", "")
    back = np.where(corner(shown.too_far), "wrong", "")
    codes = corner(shown.codes)
    integers = codes.astype(np.int64) if (codes == codes.round()).all() else codes
    tables = [
        cells.Table("x", corner(shown.right.x)),
        cells.Table("Your codes", integers, marks),
        cells.Table(f"Codes of {shown.scheme.format}", corner(shown.right.codes)),
        cells.Table("Your x̂", corner(shown.dequantized), back),
    ]
    cells.draw(tables, "match_code_cells")
    if shown.codes.numel() > codes.size:
        st.caption(f"The first {codes.shape[0]} rows and {codes.shape[1]} columns.")
