"""The top of Explore: the scheme as text, the pin, and how the library differs from the textbook."""

import html

import streamlit as st

import quantcore as qc
from pages.shared.state import mirrored, pinned
from pages.shared.state.selection import Current
from pages.sidebar import scheme_state


def scheme_line(chosen: Current) -> None:
    """Draw the editable text form of the scheme, and the pin."""
    mistyped = st.session_state.pop(scheme_state.TEXT_ERROR, None)  # the field keeps the text for correction
    key = mirrored.key_of(scheme_state.TEXT)
    if chosen.scheme is not None and not mistyped:
        key = mirrored.key_at(scheme_state.TEXT, str(chosen.scheme))
    # one row instead of columns: fewer elements to draw in every run
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="scheme_row")
    row.container(key=scheme_state.TEXT).text_input(
        "Scheme as text",
        # in addition to the session state: an interrupted run loses a value that is set only there
        value=str(chosen.scheme or ""),
        key=key,
        on_change=scheme_state.apply_text,
        args=(key,),
        label_visibility="collapsed",
        help="The whole scheme in one line: copy it, or type another one and press Enter.",
    )
    pinned.button(row, chosen.scheme)


def library_line(scheme: qc.Scheme) -> None:
    """Draw one line on how the chosen library differs from the textbook."""
    convention = scheme.convention
    if convention.name == qc.TEXTBOOK.name:
        return
    phrases = qc.differences(scheme)
    summary = "; ".join(phrases) if phrases else "no difference for this scheme"
    full = html.escape(f"{summary}. Reproduces {convention.call}")
    st.html(
        f'<p class="qs-line qs-library"><span title="{full}"><b>{html.escape(convention.library)} '
        f"{html.escape(convention.version)}</b> against the textbook: {html.escape(summary)}</span></p>"
    )
