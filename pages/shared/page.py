"""What a page says of itself, for the registry in main.py: one record per page."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import streamlit as st
from streamlit.navigation.page import StreamlitPage

TENSOR, SCHEME = "tensor", "scheme"  # the two parts of the sidebar


@dataclass(frozen=True)
class While:
    """While the control ``key`` of the page holds one of ``values``; without a key, always."""

    key: str = ""
    values: Set[str] = frozenset()

    def holds(self) -> bool:
        """Whether it does; in the first run, before the control is drawn, what the link says of it counts."""
        if not self.key:
            return True
        held = st.session_state.get(self.key, st.query_params.get_all(self.key))
        return bool(self.values & {str(v).lower() for v in (held if isinstance(held, list) else [held])})


ALWAYS = While()


@dataclass(frozen=True)
class Page:
    """A page of the app.

    Attributes:
        script: relative to ``pages/``, as Streamlit's links want it.
        icon: name of a Material symbol.
        url_path: the last part of its address; empty for the page that opens first.
        section: of the navigation.
        uses: which parts of the sidebar act on it, and when; the sidebar shows these and no others.
        keys: of its own controls that are bound to parameters of the link.
        required: those of its keys that hold one of a few choices, and which a link must not empty.
        free_text: those of its keys in which any text has a meaning, "inf" too.
    """

    script: str
    title: str
    icon: str
    url_path: str
    section: str
    uses: Mapping[str, While] = field(default_factory=dict)
    keys: Set[str] = frozenset()
    required: Set[str] = frozenset()
    free_text: Set[str] = frozenset()

    def for_navigation(self) -> StreamlitPage:
        """The page as st.navigation takes it."""
        icon, default = f":material/{self.icon}:", not self.url_path
        return st.Page(
            self.script, title=self.title, icon=icon, url_path=self.url_path or None, default=default
        )

    def used(self) -> frozenset[str]:
        """TENSOR and SCHEME, as far as they act on the page as it stands."""
        return frozenset(part for part, when in self.uses.items() if when.holds())
