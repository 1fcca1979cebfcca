"""Streamlit's own names in the page: its front end does not promise them, so they stand here alone.

Scripts and styles write ``%main%`` for the selector of `NAMES` with that name, and are read with `read`.
"""

import re
from pathlib import Path

NAMES = {
    name: f"[data-testid={test_id}]"
    for name, test_id in {
        "app": "stApp",
        "view": "stAppViewContainer",
        "main": "stMain",
        "block": "stMainBlockContainer",
        "vertical": "stVerticalBlock",
        "layout": "stLayoutWrapper",
        "element": "stElementContainer",
        "unseen": "stEvent",  # where elements go that take no space, such as styles
        "skeleton": "stSkeleton",
        "full_screen": "stFullScreenFrame",
        "element_toolbar": "stElementToolbar",
        "image": "stImage",
        "toolbar": "stToolbar",
        "sidebar": "stSidebar",
        "sidebar_header": "stSidebarHeader",
        "sidebar_content": "stSidebarUserContent",
        "expand_sidebar": "stExpandSidebarButton",
        "tabs": "stTabs",
        "dialog": "stDialog",
        "popover": "stPopover",
        "popover_body": "stPopoverBody",
        "text_input": "stTextInput",
        "text_input_root": "stTextInputRootElement",
        "selectbox": "stSelectbox",
        "checkbox": "stCheckbox",
        "caption": "stCaptionContainer",
        "code": "stCode",
        "chart": "stPlotlyChart",
        "table": "stTable",
        "data_frame": "stDataFrame",
        "markdown": "stMarkdown",
        "button_group": "stButtonGroup",
        "horizontal": "stHorizontalBlock",
        "column": "stColumn",
        "button": "stButton",
        "empty": "stEmpty",
    }.items()
} | {
    "tag": "[data-tag]",
    "collapsed": "data-collapsed",
    "stored_theme": "stActiveTheme",  # in the local storage
    "script_state": "data-test-script-state",
    "connection_state": "data-test-connection-state",
}


def filled(text: str) -> str:
    """The text of a script or style with Streamlit's names."""
    return re.sub(r"%([a-z_]+)%", lambda found: NAMES[found[1]], text)


def read(path: Path) -> str:
    """A script or style of ours, with Streamlit's names."""
    return filled(path.read_text(encoding="utf-8"))
