"""Going to another page by a click, and coming back by the browser's Back.

A callback notes where to go, and the next run goes there.
"""

from collections.abc import Mapping, Set
from typing import Any

import streamlit as st

_TO, _LEFT = "_leaving_to", "_leaving_left"


def to(script: str, parameters: Mapping[str, str] | None = None) -> None:
    """Open a page (a callback).

    Args:
        script: of the page, as Streamlit's links expect it.
        parameters: of its link; that page's widgets set their own, and Streamlit clears no bound ones.
    """
    st.session_state[_TO] = script, dict(parameters or {})


def is_asked() -> bool:
    """Tell whether `go` opens another page in this run."""
    return _TO in st.session_state


def go() -> None:
    """Open the page that a callback has chosen; call it before the page is drawn."""
    if _TO in st.session_state:
        script, parameters = st.session_state.pop(_TO)
        st.switch_page(script, query_params=parameters)


def remember(page: str, values: Mapping[str, Any]) -> None:
    """Keep the values of a page's controls for `come_back` (a callback)."""
    st.session_state.setdefault(_LEFT, {})[page] = dict(values)


def come_back(page: str, defaults: Mapping[str, Any], elsewhere: Set[str] = frozenset()) -> None:
    """Restore what `remember` kept: the address that Back returns to lacks it.

    Args:
        defaults: values that a link omits.
        elsewhere: keys of controls that other pages draw too, where they may have been changed.
    """
    left = st.session_state.get(_LEFT, {}).pop(page, {})
    if any(key in st.query_params for key in left.keys() - elsewhere):
        left = {key: value for key, value in left.items() if key in elsewhere}
    left |= {key: st.session_state.get(key) or left[key] for key in elsewhere & left.keys()}
    lost = {k: v for k, v in left.items() if v and v != defaults.get(k) and k not in st.query_params}
    for key, value in lost.items():  # into the address, from which new widgets take their values
        st.session_state.pop(key, None)
        st.query_params[key] = value if isinstance(value, list) else str(value)
    if lost:
        st.rerun()
