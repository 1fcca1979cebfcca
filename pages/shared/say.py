"""Sentences to the visitor. What a visitor or a link wrote is shown as text, never as Markdown."""

from typing import Any

import streamlit as st


def error(text: str, place: Any = st) -> None:
    """Say what can't be done, and what to do."""
    place.error(plain(text), icon=":material/error:")


def warning(text: str, place: Any = st) -> None:
    """Say what was done although it is likely a mistake."""
    place.warning(plain(text), icon=":material/warning:")


def hint(text: str, place: Any = st) -> None:
    """Say what to do next."""
    place.info(plain(text), icon=":material/arrow_back:")


def plain(text: str) -> str:
    """Keep Markdown from reading a text."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$:|~!" else c for c in text)
