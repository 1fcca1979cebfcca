"""All pages, in the order of the navigation, and the parameters of their links.

Each folder with a ``page.py`` describes that page in its ``PAGE``, and is found here. What computes and draws
a page is imported by its script, so that a new server draws the first page without the others' modules.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pages.learn.lesson_pages import LESSON_URLS
from pages.learn.lesson_pages import PAGES as LESSON_PAGES
from pages.maps import four_maps
from pages.serving.middleware.page_head import Opening
from pages.shared import identity, large
from pages.shared.page import Page
from pages.shared.state import pinned
from pages.sidebar import sidebar


def _found() -> Iterator[Page]:
    yield from LESSON_PAGES
    for script in Path(__file__).parents[1].glob("*/*/page.py"):
        yield import_module(f"pages.{script.parts[-3]}.{script.parts[-2]}").PAGE


PAGES = sorted(_found(), key=lambda page: page.order)
# Link parameters of all controls, those that a link must not leave empty, and those that may be any text
KEYS = {*large.KEYS, *sidebar.KEYS, *four_maps.KEYS, *pinned.KEYS}.union(*(page.keys for page in PAGES))
REQUIRED = sidebar.REQUIRED.union(*(page.required for page in PAGES))
FREE_TEXT = set[str]().union(*(page.free_text for page in PAGES))
_AT = {page.url_path: page for page in PAGES}


def opens(url_path: str, query: dict[str, list[str]]) -> Opening:
    """Tell what a link opens, by the last part of its path and its parameters."""
    page = _AT.get(url_path, _AT[""])
    is_folded = url_path in LESSON_URLS.values() and "true" in query.get(large.LARGE, ())
    sidebar = (None if is_folded else True) if page.used(query) else False
    told = page.preview(query) if page.preview else ""
    return Opening(identity.title(page), sidebar, page.awaits_plotly(query), told)
