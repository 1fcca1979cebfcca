"""Widgets that show a value of the app until a visitor changes them."""

from collections.abc import Hashable

import streamlit as st

_VERSIONS = "_mirrored_versions"


def key_at(name: str, value: Hashable) -> str:
    """Return the key of a widget ``name`` that should show ``value``.

    The key changes whenever the widget showed something else. With a constant key, an input that arrives
    before the browser has drawn ``value`` would send the old value along, and Streamlit would take it as
    typed: two quick presses of an arrow key on "Bits" restored the old scheme from its text field.
    """
    versions = st.session_state.setdefault(_VERSIONS, {})
    key = f"{name}_{versions.get(name, 0)}"
    if key not in st.session_state or st.session_state[key] != value:
        versions[name] = versions.get(name, 0) + 1
        key = f"{name}_{versions[name]}"
        st.session_state[key] = value
    return key


def key_of(name: str) -> str:
    """Return the current key of the widget."""
    return f"{name}_{st.session_state.get(_VERSIONS, {}).get(name, 0)}"


def typed(name: str, key: str) -> bool:
    """Tell whether the visitor made a change (for callbacks): an earlier key means a stale value."""
    return key == key_of(name)
