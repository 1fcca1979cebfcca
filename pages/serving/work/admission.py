"""Heavy work is admitted by the bytes it needs: first come, first served, but small never waits for large.

A visitor's run holds one place, from its first heavy computation to its end. Places are in lanes, each with
its own bytes, so that work waits only for work of the same kind:

    small   fits many times into the budget: in practice never waits
    long    small too, but it computes for seconds (training, sweeps, Match)
    large   everything else: a tensor that takes a good part of the budget

A run that needs more than its place has gives the place back and waits for a larger one; a run that waits for
another run's result gives its place back meanwhile. So no two runs wait for each other. Work that needs more
than its whole lane runs alone in it; work that needs more than one run may have is refused.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum

from quantcore.errors import QuantError
from quantcore.wording import megabytes

POLL = 0.1  # seconds; how soon a waiting run notices that it was replaced


class WorkKind(IntEnum):
    """The lanes; a place in a higher one also does for work of a lower one."""

    SMALL = 0
    LONG = 1
    LARGE = 2


@dataclass(eq=False)
class LanePlace:
    """A place in a lane, for work that needs ``need`` bytes.

    ``number``: order of arrival; ``bytes``: what it takes of the lane's; ``tensors``: keys of those in use.
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
        self.waiting: list[LanePlace] = []
        self.working: list[LanePlace] = []

    @property
    def used(self) -> int:
        """Bytes of the work admitted."""
        return sum(place.bytes for place in self.working)


Tell = Callable[[int, WorkKind], None]
Useless = Callable[[], bool]


class Gate:
    """Where heavy work waits for its bytes. Thread-safe.

    Args:
        most: bytes that one run may need; by default, as many as it likes.

    Attributes:
        budget: bytes that all work together may take.
        numbers: the next ones in the order of arrival.
        on_change: called, outside the lock, after a place was taken or given back.
    """

    def __init__(self, budget: int, cores: int, most: int | None = None) -> None:
        self.budget, self._most = budget, most
        self.on_change: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self.numbers = itertools.count()
        share = budget // 16
        self._small = share // 4  # the most bytes that small work needs
        # One core is left to everybody else. On two cores, twelve large tensors took 27.5 s two at a time and
        # 30.3 s one at a time, but the first was done after 5.8 s and 2.6 s.
        at_once = max(1, cores - 1)
        self._lanes = {
            WorkKind.SMALL: Lane(share, at_once=1000),
            WorkKind.LONG: Lane(share, at_once),
            WorkKind.LARGE: Lane(budget - 2 * share, at_once),
        }

    def kind(self, need: int, long: bool = False) -> WorkKind:
        """Return the lane for work that needs this many bytes."""
        if need > self._small:
            return WorkKind.LARGE
        return WorkKind.LONG if long else WorkKind.SMALL

    def admit(
        self,
        kind: WorkKind,
        need: int,
        number: int,
        tell: Tell,
        useless: Useless,
        instead_of: LanePlace | None = None,
    ) -> LanePlace | None:
        """Wait for a place, and return it; None if the work became useless, as when another run did it.

        Args:
            tell: called while waiting with the number of runs ahead; what it raises ends the wait.
            useless: whether the work is no longer needed.
            instead_of: a place that is given back, once this one stands in the queue: nobody who came later
                gets in between.
        """
        lane = self._lanes[kind]
        place = LanePlace(kind, number, need, min(need, lane.budget))
        with self._changed:
            lane.waiting.append(place)
        try:
            if instead_of is not None:
                self.leave(instead_of)
            while not useless():
                with self._changed:
                    fits = lane.used + place.bytes <= lane.budget and len(lane.working) < lane.at_once
                    if fits and all(number <= other.number for other in lane.waiting):
                        place.since = time.monotonic()
                        lane.working.append(place)
                        break
                    before = len(lane.working) + sum(other.number < number for other in lane.waiting)
                    self._changed.wait(POLL)
                tell(before, kind)
            else:
                return None
        finally:
            with self._changed:
                lane.waiting.remove(place)
                self._changed.notify_all()
        self._call_on_change()
        return place

    def leave(self, place: LanePlace) -> None:
        """Give a place back."""
        with self._changed:
            self._lanes[place.kind].working.remove(place)
            self._changed.notify_all()
        self._call_on_change()

    def _call_on_change(self) -> None:
        for changed in self.on_change:
            changed()

    def others_wait(self, place: LanePlace) -> bool:
        """Tell whether anybody waits in the lane of a place."""
        with self._changed:
            return bool(self._lanes[place.kind].waiting)

    @property
    def queue_length(self) -> int:
        """How many runs wait."""
        with self._changed:
            return sum(len(lane.waiting) for lane in self._lanes.values())

    @property
    def bytes_in_work(self) -> int:
        """Bytes of all work admitted."""
        with self._changed:
            return sum(lane.used for lane in self._lanes.values())

    def largest(self) -> int:
        """Return the bytes that one visitor's work may take."""
        return self._lanes[WorkKind.LARGE].budget

    def too_much(self, need: int) -> str:
        """Return a sentence if no run may need so many bytes, else an empty text."""
        if self._most is None or need <= self._most:
            return ""
        return (
            f"This needs about {megabytes(need)} of memory, and this server gives one visitor at most "
            f"{megabytes(self._most)}: choose a smaller tensor or a part of it, or set QUANTSCOPE_WORK_GB to "
            "a larger value."
        )

    def idle_bytes(self) -> int:
        """Return the bytes of the large lane that no work has taken."""
        with self._changed:
            lane = self._lanes[WorkKind.LARGE]
            return lane.budget - lane.used

    def in_work(self) -> dict[str, int]:
        """Return the tensors in work -> bytes of the places that use them."""
        found: dict[str, int] = {}
        with self._changed:
            for place in self._lanes[WorkKind.LARGE].working:
                for tensor in place.tensors:
                    found[tensor] = found.get(tensor, 0) + place.bytes
        return found


class Turn:
    """A visitor's run, which holds at most one place at a time; close it at the end of the run.

    Not thread-safe: one thread, one turn.

    Args:
        tell: called with the number of runs ahead while it waits, and with 0 after; what it raises ends the
            wait.
    """

    def __init__(self, gate: Gate, tell: Tell) -> None:
        self.place: LanePlace | None = None
        self._gate, self._tell = gate, tell
        self._number: int | None = None

    def need(
        self, need: int, tensor: str = "", *, long: bool = False, useless: Useless = lambda: False
    ) -> bool:
        """Wait until this run may use ``need`` bytes in all; return False if ``useless`` became true.

        Args:
            tensor: key of the tensor to be used.
            long: whether the work takes seconds even if it is small.

        Raises:
            QuantError: no run may need so much.
        """
        problem = self._gate.too_much(need)
        if problem:
            raise QuantError(problem)
        kind, held = self._gate.kind(need, long), self.place
        if held is None or held.kind < kind or held.need < need:
            if self._number is None:
                self._number = next(self._gate.numbers)
            if held is not None:
                kind, need = max(kind, held.kind), max(need, held.need)
            self._wait(kind, need, self._number, useless)
        if self.place is not None and tensor:
            self.place.tensors.add(tensor)
        return self.place is not None

    def overstays(self, seconds: float) -> bool:
        """Tell whether the place has been held this long while others wait for theirs."""
        if self.place is None or time.monotonic() - self.place.since <= seconds:
            return False
        return self._gate.others_wait(self.place)

    def let_others(self, seconds: float) -> None:
        """If the place `overstays`, give it back and wait for it again.

        For work that keeps little in memory and that nobody waits for: a run with a place would wait forever.
        """
        if self.overstays(seconds):
            with self.without_place():
                self._number = next(self._gate.numbers)

    @contextmanager
    def without_place(self) -> Iterator[None]:
        """Give the place back within the context: for waiting for a run that may itself wait for a place."""
        held, self.place = self.place, None
        if held is None:
            yield
            return
        self._gate.leave(held)
        yield
        if self.place is None:  # no other has been taken meanwhile
            assert self._number is not None  # since there was a place
            self._wait(held.kind, held.need, self._number, lambda: False)
        if self.place is not None:
            self.place.tensors |= held.tensors

    def close(self) -> None:
        """Give back what the run holds."""
        self._leave()
        self._number = None

    def _wait(self, kind: WorkKind, need: int, number: int, useless: Useless) -> None:
        """Take a place instead of the one that is held; after a wait, tell that no run is ahead any more."""
        reported = False

        def tell(before: int, kind: WorkKind) -> None:
            nonlocal reported
            reported = True
            self._tell(before, kind)

        held, self.place = self.place, None
        self.place = self._gate.admit(kind, need, number, tell, useless, held)
        if reported:
            self._tell(0, kind)

    def _leave(self) -> None:
        place, self.place = self.place, None
        if place is not None:
            self._gate.leave(place)
