"""Compare checkpoints: which tensors of two differ, and by how much."""

from pages.models import opening
from pages.shared.page import Page

PAGE = Page(
    script="models/compare/page.py",
    title="Compare",
    icon="difference",
    url_path="compare-checkpoints",
    section="Models",
    keys=opening.KEYS,
    free_text=opening.KEYS,
)
