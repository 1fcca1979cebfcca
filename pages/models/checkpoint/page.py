"""Checkpoint: what a checkpoint holds, and each of its tensors down to the bits."""

from pages.models import opening
from pages.shared.page_frame import page_frame

with page_frame("What does a checkpoint hold?"):
    opened = opening.choose()
