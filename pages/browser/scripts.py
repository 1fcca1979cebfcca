"""Scripts for every page: history, the theme switch, a skip link to the maps, what follows a lost connection."""

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
    js=_SCRIPT + (_HERE / "reconnect.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)


def in_head(page: bytes) -> bytes:
    """The page with our scripts first, so that they run before Streamlit reads the theme or writes to the history."""
    return page.replace(b"<head>", f"<head><style>{_STYLE}</style><script>{_SCRIPT}</script>".encode(), 1)


def run() -> None:
    """Run the scripts on pages served without `in_head`; call it once per run. It takes no space.

    A page that is connected again triggers a run, in which there is nothing else to do.
    """
    _COMPONENT(key="qs_scripts", on_reconnected_change=lambda: None)
