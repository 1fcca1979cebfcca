"""A scheme that its library does not support: the reason, and the nearest supported scheme."""

import dataclasses

import streamlit as st

import quantcore as qc
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import link
from pages.shared.state.selection import PageTensor
from pages.sidebar import scheme_state, uploads
from quantcore import tensors


def result(tensor: PageTensor, scheme: qc.Scheme) -> qc.Quantized | None:
    """Return `cache.result`; None if the library does not support the scheme, which is then shown."""
    try:
        return cache.result(tensor, scheme)
    except qc.QuantError as error:
        show(error, tensor, scheme)
        return None


def show(
    error: qc.QuantError, tensor: PageTensor, scheme: qc.Scheme, keep: qc.Convention | None = None
) -> None:
    """Show an error of `cache.result`, and a button for a supported dtype or the nearest supported scheme.

    ``keep``: the convention of the controls, which stays, if the unsupported scheme has another one.
    """
    messages.error(str(error))
    refused = dict(scheme.convention.refused_dtypes)
    if tensor.dtype in refused:
        dtype = next(name for name in tensors.DTYPES if name not in refused)
        st.button(
            f"Use {dtype}",
            on_click=link.put,
            args=({uploads.DTYPE: dtype},),
            key="fit_dtype",
            help="The dtype of x",
        )
        return
    try:
        other = qc.nearest_supported(scheme, tensor.shape)
    except qc.QuantError:  # the granularity does not fit the tensor, as the error says
        return
    if other is not None and other != scheme:
        other = other if keep is None else dataclasses.replace(other, convention=keep)
        st.button(
            f"Use {other}",
            on_click=scheme_state.change_to,
            args=(other,),
            key="fit",
            help="The nearest supported scheme",
        )
