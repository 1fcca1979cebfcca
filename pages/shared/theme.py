"""The theme, for figures."""

import streamlit as st


def theme() -> str:
    """The visitor's theme: "light" or "dark"."""
    return st.context.theme.type or "light"
