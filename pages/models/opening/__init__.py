"""Which checkpoint a visitor opens, and the checkpoint that has been opened."""

from pages.models.opening.controls import KEYS, choose
from pages.models.opening.opened import OpenCheckpoint
from pages.models.opening.partners import Partner, pairs_of, partner

__all__ = ["KEYS", "OpenCheckpoint", "Partner", "choose", "pairs_of", "partner"]
