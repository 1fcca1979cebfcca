"""Comparisons of two checkpoints, shared by the pages that show them and by all visitors."""

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from pages.models.opening.opened import Opened
from pages.shared.computing import cache, turn
from pages.shared.state.selection import Tensor
from quantcore.checkpoints.comparison import Comparison, ComparisonState, Step, TensorResult

_MOST = 4  # comparisons that a visitor keeps
_PER_PAIR = 600  # floats that the record and the result of a pair take
_KEPT = "_comparisons"


@dataclass
class Kept:
    """A comparison and its record; ``lock``: held by whoever continues it."""

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

    def note(self, step: Step) -> None:
        """Record the progress."""
        self.done, self.name = step.done, step.name


def kept(original: Opened, other: Opened) -> Kept:
    """Return the comparison of two checkpoints: this visitor's, another's, or a new one."""
    mine: dict[str, Kept] = st.session_state.setdefault(_KEPT, {})
    key = f"comparison {original.key} | {other.key}"
    if key not in mine:
        elements = _PER_PAIR * len(other.checkpoint.tensors)

        def make() -> Kept:
            comparison = Comparison(original.checkpoint, other.checkpoint)
            return Kept(key, comparison, ComparisonState(comparison.identity))

        mine[key] = cache.cached_small(record(key, elements), "record", make)
    mine[key] = mine.pop(key)  # now last, since the least recently used is forgotten first
    while len(mine) > _MOST:
        mine.pop(next(iter(mine)))
    return mine[key]


def proceed(found: Kept, shown: Callable[[], None]) -> None:
    """Compare box by box until all is done; if several visitors ask for the same one, only one compares at a time.

    After a while it lets others go first by rerunning the script: waiting for its place while it holds the lock could
    deadlock with a run that has the place and waits for the lock.

    Args:
        shown: called after each box, and while another visitor compares; what it raises ends the comparison for now.
    """
    threads = max(1, turn.CORES - 1)  # one core is left to everybody else
    need = record(found.key, found.comparison.memory(threads) // 4)
    with cache.turn_of(need, 1.0, long=True, useless=lambda: found.is_finished) as own:
        while not found.lock.acquire(timeout=0.2):
            shown()
        try:
            with closing(found.comparison.steps(found.state, threads)) as steps:
                for count, step in enumerate(steps):
                    found.note(step)
                    shown()
                    # the first step comes before a box has been compared
                    if count and step.done < step.total:
                        turn.rerun_for_others(own)
        finally:
            found.lock.release()


def record(key: str, elements: int) -> Tensor:
    """A comparison's record for the cache and the gate: its key and its size in floats."""
    return Tensor(key, "", (elements,), lambda: np.empty(0, np.float32))
