"""Which checkpoint a visitor opens, and the checkpoint that has been opened."""

from pages.models.opening.controls import KEYS, choose
from pages.models.opening.opened import Opened
from pages.models.opening.partners import pairs_of, partner

__all__ = ["KEYS", "Opened", "choose", "pairs_of", "partner"]
