"""Scripts for every page, in files beside this one.

The first view, history, the theme switch, the link's copy, a skip link to the maps, tabs, sheets, what is
pasted or dropped, pictures for slides, and runs that the browser asks for.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from pages.browser import streamlit_dom
from quantcore.figures import typography

_HERE = Path(__file__).parent
# for components too, which may run before the other scripts
LOAD_PLOTLY = streamlit_dom.read(_HERE / "plotly.js")
_SCRIPT = "\n".join(
    streamlit_dom.read(_HERE / name)
    for name in (
        "narrow.js",
        "first_view.js",
        "theme.js",
        "history.js",
        "keyboard.js",
        "link.js",
        "presenter.js",
        "progress.js",
        "asked.js",
        "tabs.js",
        "sheet.js",
        "paste.js",
        "granularity.js",
        "plotly.js",
        "picture.js",
    )
)
_WHILE_LOADING = "\n".join(streamlit_dom.read(_HERE / name) for name in ("server.js", "refused.js"))
_TYPE = {name: f"{px / typography.TEXT:g}rem" for name, px in typography.SCALE.items()}
_TYPE |= {"family": typography.FAMILY, "mono": typography.MONO}
_VARIABLES = ";".join(f"--qs-{name}:{value}" for name, value in _TYPE.items())
_STYLE = f"html{{{_VARIABLES}}}\n" + streamlit_dom.read(_HERE / "scripts.css")
_PAGE_STYLE = f"<style>{streamlit_dom.read(_HERE / 'page.css')}</style>"
_COMPONENT = st.components.v2.component(
    "quantscope_scripts",
    css=_STYLE,
    js=f"{_SCRIPT}\nexport default () => {{}};",
    isolate_styles=False,
)
_RERUN = st.components.v2.component(
    "quantscope_rerun",
    js=streamlit_dom.read(_HERE / "rerun.js"),
    isolate_styles=False,
)


WITHOUT_SIDEBAR = streamlit_dom.filled(
    "@media (min-width:769px){%sidebar%,%expand_sidebar%{display:none}"
    "%toolbar%{padding-left:var(--qs-name) !important}}"
)
# without :has(), whose marks on the elements would slow down every later change
_SIDEBAR_TO_COME = streamlit_dom.filled(
    "@media (min-width:769px){"
    "html:not(.qs-sidebar) %view%{box-sizing:border-box;padding-left:var(--qs-sidebar,263px)}}"
)
# each by itself: Streamlit's labels set their own visibility
_ELEMENTS_TO_COME = streamlit_dom.filled(":is(%main%,%sidebar_content%) *{visibility:hidden !important}")
# Streamlit draws it open, and folds it when the run asks for that
_FOLDED_SIDEBAR = streamlit_dom.filled("@media (min-width:769px){%sidebar%{display:none}}")
_served_in_head = False


def serve_in_head() -> None:
    """Note that this server inserts scripts and styles with `in_head`, so that its pages need not."""
    global _served_in_head
    _served_in_head = True


def in_head(page: bytes, sidebar: bool | None, tags: bytes = b"") -> bytes:
    """Return the page with our scripts and styles.

    The scripts come first, so that they run before Streamlit reads the theme or writes to the history; the
    style of all pages after the head, so that it overrides Streamlit's, and before that of the page, which
    overrides it.

    Args:
        sidebar: whether the page opens with a sidebar; None if it is folded.
        tags: further elements for the head.
    """
    first = {None: _FOLDED_SIDEBAR, True: _SIDEBAR_TO_COME, False: WITHOUT_SIDEBAR}[sidebar]
    style = f'<style>{_STYLE}</style><style id="qs-first-view">{_ELEMENTS_TO_COME}</style>'
    style += f'<style id="qs-first-sidebar">{first}</style>'
    page = page.replace(b"<title>Streamlit</title>", b"<title>Quantscope</title>", 1)
    page = page.replace(b"<head>", f"<head>{style}<script>{_SCRIPT}\n{_WHILE_LOADING}</script>".encode(), 1)
    page = page.replace(b"</head>", tags + b"</head>", 1)
    return page.replace(b"<body>", f"<body>{_PAGE_STYLE}".encode(), 1)


def run(on_brought: Callable[[Mapping[str, Any]], None], delivery: Mapping[str, Any] | None) -> None:
    """Run the scripts on pages served without `in_head`; call it once per run. It takes no space on the page.

    A page that reconnects or changes its theme triggers a run; nothing else happens.

    Args:
        on_brought: called with what was pasted or dropped on the page (paste.js): text, or names and sizes.
        delivery: what the browser is to do with files that it holds.
    """
    # in a container that is not drawn: what stands for them until their code is there would move the page
    with st.container(key="qs_unseen"):
        if not _served_in_head:
            _COMPONENT(key="qs_scripts")
            st.html(_PAGE_STYLE)
        _RERUN(
            key="qs_rerun",
            data={"theme": st.context.theme.type or "light", "delivery": delivery},
            on_reconnected_change=lambda: None,
            on_recolored_change=lambda: None,
            on_brought_change=lambda: on_brought(st.session_state["qs_rerun"].brought),
        )
