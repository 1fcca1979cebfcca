"""Which checkpoint a visitor opens, and the checkpoint that has been opened."""

from pages.models.opening.compared import Partner, pairs_of, partner
from pages.models.opening.controls import IMATRIX_KEYS, KEYS, choose
from pages.models.opening.opened import OpenCheckpoint
