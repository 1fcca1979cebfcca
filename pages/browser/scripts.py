"""Scripts for every page: the first view, history, the theme switch, a skip link to the maps, tabs, sheets, and runs that
the browser asks for.
"""

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent
_SCRIPT = "\n".join(
    (_HERE / name).read_text(encoding="utf-8")
    for name in ("first_view.js", "theme.js", "history.js", "keyboard.js", "tabs.js", "sheet.js")
)
_REFUSED = (_HERE / "refused.js").read_text(encoding="utf-8")
_STYLE = (_HERE / "scripts.css").read_text(encoding="utf-8")
_PAGE_STYLE = _HERE / "page.css"
_COMPONENT = st.components.v2.component(
    "quantscope_scripts",
    css=_STYLE,
    js=f"{_SCRIPT}\nexport default () => {{}};",
    isolate_styles=False,
)
_RERUN = st.components.v2.component(
    "quantscope_rerun",
    js=(_HERE / "rerun.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


WITHOUT_SIDEBAR = "@media (min-width:769px){[data-testid=stSidebar],[data-testid=stExpandSidebarButton]{display:none}}"
_SIDEBAR_TO_COME = (
    "@media (min-width:769px){[data-testid=stAppViewContainer]:not(:has(> [data-testid=stSidebar])) > "
    ":has(> [data-testid=stMain]){margin-left:var(--qs-sidebar,263px)}}"
)
# each by itself: Streamlit's labels set their own visibility
_ELEMENTS_TO_COME = ":is([data-testid=stMain],[data-testid=stSidebarUserContent]) *{visibility:hidden !important}"
_served_in_head = False


def serve_in_head() -> None:
    """Note that this server inserts scripts and styles with `in_head`: its pages need not bring them again."""
    global _served_in_head
    _served_in_head = True


def in_head(page: bytes, sidebar: bool | None) -> bytes:
    """The page with our scripts and styles.

    The scripts come first, so that they run before Streamlit reads the theme or writes to the history; the styles of the
    pages last, so that they override Streamlit's.

    Args:
        sidebar: whether the page opens with a sidebar; None if it is folded.
    """
    first = "" if sidebar is None else _SIDEBAR_TO_COME if sidebar else WITHOUT_SIDEBAR
    style = f'<style>{_STYLE}</style><style id="qs-first-view">{_ELEMENTS_TO_COME}{first}</style>'
    page = page.replace(b"<head>", f"<head>{style}<script>{_SCRIPT}\n{_REFUSED}</script>".encode(), 1)
    style = f"<style>{_PAGE_STYLE.read_text(encoding='utf-8')}</style>"
    return page.replace(b"</body>", f"{style}</body>".encode(), 1)


def run() -> None:
    """Run the scripts on pages served without `in_head`; call it once per run. It takes no space on the page.

    A page that reconnects or changes its theme triggers a run; nothing else happens.
    """
    if not _served_in_head:
        _COMPONENT(key="qs_scripts")
        st.html(_PAGE_STYLE)
    _RERUN(
        key="qs_rerun",
        data={"theme": st.context.theme.type or "light"},
        on_reconnected_change=lambda: None,
        on_recolored_change=lambda: None,
    )
