"""A choice among options: ids in the session and in links, words on the page."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages.shared.state import link


def segmented(label: str, key: str, names: Mapping[str, str], place: Any = st, **more: Any) -> str:
    """Draw a choice that is always made, by default of the first option; return the option.

    Args:
        key: of the control, and its parameter in links.
        names: the options -> what they are called.
    """
    usual = {"default": next(iter(names)), "required": True}
    return str(_draw(place.segmented_control, label, key, names, usual | more))


def selectbox(label: str, key: str, names: Mapping[str, str], place: Any = st, **more: Any) -> str:
    """Draw a choice from a list, by default of the first option; return the option, or what was typed."""
    return str(_draw(place.selectbox, label, key, names, more))


def before_drawn(key: str) -> Any:
    """Return what a control has before it is drawn: the session's value, or the link's."""
    return st.session_state.get(key, st.query_params.get(key))


def _draw(widget: Any, label: str, key: str, names: Mapping[str, str], more: Mapping[str, Any]) -> Any:
    with link.named(key, names):
        return widget(
            label,
            list(names),
            format_func=lambda option: names.get(option, option),
            key=key,
            bind="query-params",
            **more,
        )
