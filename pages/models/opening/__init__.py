"""Which checkpoint a visitor opens, and the checkpoint that has been opened."""

from pages.models.opening.compared import Partner, pairs_of, partner
from pages.models.opening.controls import choose, show_tensor
from pages.models.opening.opened import EXAMPLE, OpenCheckpoint, location_of
