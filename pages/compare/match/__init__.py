"""Match: which rules made given integers."""

from pages.compare.match import controls
from pages.shared.page import ALWAYS, TENSOR, Page

PAGE = Page(
    script="compare/match/page.py",
    title="Match",
    icon="manage_search",
    url_path="match",
    section="Compare",
    uses={TENSOR: ALWAYS},
    keys=controls.KEYS,
    required={controls.SOURCE},
)
