"""Comparisons of two checkpoints, shared by the pages that show them and by all visitors."""

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from streamlit.delta_generator import DeltaGenerator

from pages.models.opening.opened import OpenCheckpoint
from pages.shared.computing import cache, turn
from pages.shared.computing.long_work import LongWork, WorkStep
from quantcore.checkpoints.comparison import Comparison, ComparisonState, TensorResult
from quantcore.wording import count, megabytes

# Bytes compared without pressing the button: about a second
AT_ONCE, AT_ONCE_REMOTE = 100_000_000, 5_000_000
_PER_PAIR = 600  # floats that the record and the result of a pair take


@dataclass
class SharedComparison:
    """A comparison and its state; ``lock``: held by whoever continues it."""

    key: str
    comparison: Comparison
    state: ComparisonState
    done: int = 0
    name: str = ""
    lock: Any = field(default_factory=threading.Lock)
    _results: list[TensorResult] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Bytes of all pairs."""
        return self.comparison.total

    @property
    def left(self) -> int:
        """Bytes that are still to be compared."""
        return self.total - self.done

    @property
    def is_finished(self) -> bool:
        """Whether every pair is done."""
        return len(self.state.finished) == len(self.comparison.pairing.pairs)

    @property
    def results(self) -> list[TensorResult]:
        """The results of the finished pairs."""
        known = self._results
        if len(known) < len(self.state.finished):
            self._results = known = [*known, *self.comparison.results(self.state, len(known))]
        return known


def between(original: OpenCheckpoint, other: OpenCheckpoint) -> SharedComparison:
    """Return the comparison of two checkpoints: a visitor's, or a new one."""
    key = f"comparison {original.key} | {other.key}"

    def make() -> SharedComparison:
        comparison = Comparison(original.checkpoint, other.checkpoint)
        return SharedComparison(key, comparison, ComparisonState(comparison.identity))

    return cache.shared_record(cache.CacheKey(key, _PER_PAIR * len(other.checkpoint.tensors)), "comparison", make)


def proceed(found: SharedComparison, place: DeltaGenerator, draw: Callable[[], None] | None = None) -> None:
    """Continue a comparison if that is quick or the visitor asked for it, else draw the button for it.

    Args:
        place, draw: as for `LongWork`.
    """
    if found.is_finished:
        return
    quick = found.left <= (AT_ONCE_REMOTE if _is_remote(found.comparison) else AT_ONCE)
    work = LongWork("cmp", found.key, quick)
    label, caption = f"Compare {megabytes(found.left)}", f"{count(len(found.comparison.pairing.pairs), 'pair')} of tensors"
    if found.done:
        label = f"Continue: {megabytes(found.left)} left"
        caption = f"Stopped at {found.done / found.total:.0%}: {len(found.state.finished):,} of {caption} compared."
    if work.starts(place, label, caption):
        threads = max(1, turn.CORES - 1)  # one core is left to everybody else
        content = cache.CacheKey(found.key, found.comparison.memory(threads) // 4)
        done = lambda: found.is_finished  # noqa: E731
        work.run(place, lambda: _steps(found, threads), content, useless=done, draw=draw)


def _steps(found: SharedComparison, threads: int) -> Generator[WorkStep, None, None]:
    """Compare box by box; if several visitors ask for the same comparison, only one compares at a time.

    It lets others go first by rerunning the script: waiting for its place while it holds the lock could deadlock with a
    run that has the place and waits for the lock.
    """
    while not found.lock.acquire(timeout=0.2):
        yield _step(found)
    try:
        with closing(found.comparison.steps(found.state, threads)) as steps:
            for compared, step in enumerate(steps):
                found.done, found.name = step.done, step.name
                if compared:  # the first step comes before a box has been compared
                    yield _step(found)
    finally:
        found.lock.release()


def _step(found: SharedComparison) -> WorkStep:
    text = f"{megabytes(found.done)} of {megabytes(found.total)}: {found.name}"
    return WorkStep(found.done / max(1, found.total), text, len(found.state.finished))


def _is_remote(comparison: Comparison) -> bool:
    firsts = (next(iter(side.release.stored.values()), None) for side in (comparison.original, comparison.other))
    return any(piece is not None and piece.source.is_remote for piece in firsts)
