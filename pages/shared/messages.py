"""Messages to the visitor. Text from a visitor or a link is shown as it is, never as Markdown."""

import html
from collections.abc import Iterable
from typing import Any

import streamlit as st


def error(text: str, place: Any = st) -> None:
    """Show what is wrong, and what to do."""
    place.error(plain(text), icon=":material/error:")


def warning(text: str, place: Any = st) -> None:
    """Show what was done although it is probably a mistake."""
    place.warning(plain(text), icon=":material/warning:")


def hint(text: str, place: Any = st) -> None:
    """Show what to do next."""
    place.info(plain(text), icon=":material/info:")


def lines(rows: Iterable[str], name: str = "", hang: int = 0, heading: str = "") -> None:
    """Show lines in a monospaced font, as `lines_markup` writes them."""
    st.html(lines_markup(rows, name, hang, heading))


def lines_markup(rows: Iterable[str], name: str = "", hang: int = 0, heading: str = "") -> str:
    """Write lines in a monospaced font as HTML.

    ``name``: a CSS class by which scripts find them; ``hang``: if above 0, long lines are continued below,
    after so many columns; ``heading``: stands above them, in the same element.


    Not with st.code: its highlighter is not needed here and takes an eighth of the time of the first view.
    """
    style = (
        "font:var(--qs-small)/1.5 var(--qs-mono);margin:0;padding:.75rem;"
        "border-radius:.5rem;background:rgba(128,128,128,.09);"
        + ("white-space:pre-wrap;overflow-wrap:break-word" if hang else "overflow-x:auto")
    )
    span = f'<span style="display:block;padding-left:{hang}ch;text-indent:-{hang}ch">' if hang else ""
    shown = (
        (f"{span}{html.escape(row)}</span>" for row in rows) if hang else [html.escape(chr(10).join(rows))]
    )
    above = f"<p style='margin:0 0 .5rem'><strong>{html.escape(heading)}</strong></p>" if heading else ""
    return f"{above}<pre class='{name}' style='{style}'>{''.join(shown)}</pre>"


def plain(text: str) -> str:
    """Escape a text so that Markdown shows it as it is."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]<>#$:|~!" else c for c in text)
