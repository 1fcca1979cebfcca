"""The sidebar: the tensor, then the scheme, each shown on the pages that use it."""

from collections.abc import Set

import streamlit as st

import quantcore as qc
from pages.browser.scripts import WITHOUT_SIDEBAR
from pages.shared.cards import Card
from pages.shared.page import SCHEME, TENSOR, Page
from pages.shared.state import selection
from pages.sidebar import changed, followed, paste_examples, scheme_controls, scheme_state, tensor_controls

# Link parameters of the sidebar's controls, and those that a link must not leave empty
KEYS = {*scheme_state.DEFAULTS, *tensor_controls.DEFAULTS, *tensor_controls.PARAMETERS}
REQUIRED = {"codes", "mode", "overflow"}


def draw(page: Page) -> None:
    """Draw all controls and store tensor, scheme and errors in `selection` for the page.

    Controls that the page does not use are drawn too, but hidden: Streamlit drops the value and the link
    parameter of a widget that is not drawn.
    """
    problems: list[tuple[str, str]] = []  # part of the sidebar, error
    tensor, scheme, hint, used = None, None, "", page.used()
    cards: tuple[Card, ...] = ()
    try:
        with st.container(key=f"{TENSOR}_controls"):
            tensor = tensor_controls.draw()
        st.session_state["_shape"] = tensor.shape
    except selection.NoTensorYet as waiting:
        hint = str(waiting)
        state = st.session_state
        empty = state["src"] == "paste" and not state.get(tensor_controls.PASTED, "").strip()
        cards = paste_examples.cards() if empty else ()
    except qc.QuantError as error:
        problems.append((TENSOR, str(error)))
    scheme_state.take_linked(len(st.session_state.get("_shape", (8, 8))))
    text_error = st.session_state.get(scheme_state.TEXT_ERROR)
    if text_error:
        problems.append((SCHEME, text_error))
    try:
        with st.container(key=f"{SCHEME}_controls"):
            scheme = scheme_controls.draw(st.session_state.get("_shape", (8, 8)), tensor)
    except qc.QuantError as error:
        problems.append((SCHEME, str(error)))
    every = tuple(problem for _, problem in problems)
    acting = tuple(problem for part, problem in problems if part in used)
    fitted = st.session_state.get("format") == scheme_controls.FITTED  # to this tensor, by a search
    at = (
        {}
        if fitted
        else followed.controls(tensor, scheme, changed.last(tensor), str(st.session_state.get("per")))
    )
    selection.put(selection.Current(tensor, scheme, every, acting, hint, cards, used, at, followed.moved))
    show_used(used)


def show_used(used: Set[str]) -> None:
    """Hide the parts of the sidebar that are not used, or the whole sidebar if none is.

    On narrow windows the sidebar stays: there, Streamlit puts the navigation into it.

    Call it again when the page has changed what it uses: a step back in the browser's history changes its
    controls as they are drawn.
    """
    hidden = [f".st-key-{part}_controls" for part in (TENSOR, SCHEME) if part not in used]
    if hidden:
        st.html(f"<style>{','.join(hidden)}{{display:none}}{'' if used else WITHOUT_SIDEBAR}</style>")
