"""All pages, in the order of the navigation; each package describes its own."""

from importlib import import_module

from pages.learn.lesson_pages import LARGE
from pages.shared.page import Page

PAGES: list[Page] = [
    import_module("pages.explore.quantize").PAGE,
    import_module("pages.explore.ranges").PAGE,
    import_module("pages.explore.formats").PAGE,
    import_module("pages.compare.libraries").PAGE,
    import_module("pages.compare.schemes").PAGE,
    import_module("pages.compare.match").PAGE,
    import_module("pages.models.checkpoint").PAGE,
    import_module("pages.models.compare").PAGE,
    *import_module("pages.learn").PAGES,
    import_module("pages.learn.ptq_or_qat").PAGE,
]
_AT = {page.url_path: page for page in PAGES}


def opens_with_sidebar(url_path: str, query: dict[str, list[str]]) -> bool | None:
    """Whether a link opens a page with its sidebar: False if the page uses none, None if it is folded."""
    page = _AT.get(url_path, _AT[""])
    if not page.used(query):
        return False
    return None if "true" in query.get(LARGE, ()) else True
