"""Large: text and figures that can be read from the back row, switched on in the header for every page."""

import streamlit as st

from pages.browser import streamlit_dom

LARGE = "learn_large"  # key of the switch, and its parameter in the address
KEYS = {LARGE}
# In proportion to the window: 1280 and 1920 pixels fill the same wall. A phone is held in the hand.
_STYLE = streamlit_dom.filled(
    "@media (min-width:768px){html{font-size:clamp(18px,1.4vw,32px) !important}"
    "%sidebar%[aria-expanded=true]{min-width:15.5rem !important;max-width:15.5rem !important}"
    "%app% .qs-name{left:.7rem}"
    "%app% .qs-name p{width:10rem;white-space:normal;line-height:1.1}}"
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
