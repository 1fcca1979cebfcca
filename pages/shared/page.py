"""The record with which each page describes itself; `pages.registry` finds it."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import streamlit as st
from streamlit.navigation.page import StreamlitPage

TENSOR, SCHEME = "tensor", "scheme"  # parts of the sidebar


@dataclass(frozen=True)
class While:
    """A condition: the page's control ``key`` has one of ``values``; without a key, always true."""

    key: str = ""
    values: Set[str] = frozenset()

    def holds(self, query: Mapping[str, list[str]] | None = None) -> bool:
        """Tell whether the condition is true; before the control is first drawn, the link decides.

        Args:
            query: the parameters of a link that is not open yet; None for the page that is open.
        """
        if not self.key:
            return True
        if query is None:
            held = st.session_state.get(self.key, st.query_params.get_all(self.key))
        else:
            held = query.get(self.key, [])
        return bool(self.values & {str(v).lower() for v in (held if isinstance(held, list) else [held])})


ALWAYS = While()


@dataclass(frozen=True)
class Page:
    """A page of the app.

    Attributes:
        script: path relative to ``pages/``, as Streamlit's links expect it.
        icon: name of a Material symbol.
        url_path: last part of the address; empty for the page that opens first.
        section: section of the navigation.
        order: pages, and sections by their first page, are in ascending order.
        uses: which parts of the sidebar the page uses, and when; the sidebar shows only these.
        keys: keys of the page's own controls that are bound to link parameters.
        required: keys that always have a value, so that a link must not leave them empty.
        free_text: keys for which any text is valid, even "inf".
        maps: whether it opens with maps or a treemap, which plotly.js draws.
        charts: when it has charts too, which bring a plotly.js of their own.
        preview: what a link's parameters tell of it, in words, for previews; empty if nothing.
        heading: of a page whose space is for something else: for screen readers and outlines alone.
    """

    script: str
    title: str
    icon: str
    url_path: str
    section: str
    order: int
    uses: Mapping[str, While] = field(default_factory=dict)
    keys: Set[str] = frozenset()
    required: Set[str] = frozenset()
    free_text: Set[str] = frozenset()
    maps: bool = False
    charts: While | None = None
    preview: Callable[[Mapping[str, list[str]]], str] | None = None
    heading: str = ""

    def used(self, query: Mapping[str, list[str]] | None = None) -> frozenset[str]:
        """Return the parts of the sidebar that the page uses now, or when a link with this query opens."""
        return frozenset(part for part, when in self.uses.items() if when.holds(query))

    def awaits_plotly(self, query: Mapping[str, list[str]]) -> bool:
        """Tell whether a link with this query opens maps alone, for which the page must load plotly.js."""
        return self.maps and not (self.charts and self.charts.holds(query))


def for_navigation(pages: Sequence[Page]) -> dict[str, list[StreamlitPage]]:
    """Return the pages by section, for st.navigation."""
    sections: dict[str, list[StreamlitPage]] = {}
    for page in pages:
        icon, url_path, default = f":material/{page.icon}:", page.url_path or None, not page.url_path
        shown = st.Page(page.script, title=page.title, icon=icon, url_path=url_path, default=default)
        sections.setdefault(page.section, []).append(shown)
    return sections
