"""A run's turn at the gate for heavy work, and what the visitor is told while waiting for it."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner_utils.script_run_context import get_run_yield_check

from pages.serving import settings
from pages.serving.work import memory
from pages.serving.work.admission import Gate, Turn, WorkKind

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
AT_A_TIME = 5.0  # seconds after which long work lets waiting visitors go first
_PATIENCE = 0.3  # seconds of waiting that are not worth a message
_WHAT = {
    WorkKind.SMALL: ("computation", "computations"),
    WorkKind.LONG: ("long computation", "long computations"),
    WorkKind.LARGE: ("large tensor", "large tensors"),
}
_of_thread = threading.local()


def default_budget() -> int:
    """Return the bytes for tensors in work if not set: 1 GB, or a quarter of the memory if that is less."""
    return min(10**9, memory.usable() // 4)


def _gate(chosen: float | None) -> Gate:
    """Return the gate: one run may need what was chosen for all, by default a quarter of the memory."""
    if chosen:
        return Gate(int(chosen * 1e9), CORES, int(chosen * 1e9))
    return Gate(default_budget(), CORES, memory.usable() // 4)


GATE = _gate(settings.current().work_gb)


@contextmanager
def of_run(place: DeltaGenerator | None) -> Iterator[Turn]:
    """Make all heavy work of a run one turn, which ends with the run, however the run ends.

    Args:
        place: a container at the top of the page, where the visitor is told about the wait.
    """
    turn = _of_thread.turn = Turn(GATE, _WaitMessage(place).update)
    try:
        yield turn
    finally:
        _of_thread.turn = None
        was_large = turn.place is not None and turn.place.kind is WorkKind.LARGE
        turn.close()
        if was_large:
            memory.give_back()


@contextmanager
def current() -> Iterator[Turn]:
    """Yield the turn of this run; outside a run (a download, a fragment), one for as long as the context."""
    known = getattr(_of_thread, "turn", None)
    with nullcontext(known) if known is not None else of_run(None) as turn:
        yield turn


def threads(tensor: int, each: float) -> int:
    """Tell how many threads may work on a tensor of ``tensor`` bytes if each needs ``each`` times its size.

    As many as there are cores, or as many as the memory allows for a visitor alone.
    """
    fitting = (GATE.largest() / max(tensor, 1) - 1) / each
    return max(1, min(CORES, int(fitting)))


def check() -> None:
    """End the run here if it was replaced or stopped, as Streamlit does wherever a run draws."""
    ended = get_run_yield_check()
    if ended is not None:
        ended()


def rerun_for_others(own: Turn) -> None:
    """Restart the run if it has kept others waiting for a while: for work that then continues where it was.

    Work that visitors who hold a place may be waiting for must not use `Turn.let_others`.
    """
    if own.overstays(AT_A_TIME):
        st.rerun()


def pause_for_others(own: Turn) -> None:
    """Let waiting visitors go first if the run has kept them for a while, and wait for the place again.

    For work that keeps little in memory and for which nobody waits with a place of his own.
    """
    own.let_others(AT_A_TIME)


@contextmanager
def computing(shown: bool) -> Iterator[None]:
    """Show that something is being computed: one spinner, even if nested; none outside a run."""
    outermost = shown and get_run_yield_check() is not None and not getattr(_of_thread, "computing", False)
    _of_thread.computing = True if outermost else getattr(_of_thread, "computing", False)
    try:
        with st.spinner("Computing…") if outermost else nullcontext():
            yield
    finally:
        if outermost:
            _of_thread.computing = False


class _WaitMessage:
    """Tells a waiting visitor how many others come first, whenever that changes."""

    def __init__(self, place: DeltaGenerator | None) -> None:
        self.place = place
        self.box: Any = None
        self.since: float | None = None
        self.before = -1

    def update(self, before: int, kind: WorkKind) -> None:
        """Show how many come before this visitor; if none, clear it. Ends a run that was replaced."""
        check()
        now = time.monotonic()
        if before == 0:
            if self.box is not None:
                self.box.empty()
            self.since, self.before, self.box = None, -1, None
            return
        self.since = self.since or now
        if before == self.before or now - self.since < _PATIENCE or get_run_yield_check() is None:
            return
        self.before = before
        self.box = self.box or (self.place or st).empty()
        self.box.info(sentence(before, kind), icon=":material/hourglass_top:")


def sentence(before: int, kind: WorkKind) -> str:
    """Return the message to a visitor who waits behind ``before`` others."""
    waiting = f"{before:,} {_WHAT[kind][before > 1]}"
    return f"{waiting} before yours. The page continues by itself when it is your turn."
