"""Ways from Match to other pages, and from the lesson on mistakes to Match: a callback notes where, the next run goes."""

import numpy as np
import streamlit as st

import quantcore as qc
from pages.compare.match import controls
from pages.shared import lesson_plan
from pages.shared.state import link
from pages.sidebar import scheme_state, tensor_controls

_TO = "_match_to"  # the script of the page


def leave() -> None:
    """Open the page that a button of the last run leads to; call it before drawing anything."""
    script = st.session_state.pop(_TO, None)
    # no parameters: Streamlit refuses to clear bound ones, and the widgets of the other page set their own
    if script:
        st.switch_page(script, query_params={})


def to_lesson(name: str, step: str) -> None:
    """Open a step of a lesson (a callback)."""
    if step:
        st.session_state[lesson_plan.step_key(name)] = step
    st.session_state[_TO] = lesson_plan.script(name)


def to_match(x: np.ndarray, codes: np.ndarray) -> None:
    """Open Match with a tensor and codes (a callback)."""
    text = tensor_controls.write(x)
    link.put({"src": "paste", tensor_controls.PASTED: text, scheme_state.RANK: x.ndim})
    controls.put(codes)
    st.session_state[_TO] = "compare/match/page.py"


def to_explore(scheme: qc.Scheme) -> None:
    """Open Explore with a scheme (a callback)."""
    try:
        scheme_state.apply_scheme(scheme)
    except qc.QuantError as error:
        st.session_state[scheme_state.TEXT_ERROR] = str(error)
    st.session_state[_TO] = "explore/quantize/page.py"
