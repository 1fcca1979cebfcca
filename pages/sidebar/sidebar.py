"""The sidebar: the tensor, then the scheme, each on the pages on which it acts."""

import streamlit as st

import quantcore as qc
from pages.shared import selection
from pages.shared.page import SCHEME, TENSOR, Page
from pages.sidebar import scheme_controls, scheme_state, tensor_controls

# Parameters of the link that the sidebar's controls are bound to, and those that a link must not empty
KEYS = {*scheme_state.DEFAULTS, *tensor_controls.DEFAULTS, *tensor_controls.PARAMETERS}
REQUIRED = {"codes", "mode", "overflow"}


def draw(page: Page) -> None:
    """Draw all controls and leave what they chose in `current`; errors wait there for the page to show.

    Those that do not act on the page are drawn too, out of sight: they keep what was chosen, and its place in the
    link, which Streamlit takes away from controls that are not drawn.
    """
    problems: list[tuple[str, str]] = []  # the part of the sidebar, and what is wrong with it
    tensor, scheme, hint, used = None, None, "", page.used()
    try:
        with st.container(key=f"{TENSOR}_controls"):
            tensor = tensor_controls.draw()
        st.session_state["_shape"] = tensor.shape
    except selection.NoTensorYet as waiting:
        hint = str(waiting)
    except qc.QuantError as error:
        problems.append((TENSOR, str(error)))
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
    selection.put(selection.Current(tensor, scheme, every, acting, hint, used))
    show_used(page)


def show_used(page: Page) -> None:
    """Show what acts on the page, and hide the rest; all of the sidebar where nothing does.

    To be called again after the page: a step back in the browser's history changes its controls as they are drawn.
    """
    used = page.used()
    hidden = [f".st-key-{part}_controls" for part in (TENSOR, SCHEME) if part not in used]
    if not used:
        hidden = ["[data-testid=stSidebar]", "[data-testid=stExpandSidebarButton]"]
    st.html(f"<style>{','.join(hidden) or '.nothing'}{{display:none}}</style>")
