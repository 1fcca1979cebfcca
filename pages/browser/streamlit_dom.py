"""Streamlit's own names in the page: its front end does not promise them, so they stand here alone.

Scripts and styles write ``%main%`` for the selector of `NAMES` with that name, and are read with `read`.
"""

import re
from pathlib import Path

_CLASSES = {  # which browsers match faster than attributes
    "element": "stElementContainer",
    "block": "stMainBlockContainer",
    "full_screen": "stFullScreenFrame",
    "element_toolbar": "stElementToolbar",
    "sidebar": "stSidebar",
    "popover": "stPopover",
    "code": "stCode",
    "chart": "stPlotlyChart",
    "spinner": "stSpinner",
}
_TEST_IDS = {
    "app": "stApp",
    "view": "stAppViewContainer",
    "main": "stMain",
    "vertical": "stVerticalBlock",
    "layout": "stLayoutWrapper",
    "skeleton": "stSkeleton",
    "alert": "stAlert",
    "toolbar": "stToolbar",
    "top_nav": "stTopNav",
    "sidebar_header": "stSidebarHeader",
    "sidebar_content": "stSidebarUserContent",
    "expand_sidebar": "stExpandSidebarButton",
    "tabs": "stTabs",
    "popover_body": "stPopoverBody",
    "text_input": "stTextInput",
    "text_input_root": "stTextInputRootElement",
    "number_input_root": "stNumberInputContainer",
    "selectbox": "stSelectbox",
    "checkbox": "stCheckbox",
    "caption": "stCaptionContainer",
    "image": "stImage",
    "table": "stTable",
    "data_frame": "stDataFrame",
    "markdown": "stMarkdown",
    "button_group": "stButtonGroup",
    "horizontal": "stHorizontalBlock",
    "column": "stColumn",
    "button": "stButton",
    "empty": "stEmpty",
    "help": "stTooltipIcon",
    "drop_zone": "stFileUploaderDropzone",
    "file": "stFileChip",
    "file_arriving": "stFileChipIconSpinner",
    "file_refused": "stFileChipIconError",
    "sidebar_body": "stSidebarContent",
    "sidebar_nav": "stSidebarNav",
    "sidebar_links": "stSidebarNavItems",
    "icon": "stIconMaterial",
    "sidebar_line": "stSidebarNavSeparator",
    "html": "stHtml",
}
NAMES = {
    **{name: f".{written}" for name, written in _CLASSES.items()},
    **{name: f"[data-testid={written}]" for name, written in _TEST_IDS.items()},
    "tag": "[data-tag]",
    "collapsed": "data-collapsed",
    "stored_theme": "stActiveTheme",  # in the local storage
    "script_state": "data-test-script-state",
    "connection_state": "data-test-connection-state",
}


def filled(text: str) -> str:
    """Return the text of a script or style with Streamlit's names."""
    return re.sub(r"%([a-z_]+)%", lambda found: NAMES[found[1]], text)


def read(path: Path) -> str:
    """Read a script or style of ours, with Streamlit's names."""
    return filled(path.read_text(encoding="utf-8"))
