"""Which checkpoint a visitor opens, and the checkpoint that has been opened."""

from pages.models.opening.controls import KEYS, choose
from pages.models.opening.opened import Opened

__all__ = ["KEYS", "Opened", "choose"]
