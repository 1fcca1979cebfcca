"""Places for heavy work, in one lane per kind of work."""

import time
from dataclasses import dataclass, field
from enum import IntEnum


class WorkKind(IntEnum):
    """The lanes; a place in a higher one also does for work of a lower one."""

    SMALL = 0
    LONG = 1
    LARGE = 2


@dataclass(eq=False)
class Place:
    """A place in a lane, for work that needs ``need`` bytes.

    ``number``: order of arrival; ``bytes``: what it takes of the lane's; ``tensors``: keys of the tensors in use.
    """

    kind: WorkKind
    number: int
    need: int
    bytes: int
    tensors: set[str] = field(default_factory=set)
    since: float = field(default_factory=time.monotonic)


class Lane:
    """Work of one kind: at most ``budget`` bytes and ``at_once`` places. The gate's lock guards it."""

    def __init__(self, budget: int, at_once: int) -> None:
        self.budget, self.at_once = budget, at_once
        self.waiting: list[Place] = []
        self.working: list[Place] = []

    @property
    def used(self) -> int:
        """Bytes of the work admitted."""
        return sum(place.bytes for place in self.working)

    def admits(self, place: Place) -> bool:
        """Whether a waiting place is next and fits."""
        fits = self.used + place.bytes <= self.budget and len(self.working) < self.at_once
        return fits and all(place.number <= other.number for other in self.waiting)

    def before(self, place: Place) -> int:
        """How many have been admitted or arrived earlier."""
        return len(self.working) + sum(other.number < place.number for other in self.waiting)
