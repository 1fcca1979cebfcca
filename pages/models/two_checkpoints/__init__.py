"""Two checkpoints: which tensors of two differ, and by how much."""

from pages.models import keys
from pages.models.two_checkpoints import controls
from pages.shared.page import Page

PAGE = Page(
    script="models/two_checkpoints/page.py",
    title="Two checkpoints",
    icon="difference",
    url_path="compare-checkpoints",
    section="Models",
    order=80,
    keys=controls.KEYS | keys.KEYS,
    required=controls.REQUIRED,
    free_text=controls.FREE_TEXT | keys.KEYS,
)
