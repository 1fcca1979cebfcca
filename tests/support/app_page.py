"""Helpers for tests without a browser: find what a page shows."""

import html
import re
from typing import Any

from places import MAIN
from streamlit.testing.v1 import AppTest
from streamlit.testing.v1.element_tree import Block
from streamlit.util import calc_hash

from pages.registry import PAGES

PATIENCE = 300  # seconds that a run may take; on an idle machine a few at most


def the_app(url: str = "") -> AppTest:
    """The app, before its first run, as a link to the page at this address opens it."""
    assert url in {page.url_path for page in PAGES}, url
    at = AppTest.from_file(MAIN, default_timeout=PATIENCE)
    # before its first run, `switch_page` does not know the pages and leaves the first one open
    at._page_hash = calc_hash(url) if url else ""
    return at


def script_of(url: str) -> str:
    """The script of the page at this address, as `AppTest.switch_page` expects it."""
    (script,) = [page.script for page in PAGES if page.url_path == url]
    return script


def widget(at: AppTest, key: str) -> Any:
    """The widget with this key, or with this key and a number after it."""
    name = re.compile(re.escape(key) + r"(_\d+)?")
    found = [e for e in at if not isinstance(e, Block) and name.fullmatch(getattr(e, "key", None) or "")]
    assert len(found) == 1, f"{len(found)} widgets with key {key!r}"
    return found[0]


def change(at: AppTest, key: str, value: Any) -> AppTest:
    return widget(at, key).set_value(value).run()


def said(elements: Any) -> list[str]:
    """The elements' text, without the backslashes that escape Markdown."""
    return [re.sub(r"\\(.)", r"\1", element.value) for element in elements]


def lines(at: AppTest) -> list[str]:
    """The text of the arithmetic blocks."""
    found = [element.proto.body for element in at.get("html")]
    shown = [text for body in found for text in re.findall("<pre.*?</pre>", body, re.DOTALL)]
    return [html.unescape(re.sub("<[^>]*>", "", text)) for text in shown]


def figures(at: AppTest) -> dict[str, str]:
    """The figures above the maps: label -> value, followed by a space and the change, if any."""
    (body,) = [e.proto.body for e in at.get("html") if "<dl class=" in e.proto.body]
    cells = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", body)
    return {
        html.unescape(label): html.unescape(re.sub("<[^>]*>", " ", value)).strip() for label, value in cells
    }


def change_before_it_is_drawn(at: AppTest, first: Any, then: Any, of: str) -> AppTest:
    """Change a widget twice, the second time before the browser has drawn the result of the first.

    The second run gets the widget states from before the first change, except for ``then``.
    """
    browser = at._tree.get_widget_states()
    at = change(at, of, first)
    stands = widget(at, of).set_value(then)._widget_state
    for state in browser.widgets:
        if state.id == stands.id:
            state.CopyFrom(stands)
    return at._run(browser)


def key_figures(at: AppTest) -> dict[str, str]:
    """The key figures of a lesson: label -> value."""
    found = [element.proto.body for element in at.get("html")]
    pairs = [pair for text in found for pair in re.findall("<small>(.*?)</small><b>(.*?)</b>", text)]
    return {html.unescape(label): html.unescape(value) for label, value in pairs}
