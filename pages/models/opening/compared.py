"""Which tensors of an original and a checkpoint belong together, and how they differ: found once for all.

For the pages that show it, and for all visitors.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamlit.delta_generator import DeltaGenerator
from torch import Tensor

from pages.models.opening.opened import OpenCheckpoint
from pages.shared.computing import cache, turn
from pages.shared.computing.long_work import LongWork, WorkStep
from quantcore.checkpoints import CheckpointTensor, plane_shape
from quantcore.checkpoints.comparison import (
    CheckpointComparison,
    ComparisonState,
    Order,
    Pair,
    TensorResult,
    pair_up,
    row_order,
)
from quantcore.wording import count, megabytes

# Bytes compared without pressing the button: about a second
AT_ONCE, AT_ONCE_REMOTE = 100_000_000, 5_000_000
_PER_PAIR = 2000  # floats that the record, the result and the error map of a pair take


@dataclass
class SharedComparison:
    """A comparison and its state; ``lock``: held by whoever continues it."""

    key: str
    comparison: CheckpointComparison
    state: ComparisonState
    is_remote: bool
    done: int = 0
    name: str = ""
    lock: Any = field(default_factory=threading.Lock)
    _results: list[TensorResult] = field(default_factory=list)

    @property
    def left(self) -> int:
        """Bytes that are still to be compared."""
        return self.comparison.total - self.done

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
        comparison = CheckpointComparison(original.checkpoint, other.checkpoint)
        is_remote = original.is_remote or other.is_remote
        return SharedComparison(key, comparison, ComparisonState(comparison.identity), is_remote)

    size = _PER_PAIR * len(other.checkpoint.tensors)
    return cache.shared_record(cache.CacheKey(key, size), "comparison", make)


def proceed(found: SharedComparison, place: DeltaGenerator, draw: Callable[[], None] | None = None) -> None:
    """Continue a comparison if that is quick or the visitor asked for it, else draw the button for it.

    Args:
        place, draw: as for `LongWork`.
    """
    if found.is_finished:
        return
    work = LongWork("cmp", found.key, found.left <= (AT_ONCE_REMOTE if found.is_remote else AT_ONCE))
    label = f"Compare {megabytes(found.left)}"
    caption = f"{count(len(found.comparison.pairing.pairs), 'pair')} of tensors"
    if found.done:
        label = f"Continue: {megabytes(found.left)} left"
        done = f"{found.done / found.comparison.total:.0%}: {len(found.state.finished):,}"
        caption = f"Stopped at {done} of {caption} compared."
    if work.starts(place, label, caption):
        threads = max(1, turn.CORES - 1)  # one core is left to everybody else
        content = cache.CacheKey(found.key, found.comparison.memory(threads) // 4)
        is_done = lambda: found.is_finished  # noqa: E731
        work.run(place, lambda: _steps(found, threads), content, useless=is_done, draw=draw)


def _steps(found: SharedComparison, threads: int) -> Generator[WorkStep, None, None]:
    """Compare box by box; if several visitors ask for the same comparison, only one compares at a time.

    It lets others go first by rerunning the script: waiting for its place while it holds the lock could
    deadlock with a run that has the place and waits for the lock.
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
    total = found.comparison.total
    text = f"{megabytes(found.done)} of {megabytes(total)}: {found.name}"
    return WorkStep(found.done / max(1, total), text, len(found.state.finished))


def pairs_of(opened: OpenCheckpoint, original: OpenCheckpoint, name: str) -> list[Pair]:
    """Return the pairs of a tensor, by name and shape: none, one, or one for each expert or part of it."""
    content = cache.CacheKey(f"pairing {original.key} | {opened.key}", 100 * len(opened.checkpoint.tensors))
    make = lambda: pair_up(original.checkpoint, opened.checkpoint)  # noqa: E731
    return cache.cached_small(content, "pairs", make).of_other.get(name, [])


@dataclass(frozen=True)
class Partner:
    """The plane of the original that a plane of a tensor was made from.

    ``key``: identifies it, for caches; ``tensor``, ``at``: where it is; ``order``: the order of its rows in
    the checkpoint, if that is different.
    """

    key: str
    tensor: CheckpointTensor
    at: tuple[int, ...]
    order: Order | None

    def rows(self, start: int, stop: int) -> Tensor:
        """Return the values of rows ``start`` to ``stop`` of the checkpoint, float32.

        Raises:
            QuantError: they can't be read.
        """
        if self.order is None:
            return self.tensor.window((start, stop), self.at).values
        span, index = self.order.originals(start, stop)
        return self.tensor.window(span, self.at).values[index]

    def index(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in the original of an element of the checkpoint's tensor."""
        row, column = (0, *index)[-2:]
        row = row if self.order is None else self.order.original(row)
        return (*self.at, row, column)[-len(self.tensor.shape) :] if self.tensor.shape else ()


def partner(
    opened: OpenCheckpoint, original: OpenCheckpoint | None, name: str, at: tuple[int, ...]
) -> Partner | None:
    """Return the plane that a tensor's plane was made from; None if there is no original or no such plane.

    Args:
        at: the index of the plane on all axes but the last two.

    Raises:
        QuantError: one of them can't be read.
    """
    if original is None:
        return None
    for pair in pairs_of(opened, original, name):
        parts = (pair.original, pair.other)
        if any(part.rows or part.transposed for part in parts) or pair.other.index not in (None, *at[:1]):
            continue
        found = original.checkpoint.tensors[pair.original.name]
        place = at if pair.other.index is None else at[1:]
        place = place if pair.original.index is None else (pair.original.index, *place)
        shape = opened.checkpoint.tensors[name].shape
        if plane_shape(found.shape) == plane_shape(shape) and len(place) == max(0, len(found.shape) - 2):
            content = cache.CacheKey(f"order {original.key} | {opened.key} {found.name} {name}", 1 << 18)
            make = partial(row_order, original.checkpoint, opened.checkpoint, found.name, name)
            order = cache.cached_small(content, "order", make)
            return Partner(f"{original.key} {found.name} {place}", found, place, order)
    return None
