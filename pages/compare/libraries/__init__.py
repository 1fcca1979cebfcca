"""Libraries: why two of them give different integers."""

from pages.compare.libraries import controls
from pages.shared.page import ALWAYS, SCHEME, TENSOR, Page

PAGE = Page(
    script="compare/libraries/page.py",
    title="Libraries",
    icon="compare_arrows",
    url_path="libraries",
    section="Compare",
    order=40,
    uses={TENSOR: ALWAYS, SCHEME: ALWAYS},
    keys=controls.KEYS,
)
