"""Light or dark, for figures."""

import streamlit as st


def theme() -> str:
    """light or dark, as the visitor has it."""
    return st.context.theme.type or "light"
