"""A scheme that its library does not take: the library's words, and the nearest scheme that it takes."""

from functools import partial

import streamlit as st

import quantcore as qc
from pages.shared import say, scheme_state
from pages.shared.current import Tensor


def show(error: qc.QuantError, tensor: Tensor, scheme: qc.Scheme) -> None:
    """Show an error of `compute.result`, with a way out where there is one."""
    say.error(str(error))
    try:
        other = qc.fitting(scheme, tensor.shape)
    except qc.QuantError:  # the granularity does not fit the tensor, as the error says
        return
    if other not in (None, scheme):
        st.button(
            f"Use {other}", on_click=partial(_apply, other), key="fit", help="The nearest scheme that works"
        )


def _apply(scheme: qc.Scheme) -> None:
    try:
        scheme_state.apply_scheme(scheme)
    except qc.QuantError as error:
        st.session_state[scheme_state.TEXT_ERROR] = str(error)
