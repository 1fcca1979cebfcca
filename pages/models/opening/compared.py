"""Comparisons of two checkpoints that are shared: by the pages that show them, and by all visitors."""

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from pages.models.opening.opened import Opened
from pages.shared import cache
from pages.shared.selection import Tensor
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
        """Those of the pairs that are finished."""
        known = self._results
        if len(known) < len(self.state.finished):
            self._results = known = [*known, *self.comparison.results(self.state, len(known))]
        return known

    def note(self, step: Step) -> None:
        """Remember how far it has come."""
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
    mine[key] = mine.pop(key)  # the last used is the last forgotten
    while len(mine) > _MOST:
        mine.pop(next(iter(mine)))
    return mine[key]


def record(key: str, elements: int) -> Tensor:
    """What the cache and the gate know of a comparison: its key and its bytes."""
    return Tensor(key, "", (elements,), lambda: np.empty(0, np.float32))
