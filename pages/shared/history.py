"""What Back undoes, on every page: the whole of what one act of the visitor changed."""

from pathlib import Path

import streamlit as st

_COMPONENT = st.components.v2.component(
    "quantscope_history",
    js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def watch() -> None:
    """To be called once a run; draws nothing."""
    _COMPONENT(key="qs_history", height=0)
