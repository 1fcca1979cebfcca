"""Large: text and figures that can be read from the back row, switched on in the header for every page."""

import streamlit as st

from pages.browser import streamlit_dom

LARGE = "learn_large"  # key of the switch, and its parameter in the address
KEYS = {LARGE}
# In proportion to the window: 1280 and 1920 pixels fill the same wall. A phone is held in the hand. On
# Explore the maps get the room: the answer stands whole beside its question, and the examples below the maps.
_STYLE = streamlit_dom.filled(
    "@media (min-width:768px){html{font-size:clamp(18px,1.4vw,32px) !important}"
    "%app% .qs-name{left:.7rem}"
    "%app% .qs-name p{width:10rem;white-space:normal;line-height:1.1}"
    ".st-key-source_row{flex-wrap:wrap !important}"
    ".st-key-source_row>*{flex:1 0 100% !important}"
    ".st-key-question_row{gap:.4rem}"
    ".st-key-question_row .qs-question{font-size:calc(.95 * var(--qs-text))}"
    ".st-key-question_row .qs-question b{margin-right:.4rem;font-size:inherit}"
    ".st-key-question_row button{padding:0 .5rem}"
    ".st-key-question_row button p{position:absolute;clip-path:inset(50%)}"
    ".st-key-summary{min-height:0}"
    ".st-key-explore %layout%:has(>.st-key-finding_examples){order:1}"
    ".st-key-explore %layout%:has(>.st-key-map_controls){order:2}"
    ".st-key-explore>%tabs%{order:3}}"
)


def is_large() -> bool:
    """Tell whether text and figures are large enough to read from the back row."""
    return bool(st.session_state.get(LARGE))


def switch() -> str:
    """Draw the switch, once per run, and return the style rules that its state asks for.

    The style of the pages moves it into the header.
    """
    st.toggle(
        "Large",
        key=LARGE,
        bind="query-params",
        help="Larger text and figures for a projector, on every page. A copied link leaves it out.",
    )
    return _STYLE if is_large() else ""
