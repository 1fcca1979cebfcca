"""How much each tensor lost against the original: compared in boxes of rows, shown as colors and a column."""

import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.models.checkpoint.run import Progress, record_of
from pages.models.opening import Opened
from pages.shared import cache, messages, turn
from quantcore.analysis import sqnr_of
from quantcore.checkpoints.comparison import Comparison, ComparisonState
from quantcore.tensors import megabytes

AT_ONCE = 100_000_000  # bytes of both that are compared without a press of the button: about a second
_FLOATS = 600  # that the record of a tensor takes
_WANTED = "_ck_harm_wanted"


@dataclass
class _Kept:
    """A comparison and how far it has come; ``lock``: held by whoever continues it."""

    comparison: Comparison
    state: ComparisonState
    done: int = 0
    lock: Any = field(default_factory=threading.Lock)

    @property
    def is_finished(self) -> bool:
        return len(self.state.finished) == len(self.comparison.pairing.pairs)


def sqnr(opened: Opened, original: Opened, place: DeltaGenerator) -> dict[str, float]:
    """Return the SQNR of each tensor that has been compared, in dB, by name; compare the others if that is wanted."""
    record = record_of(f"harm {original.key} | {opened.key}", _FLOATS * len(opened.checkpoint.tensors))

    def make() -> _Kept:
        comparison = Comparison(original.checkpoint, opened.checkpoint)
        return _Kept(comparison, ComparisonState(comparison.identity))

    kept = cache.cached_small(record, "comparison", make)
    if not kept.is_finished:
        left, wanted = kept.comparison.total - kept.done, st.session_state.get(_WANTED)
        if wanted == record.key or (left <= AT_ONCE and wanted != f"not {record.key}"):
            _continue(kept, record.key, place)
        else:
            label = f"Compare {megabytes(left)}" if not kept.done else f"Compare the other {megabytes(left)}"
            place.button(label, type="primary", on_click=_want, args=(record.key,), key="_ck_harm")
    return _by_tensor(kept)


def _want(key: str) -> None:
    st.session_state[_WANTED] = key


def _continue(kept: _Kept, key: str, place: DeltaGenerator) -> None:
    progress = Progress(place, partial(_want, f"not {key}"))
    threads = max(1, turn.CORES - 1)  # one core is left to everybody else
    need = record_of(key, kept.comparison.memory(threads) // 4)
    with cache.turn_of(need, 1.0, long=True, useless=lambda: kept.is_finished) as own:
        while not kept.lock.acquire(timeout=0.2):  # another visitor compares the same two
            turn.check()
        steps = kept.comparison.steps(kept.state, threads)
        try:
            for step in steps:
                kept.done = step.done
                told = f"{megabytes(step.done)} of {megabytes(step.total)}: {step.name}"
                progress(step.done / max(1, step.total), messages.plain(told))
                own.let_others(turn.AT_A_TIME)
        finally:
            steps.close()
            kept.lock.release()
    progress.end()


def _by_tensor(kept: _Kept) -> dict[str, float]:
    """The SQNR of each tensor; of one that was compared in parts, such as a stack of experts, over all of them."""
    sums: dict[str, tuple[float, float]] = {}
    for result in kept.comparison.results(kept.state):
        if not result.problem:
            signal, noise = sums.get(result.other_tensor, (0.0, 0.0))
            sums[result.other_tensor] = signal + result.power, noise + result.squared_error
    return {name: float(sqnr_of(signal, noise)) for name, (signal, noise) in sums.items()}
