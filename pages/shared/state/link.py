"""The link that reproduces a view: everything about it that Streamlit's bound widgets do not do."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

import numpy as np
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

import quantcore as qc
from pages.serving import tensor_store
from pages.serving.settings import upload_limit
from pages.shared import messages
from pages.shared.computing import needs, turn
from pages.shared.large import LARGE
from pages.shared.state.selection import PageTensor, of_values
from quantcore import tensors
from quantcore.wording import count

# The parameters without a widget: a tensor that has no recipe (its values, or its address in the store of
# shared tensors), the name of its file, and the SHA-256 of the file, if whoever opens the link may need it
TENSOR, FILE, DIGEST = "t", "file", "sha256"
SHARED = "shared."  # prefix of a stored tensor's address in a link
_SEEN, _CARRIED, _WARNING, _DROPPED = "_link_seen", "_link_carried", "_link_warning", "_link_dropped"
_UNDERSTOOD = "_link_understood"  # parameters whose words stand for an option
# What links carry for each shared tensor, by its key; what this link carries, if that tensor can't be opened
_IN_STORE, _FAILED = "_link_in_store", "_link_failed"
_STREAMLIT = {"embed", "embed_options"}
# What only concerns this reader: the size of text, and the keys to a class. As in pages/browser/link.js.
PRESENTER, PROJECTOR = "presenter", "projector"
_OWN = {LARGE, PRESENTER, PROJECTOR}
# What links of earlier versions carry for something that is elsewhere now -> where
_MOVED = {"plan": "The plan for a class, part by part, is now on the page Class."}


def raw_parameters() -> dict[str, str]:
    """Return the parameters of the opened link in the first run of a session; empty afterwards."""
    if st.session_state.get(_SEEN):
        return {}
    st.session_state[_SEEN] = True
    return st.query_params.to_dict()


def from_history() -> bool:
    """Tell whether the visitor came by the browser's Back or Forward: then the link overrides the session."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def went_to_another_tensor() -> bool:
    """Tell whether Back or Forward led to a link whose tensor differs from the session's."""
    return from_history() and _CARRIED in st.session_state and st.query_params.get(TENSOR) not in _own()


def _own() -> tuple[str | None, str | None]:
    """Return the session's tensor as links carry it: its values (None if too many); its address or those."""
    key, values = st.session_state[_CARRIED]
    return values, st.session_state.get(_IN_STORE, {}).get(key, values)


def drop_unusable(known: set[str], required: set[str]) -> None:
    """Remove from the link, before widgets are drawn, values that break them: infinities, empty choices.

    Streamlit fails when it converts an infinite number to an integer, and an empty parameter clears even a
    required choice. Every run needs this, since the browser's Back restores the link as it was.
    `st.query_params` can't delete parameters that are bound to widgets, hence the internal API.

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
    """Accept what links of earlier versions carry for a choice; call it before the control is drawn.

    Streamlit puts the option into the link as it is displayed, so rewording an option changes the link.

    Args:
        key: of the control, and its parameter.
        words: what links may carry -> what the control shows today.
    """
    new, context = words.get(st.query_params.get(key) or ""), get_script_run_ctx()
    if new is None or context is None or new == st.query_params.get(key):
        return
    understand(key)
    with context.session_state.query_params() as parameters:
        parameters.set_with_no_forward_msg(key, new)
        parameters.set_initial_query_params_from_current()


def understand(key: str) -> None:
    """Note that a parameter has an effect: of a default, the link keeps nothing."""
    st.session_state.setdefault(_UNDERSTOOD, set()).add(key)


@contextmanager
def named(key: str, names: Mapping[str, str]) -> Iterator[None]:
    """Draw a control within this that shows names, while links carry the values that they stand for.

    Streamlit puts an option into the link as displayed: the name is in it only while the control is drawn.

    Args:
        key: of the control, and its parameter.
        names: the control's options -> what it shows.
    """
    carried, context = st.query_params.get(key), get_script_run_ctx()
    reworded(key, dict(names))
    if carried in names.values():
        understand(key)
    yield
    shown = st.query_params.get(key)
    value = next((value for value, name in names.items() if name == shown), shown)
    if context is None or value is None or value == shown:
        return
    if value != carried:
        write_bound(key, value)
        return
    with context.session_state.query_params() as parameters:  # the browser's address already has it
        parameters.set_with_no_forward_msg(key, value)


def write_bound(key: str, text: str) -> None:
    """Put into the link what a drawn control shows, where Streamlit does not do that itself.

    That is so for a control on two pages whose value was set when the visitor went from one to the other.
    """
    context = get_script_run_ctx()
    if context is not None and st.query_params.get(key) != text:
        with context.session_state.query_params() as parameters:
            parameters.set_corrected_value(key, text, "string_value")


def keep(keys: set[str]) -> None:
    """Keep the values of controls that this run does not draw."""
    for key in keys & set(st.session_state):
        st.session_state[key] = st.session_state[key]


def put(values: Mapping[str, Any]) -> None:
    """Set controls, drawn or not (for callbacks, and before controls are drawn).

    Streamlit writes a value that code sets into the link only if it has seen the control's key before, hence
    the internal API. The keys of all controls in every session's state would do as well, but each control
    that is drawn reads the whole state: with them, a run of Explore took a tenth more time.
    """
    context = get_script_run_ctx()
    if context is not None:
        seen = context.session_state._state._old_state
        seen |= dict.fromkeys(values.keys() - st.session_state.to_dict().keys())
    st.session_state.update(values)


def _infinite(text: str) -> bool:
    try:
        return math.isinf(float(text))
    except ValueError:
        return False


def tensor_from_link() -> np.ndarray | None:
    """Return the link's tensor; None if there is none or it can't be read, which a message reports."""
    text = st.query_params.get(TENSOR)
    if text is None or text == st.session_state.get(_FAILED):
        return None
    try:
        return _shared(text) if text.startswith(SHARED) else tensors.decode(text)
    except qc.QuantError as error:
        if text.startswith(SHARED):
            st.session_state[_FAILED] = text  # stays in the link: a reload tries again
        st.session_state[_WARNING] = str(error)
        return None


def _shared(text: str) -> np.ndarray:
    """Open a tensor from the store.

    Raises:
        QuantError: it can't be opened.
    """
    store = tensor_store.current()
    if store is None:
        raise qc.QuantError(
            "This link needs its shared tensor, but sharing is off on this server; ask the sender for the "
            "file."
        )
    address = text.removeprefix(SHARED)
    with turn.current() as mine:
        mine.need(int(needs.READING * store.size(address, upload_limit())))
        x = store.open(address, upload_limit())
    note_shared(of_values(x, "").key, text)
    return x


def note_shared(key: str, text: str) -> None:
    """Remember the text that links carry for the shared tensor ``key``."""
    st.session_state.setdefault(_IN_STORE, {})[key] = text


def carry_shared(key: str) -> bool:
    """Put the address of the tensor ``key`` into the link; return False if it was not shared yet."""
    text = st.session_state.get(_IN_STORE, {}).get(key)
    if text is not None:
        write(TENSOR, text)
    return text is not None


def carry(x: np.ndarray | None, key: str, file: str | None = None, digest: str | None = None) -> None:
    """Put into the link a tensor's values if they fit, else its address if shared, and remove the previous.

    Args:
        key: identifies the content; empty if there is no tensor.
        file: the name of its file.
        digest: the SHA-256 of the file, which the link carries if it does not carry the values.
    """
    known = st.session_state.get(_CARRIED)
    if known is None or known[0] != key:
        text = tensors.encode(x) if x is not None and tensors.fits_link(x) else None
        st.session_state[_CARRIED] = known = (key, text)
    values, shared = _own()
    there = st.query_params.get(TENSOR)
    if key or there != st.session_state.get(_FAILED):
        # Back leads to the link from before the tensor was shared: to write to it would be a step forward
        write(TENSOR, values if from_history() and there != shared else shared)
    write(FILE, file)
    write(DIGEST, digest if values is None else None)


def write(name: str, text: str | None) -> None:
    """Put a parameter into the link if it changed: each write is a step in the browser's history."""
    if text is None:
        if name in st.query_params:
            del st.query_params[name]
    elif st.query_params.get(name) != text:
        st.query_params[name] = text


def carries() -> bool:
    """Tell whether the tensor in the link was put there in this session, not by the sender of the link."""
    there = st.query_params.get(TENSOR)
    return there is not None and _CARRIED in st.session_state and there in _own()


def carries_all(tensor: PageTensor) -> bool:
    """Tell whether the link is enough to reproduce the tensor."""
    return tensor.recipe is not None or carries()


def forget() -> None:
    """Remove the tensor and its file from the link (also for callbacks)."""
    st.session_state.pop(_CARRIED, None)
    for name in (TENSOR, FILE, DIGEST):
        write(name, None)


def address() -> str:
    """Return the page's address with its parameters, except those for this reader alone: whoever opens it may
    hold a phone, and is no presenter of a class.
    """
    parts = urlsplit(st.context.url or "")
    # a multiple choice repeats its parameter, and to_dict() keeps only the last
    pairs = [
        (key, value) for key in st.query_params if key not in _OWN for value in st.query_params.get_all(key)
    ]
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", urlencode(pairs), ""))


def report_dropped(before: dict[str, str], known: set[str], place: Any) -> None:
    """Report parameters of the link without effect, so that nobody mistakes the view for the one linked."""
    after = st.query_params.to_dict()
    at_once = st.session_state.pop(_DROPPED, {})
    understood = st.session_state.pop(_UNDERSTOOD, set())
    dropped = [
        f"{k}={v}"
        for k, v in (before | at_once).items()
        if k not in _STREAMLIT
        and k not in (TENSOR, FILE, DIGEST)
        and k not in understood
        and (k not in known or k in at_once or (k not in after and not _same(v, st.session_state.get(k))))
    ]
    if dropped:
        what, are = count(len(dropped), "parameter"), "is" if len(dropped) == 1 else "are"
        shown = ", ".join(d if len(d) <= 40 else d[:39] + "…" for d in dropped[:5])
        sentence = f"This link has {what} that can't be used and {are} ignored: {shown}."
        sentence = " ".join([sentence, *(where for name, where in _MOVED.items() if name in before)])
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
