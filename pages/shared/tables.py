"""Tables of results: which rows are shown, where a click leads, and the files with their rows."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pandas as pd
import streamlit as st

T = TypeVar("T")


def containing(frame: pd.DataFrame, columns: list[str], typed: str) -> pd.DataFrame:
    """The rows in whose columns every typed word occurs."""
    text = frame[columns].agg(" ".join, axis=1).str.lower()
    for word in typed.lower().split():
        inside = text.str.contains(word, regex=False)
        frame, text = frame[inside], text[inside]
    return frame


def clickable(
    frame: pd.DataFrame, key: str, targets: Sequence[T], on_click: Callable[[T], None], **options: Any
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


def downloads(frame: pd.DataFrame, shown: pd.DataFrame, name: str, head: Callable[[str], str] = str) -> None:
    """Draw the buttons that download a table: as CSV with all of ``frame``, as Markdown with the columns ``shown``."""
    with st.container(horizontal=True):
        st.download_button("CSV", frame.to_csv(index=False), f"{name}.csv", "text/csv")
        st.download_button("Markdown", markdown(shown, head), f"{name}.md", "text/markdown")


def markdown(frame: pd.DataFrame, head: Callable[[str], str] = str) -> str:
    """A table as Markdown; ``head``: what a column is called."""
    lines = [[head(column) for column in frame.columns], ["---"] * len(frame.columns)]
    lines += [
        [f"{v:.5g}" if isinstance(v, float) else " ".join(str(v).replace("|", "\\|").split()) for v in row]
        for row in frame.itertuples(index=False)
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
