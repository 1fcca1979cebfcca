"""Sentences to the visitor. What a visitor or a link wrote is shown as text, never as Markdown."""

import html
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

import quantcore as qc


def error(text: str, place: Any = st) -> None:
    """Say what can't be done, and what to do."""
    place.error(plain(text), icon=":material/error:")


def warning(text: str, place: Any = st) -> None:
    """Say what was done although it is likely a mistake."""
    place.warning(plain(text), icon=":material/warning:")


def hint(text: str, place: Any = st) -> None:
    """Say what to do next."""
    place.info(plain(text), icon=":material/arrow_back:")


def lines(rows: Iterable[str], name: str = "") -> None:
    """Show lines whose columns stand below each other; ``name``: a class, for what looks for them in the page.

    Not by st.code: its highlighter, which has nothing to do here, costs the first view an eighth of its time.
    """
    style = (
        'font-family:"Source Code Pro",monospace;font-size:.875rem;line-height:1.5;margin:0;padding:.75rem;'
        "border-radius:.5rem;background:rgba(128,128,128,.09);overflow-x:auto"
    )
    st.html(f"<pre class='{name}' style='{style}'>{html.escape(chr(10).join(rows))}</pre>")


def sqnr_column(
    frame: pd.DataFrame, name: str, label: str, pattern: str = "%.4g"
) -> tuple[pd.DataFrame, Any]:
    """A table and the look of its column of SQNRs: numbers, or words where one is infinite; a gap stays a gap."""
    values = frame[name]
    if not np.isinf(values).any():
        return frame, st.column_config.NumberColumn(label, format=pattern)
    words = [None if np.isnan(v) else pattern % v if np.isfinite(v) else qc.decibels(v) for v in values]
    return frame.assign(**{name: words}), st.column_config.TextColumn(label, alignment="right")


def plain(text: str) -> str:
    """Keep Markdown from reading a text."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$:|~!" else c for c in text)
