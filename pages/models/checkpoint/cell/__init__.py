"""Where a cell of a checkpoint comes from: its bits in the file, its arithmetic, and how others read the same bytes."""

from pages.models.checkpoint.cell.views import draw

__all__ = ["draw"]
