"""Where a cell of a checkpoint comes from: its bits in the file, the arithmetic to its value, what others read there."""

from pages.models.cell.views import draw

__all__ = ["draw"]
