"""Checkpoint: what a checkpoint holds, and each of its tensors down to the bits."""

from pages.models.checkpoint import controls
from pages.shared.page import Page

PAGE = Page(
    script="models/checkpoint/page.py",
    title="Checkpoint",
    icon="deployed_code",
    url_path="checkpoint",
    section="Models",
    order=70,
    keys=controls.KEYS,
    required=controls.REQUIRED,
    free_text=controls.FREE_TEXT,
    maps=True,
    heading="What does a checkpoint hold?",
)
