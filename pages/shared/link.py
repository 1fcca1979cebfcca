"""The link that shows the same view: what Streamlit's bound widgets leave to be done."""

from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import numpy as np
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

import quantcore as qc
from pages.shared import say
from pages.shared.current import Tensor
from quantcore import tensors

TENSOR = "t"  # the one parameter that is no widget's: the values of a tensor without a recipe
_SEEN, _CARRIED, _TOLD = "_link_seen", "_link_carried", "_link_told"
_STREAMLIT = {"embed", "embed_options"}


def raw_parameters() -> dict[str, str]:
    """The link's parameters as they came, in the first run of a session; empty afterwards."""
    if st.session_state.get(_SEEN):
        return {}
    st.session_state[_SEEN] = True
    return st.query_params.to_dict()


def from_history() -> bool:
    """Whether the visitor came here by the browser's Back or Forward: the link wins over what the session holds."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def went_to_another_tensor() -> bool:
    """Whether Back or Forward led to a link with other values, or none, than the session carries."""
    known = st.session_state.get(_CARRIED)
    return from_history() and known is not None and known[1] != st.query_params.get(TENSOR)


def tensor_from_link() -> np.ndarray | None:
    """The values that the link carries; None where there are none, or damaged ones, which is told."""
    text = st.query_params.get(TENSOR)
    try:
        return None if text is None else tensors.decode(text)
    except qc.QuantError as error:
        st.session_state[_TOLD] = str(error)
        return None


def carry(x: np.ndarray | None, key: str) -> None:
    """Put a tensor's values into the link where they fit, or take the last ones out."""
    known = st.session_state.get(_CARRIED)
    if known is None or known[0] != key:
        text = tensors.encode(x) if x is not None and tensors.fits_link(x) else None
        st.session_state[_CARRIED] = known = (key, text)
    # Only what changed is written: each write is a step in the browser's history.
    if known[1] is None:
        if TENSOR in st.query_params:
            del st.query_params[TENSOR]
    elif st.query_params.get(TENSOR) != known[1]:
        st.query_params[TENSOR] = known[1]


def draw(tensor: Tensor | None) -> None:
    """Show the link, or say that this tensor can't be carried by one.

    To be called last: what a widget writes into the link stands there once the widget has been drawn.
    """
    if tensor is None:
        st.write("There is no tensor to share yet.")
    elif tensor.recipe is None and st.session_state.get(_CARRIED, (None, None))[1] is None:
        st.write(
            f"This tensor's values need more than {tensors.MAX_LINK_CHARS:,} characters, too many for a link. "
            "Download the .npz under Export and send the file; the rest of the view stands in the link."
        )
    else:
        st.write("Whoever opens this link sees the same tensor, scheme and view:")
        st.code(address(), language=None, wrap_lines=True)


def address() -> str:
    """The address of the page with all its parameters."""
    parts = urlsplit(st.context.url or "")
    # a list of choices stands there once a choice, which to_dict() forgets
    pairs = [(key, value) for key in st.query_params for value in st.query_params.get_all(key)]
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", urlencode(pairs), ""))


def name_dropped(before: dict[str, str], known: set[str], place: Any) -> None:
    """Say which parts of the link had no effect, so that nobody trusts a view that it did not ask for."""
    after = st.query_params.to_dict()
    dropped = [
        f"{k}={v}"
        for k, v in before.items()
        if k not in _STREAMLIT
        and k != TENSOR
        and (k not in known or (k not in after and not _same(v, st.session_state.get(k))))
    ]
    if dropped:
        told = (
            f"This link holds {len(dropped)} part{'s' * (len(dropped) > 1)} that can't be used; "
            f"the default stands instead: {', '.join(_short(d) for d in dropped[:5])}."
        )
        st.session_state[_TOLD] = " ".join([*filter(None, [st.session_state.get(_TOLD)]), told])
    if st.session_state.get(_TOLD):
        with place.container(horizontal=True, vertical_alignment="center"):
            say.warning(st.session_state[_TOLD])
            st.button("Close", on_click=lambda: st.session_state.pop(_TOLD), type="tertiary")


def _same(text: str, value: object) -> bool:
    try:
        return text == str(value) or float(text) == value
    except ValueError:
        return text.lower() == str(value).lower()


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
