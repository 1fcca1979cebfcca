"""The sidebar: the tensor, then the scheme."""

import streamlit as st

import quantcore as qc
from pages.shared import current, scheme_controls, scheme_state, tensor_controls


def draw() -> None:
    """Draw all controls and leave what they chose in `current`; errors wait there for the page to show."""
    problems, hint = [], ""
    tensor = scheme = None
    try:
        tensor = tensor_controls.draw()
        st.session_state["_shape"] = tensor.shape
    except tensor_controls.NoTensorYet as waiting:
        hint = str(waiting)
    except qc.QuantError as error:
        problems.append(str(error))
    text_error = st.session_state.get(scheme_state.TEXT_ERROR)
    if text_error:
        problems.append(text_error)
    try:
        scheme = scheme_controls.draw(st.session_state.get("_shape", (8, 8)), tensor)
    except qc.QuantError as error:
        problems.append(str(error))
    current.put(current.Current(tensor, scheme, tuple(problems), hint))
