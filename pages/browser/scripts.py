"""What the browser does for every page: a step of history per act, the theme's switch, the way to the maps by Tab."""

from pathlib import Path

import streamlit as st

_HERE = Path(__file__).parent
_SCRIPT = "\n".join(
    (_HERE / name).read_text(encoding="utf-8") for name in ("theme.js", "history.js", "keyboard.js")
)
_STYLE = (_HERE / "scripts.css").read_text(encoding="utf-8")
_COMPONENT = st.components.v2.component(
    "quantscope_scripts",
    css=_STYLE,
    js=f"{_SCRIPT}\nexport default () => {{}};",
    isolate_styles=False,
)


def in_head(page: bytes) -> bytes:
    """The page with the scripts before all others: they are there when Streamlit asks for the theme and writes to
    the history for the first time."""
    return page.replace(b"<head>", f"<head><style>{_STYLE}</style><script>{_SCRIPT}</script>".encode(), 1)


def run() -> None:
    """To be called once a run, for pages that were served without `in_head`; takes no room."""
    _COMPONENT(key="qs_scripts")
