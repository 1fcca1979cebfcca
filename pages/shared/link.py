"""The link that reproduces a view: what Streamlit's bound widgets do not do themselves."""

import math
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import numpy as np
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

import quantcore as qc
from pages.shared import messages, selection
from pages.shared.selection import Tensor
from quantcore import tensors

# The two parameters without a widget: the values of a tensor that has no recipe, and the name of its file
TENSOR, FILE = "t", "file"
_SEEN, _CARRIED, _WARNING, _DROPPED = "_link_seen", "_link_carried", "_link_warning", "_link_dropped"
_STREAMLIT = {"embed", "embed_options"}


def raw_parameters() -> dict[str, str]:
    """The parameters of the opened link in the first run of a session; empty afterwards."""
    if st.session_state.get(_SEEN):
        return {}
    st.session_state[_SEEN] = True
    return st.query_params.to_dict()


def from_history() -> bool:
    """Whether the visitor came by the browser's Back or Forward: then the link overrides the session."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def went_to_another_tensor() -> bool:
    """Whether Back or Forward led to a link whose tensor values differ from the session's."""
    known = st.session_state.get(_CARRIED)
    return from_history() and known is not None and known[1] != st.query_params.get(TENSOR)


def drop_unusable(known: set[str], required: set[str]) -> None:
    """Remove from the link, before widgets are drawn, values that break them: infinite numbers, and empty choices.

    Streamlit fails when it converts an infinite number to an integer, and an empty parameter clears even a required
    choice. Every run needs this, since the browser's Back restores the link as it was. `st.query_params` can't delete
    parameters that are bound to widgets, hence the internal API.

    Args:
        known: parameters that must not be infinite.
        required: parameters that must not be empty.
    """
    found = {
        k: v
        for k, v in st.query_params.to_dict().items()
        if (k in known and _infinite(v)) or (k in required and not v)
    }
    context = get_script_run_ctx()
    if found and context:
        with context.session_state.query_params() as parameters:
            for key in found:
                parameters.remove_param(key)
            parameters.set_initial_query_params_from_current()
        st.session_state[_DROPPED] = found


def reworded(key: str, words: dict[str, str]) -> None:
    """Read what links of earlier versions carry for a choice, to be called before its control is drawn.

    Streamlit puts into a link what a choice shows, so that a reworded option changes the link.

    Args:
        key: of the control, and its parameter.
        words: what links may carry -> what the control shows today.
    """
    new, context = words.get(st.query_params.get(key) or ""), get_script_run_ctx()
    if new is None or context is None or new == st.query_params.get(key):
        return
    with context.session_state.query_params() as parameters:
        parameters.set_with_no_forward_msg(key, new)
        parameters.set_initial_query_params_from_current()


def _infinite(text: str) -> bool:
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


def tensor_from_link() -> np.ndarray | None:
    """The tensor that the link carries; None if there is none or it is corrupted, which a message reports."""
    text = st.query_params.get(TENSOR)
    try:
        return None if text is None else tensors.decode(text)
    except qc.QuantError as error:
        st.session_state[_WARNING] = str(error)
        return None


def carry(x: np.ndarray | None, key: str, file: str | None = None) -> None:
    """Put a tensor's values into the link if they fit, else remove the previous ones; likewise the name of its file."""
    known = st.session_state.get(_CARRIED)
    if known is None or known[0] != key:
        text = tensors.encode(x) if x is not None and tensors.fits_link(x) else None
        st.session_state[_CARRIED] = known = (key, text)
    _write(TENSOR, known[1])
    _write(FILE, file)


def _write(name: str, text: str | None) -> None:
    """Put a parameter into the link if it changed: each write is a step in the browser's history."""
    if text is None:
        if name in st.query_params:
            del st.query_params[name]
    elif st.query_params.get(name) != text:
        st.query_params[name] = text


def carries() -> bool:
    """Whether the tensor in the link was put there in this session, not by the sender of the link."""
    known = st.session_state.get(_CARRIED)
    return known is not None and known[1] is not None and known[1] == st.query_params.get(TENSOR)


def forget() -> None:
    """Remove the tensor and the name of its file from the link (also for callbacks)."""
    st.session_state.pop(_CARRIED, None)
    _write(TENSOR, None)
    _write(FILE, None)


def draw(tensor: Tensor | None) -> None:
    """Show the link, and what it does not carry of this tensor.

    Call it last: a widget writes its value into the link only when it is drawn.
    """
    used = selection.get().used
    if "tensor" in used and tensor is None:
        st.write("There is no tensor to share yet.")
        return
    if "tensor" in used and tensor is not None and not _carries_all(tensor):
        file = st.query_params.get(FILE)
        needed = (
            f"The link names {messages.plain(file)} and asks whoever opens it for that file: send it along"
            if file
            else "Download the .npz under Export and send the file"
        )
        st.write(
            f"This tensor's values need more than {tensors.MAX_LINK_CHARS:,} characters, too many for a link. "
            f"{needed}; the link carries the rest."
        )
    else:
        same = ("view", f"{''.join(used)} and view", "tensor, scheme and view")[len(used)]
        st.write(f"Whoever opens this link sees the same {same}:")
    st.code(address(), language=None, wrap_lines=True)


def _carries_all(tensor: Tensor) -> bool:
    """Whether the link is enough to reproduce the tensor."""
    return tensor.recipe is not None or st.session_state.get(_CARRIED, (None, None))[1] is not None


def address() -> str:
    """The address of the page with all its parameters."""
    parts = urlsplit(st.context.url or "")
    # a multiple choice is a repeated parameter, of which to_dict() keeps only one
    pairs = [(key, value) for key in st.query_params for value in st.query_params.get_all(key)]
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", urlencode(pairs), ""))


def report_dropped(before: dict[str, str], known: set[str], place: Any) -> None:
    """Report parameters of the link that had no effect, so that nobody mistakes the view for the one linked."""
    after = st.query_params.to_dict()
    at_once = st.session_state.pop(_DROPPED, {})
    dropped = [
        f"{k}={v}"
        for k, v in (before | at_once).items()
        if k not in _STREAMLIT
        and k not in (TENSOR, FILE)
        and (k not in known or k in at_once or (k not in after and not _same(v, st.session_state.get(k))))
    ]
    if dropped:
        one = len(dropped) == 1
        what = "1 parameter that can't be used; its default is" if one else (
            f"{len(dropped)} parameters that can't be used; their defaults are"
        )  # fmt: skip
        sentence = f"This link holds {what} used instead: {', '.join(_short(d) for d in dropped[:5])}."
        st.session_state[_WARNING] = " ".join([*filter(None, [st.session_state.get(_WARNING)]), sentence])
    if st.session_state.get(_WARNING):
        with place.container(horizontal=True, vertical_alignment="center"):
            messages.warning(st.session_state[_WARNING])
            st.button("Close", on_click=lambda: st.session_state.pop(_WARNING), type="tertiary")


def _same(text: str, value: object) -> bool:
    try:
        return text == str(value) or float(text) == value
    except ValueError:
        return text.lower() == str(value).lower()


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
