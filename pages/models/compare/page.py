"""Compare checkpoints: which tensors of two differ, and by how much."""

from pages.models import opening
from pages.shared.page_frame import page_frame

with page_frame("How do two checkpoints differ?"):
    opened = opening.choose()
    original = opening.choose("original", "Original")
