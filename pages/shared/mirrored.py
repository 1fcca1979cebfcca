"""Widgets that stand at what the app has found, until a visitor changes them."""

from collections.abc import Hashable

import streamlit as st

_VERSIONS = "_mirrored_versions"


def key_at(name: str, value: Hashable) -> str:
    """Key for a widget that shall stand at ``value``, under a name of its own.

    The key is another one whenever the widget stood elsewhere. Under the same key, an act of the visitor that
    comes before the browser has drawn ``value`` would carry the old value with it, which Streamlit takes for
    typed: two quick presses of an arrow key on "Bits" brought the old scheme back by its text.
    """
    versions = st.session_state.setdefault(_VERSIONS, {})
    key = f"{name}_{versions.get(name, 0)}"
    if key not in st.session_state or st.session_state[key] != value:
        versions[name] = versions.get(name, 0) + 1
        key = f"{name}_{versions[name]}"
        st.session_state[key] = value
    return key


def key_of(name: str) -> str:
    """The key that the widget has now."""
    return f"{name}_{st.session_state.get(_VERSIONS, {}).get(name, 0)}"


def typed(name: str, key: str) -> bool:
    """Whether a change was the visitor's own (for callbacks): one under an earlier key is the browser's belated
    word of what stood there before."""
    return key == key_of(name)
