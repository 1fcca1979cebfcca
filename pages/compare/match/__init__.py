"""Match: which rules made given integers."""

from pages.compare.match import controls, preview
from pages.shared.page import ALWAYS, TENSOR, Page
from pages.sidebar.match_fields import SOURCE

PAGE = Page(
    script="compare/match/page.py",
    title="Match",
    icon="manage_search",
    url_path="match",
    section="Compare",
    order=60,
    uses={TENSOR: ALWAYS},
    keys=controls.KEYS,
    required={SOURCE},
    free_text={preview.KEY},
    preview=preview.of,
)
