"""All pages, in the order of the navigation, and the parameters of their links; each package describes its own page."""

from importlib import import_module

from pages.learn.lesson_pages import LESSON_URL
from pages.maps import four_maps
from pages.shared import identity, large
from pages.shared.page import Page
from pages.shared.state import pinned
from pages.sidebar import sidebar

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
# Link parameters of all controls, those that a link must not leave empty, and those for which any text is valid
KEYS = {*large.KEYS, *sidebar.KEYS, *four_maps.KEYS, *pinned.KEYS}.union(*(page.keys for page in PAGES))
REQUIRED = sidebar.REQUIRED.union(*(page.required for page in PAGES))
FREE_TEXT = set[str]().union(*(page.free_text for page in PAGES))
_AT = {page.url_path: page for page in PAGES}


def opens(url_path: str, query: dict[str, list[str]]) -> tuple[str, bool | None, bool]:
    """The title of the page that a link opens, whether it has a sidebar (False if it uses none, None if folded), and whether it
    awaits plotly.js.
    """
    page = _AT.get(url_path, _AT[""])
    is_folded = url_path.startswith(LESSON_URL) and "true" in query.get(large.LARGE, ())
    return identity.title(page), (None if is_folded else True) if page.used(query) else False, page.awaits_plotly(query)
