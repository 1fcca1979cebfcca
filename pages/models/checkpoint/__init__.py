"""Checkpoint: what a checkpoint holds, and each of its tensors down to the bits."""

from pages.models import opening
from pages.shared.page import Page

PAGE = Page(
    script="models/checkpoint/page.py",
    title="Checkpoint",
    icon="deployed_code",
    url_path="checkpoint",
    section="Models",
    keys=opening.KEYS,
    free_text=opening.KEYS,
)
