"""What a page shows, in words: printed beneath its pictures, whose script takes it from the attribute (picture.js)."""

import html

import streamlit as st


def attribute(words: str) -> str:
    """The attribute of an element of HTML that the page draws in any case; the first one on a page counts."""
    return f'data-shown="{html.escape(words)}"'


def draw(words: str) -> None:
    """Draw an unseen element that has the attribute, on pages without another that could have it."""
    st.container(key="qs_small_print").html(f"<p {attribute(words)}></p>")
