"""What tells a page from others: the name in the header, the tab's title, the menu's section, a heading."""

import html
from collections.abc import Sequence

import streamlit as st

from pages.browser import streamlit_dom
from pages.shared.page import Page

# of the browser's tab, since the last run: to set it again is work for the browser at every key press
_TITLE = "_tab_title"
NAME, PURPOSE = "Quantscope", "see what quantization does to a tensor"
_MARKED = streamlit_dom.filled(
    "%top_nav%>:nth-child({}) button{{box-shadow:inset 0 -2px light-dark(#0b6e99,#4db6e2)}}"
    "%top_nav%>:nth-child({}) button p{{font-weight:600}}"
)


def configure() -> None:
    """Configure the page; before st.navigation, which would else show a page's icon from another host."""
    st.set_page_config(st.session_state.get(_TITLE, NAME), "🔬", layout="wide")


def title(page: Page) -> str:
    """Return the title of a page: of the browser's tab, and of previews of its links."""
    return f"{page.title} · {NAME}"


def draw(page: Page, sections: Sequence[str], style: str) -> None:
    """Give the browser's tab its title, mark the menu of the page's section, and draw what names the page.

    The style of the pages moves name and purpose into the header; a page's heading may be unseen. Call it
    once per run.

    Args:
        sections: of the navigation, in the order of their menus.
        style: further rules for every page, which so take no element of their own.
    """
    if st.session_state.get(_TITLE) != title(page):
        st.session_state[_TITLE] = title(page)
        st.set_page_config(title(page))
    menu = sections.index(page.section) + 1
    name = f"<p><b>{NAME}</b> <span>{PURPOSE}</span></p>"
    heading = f"<h1>{html.escape(page.heading)}</h1>" if page.heading else ""
    # in a container, which the style knows before the code of its content is there
    with st.container(key="qs_name"):
        marked = _MARKED.format(menu, menu)
        st.html(f"<style>{marked}{style}</style><div class='qs-name'>{name}{heading}</div>")
