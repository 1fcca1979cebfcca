"""A comparison that shows progress, can be stopped and continued, and is shared by all who compare the same two.

Its record belongs to no single visitor: whoever has the turn continues it, and the others see its progress. Pressing
Stop, changing another control or leaving the page ends the script between two boxes of rows; nothing is lost.
"""

import time
from collections.abc import Callable
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.models.opening.compared import Kept, proceed
from pages.shared import messages
from pages.shared.computing import turn
from quantcore.checkpoints.comparison import Comparison
from quantcore.wording import count, megabytes

AT_ONCE, AT_ONCE_REMOTE = (
    100_000_000,
    5_000_000,
)  # bytes compared without pressing the button: about a second
_WANTED = "_comparison_wanted"
_LOCAL_GAP = 1 << 16  # bytes; a source that joins reads across longer gaps is on another machine


def run(found: Kept, draw: Callable[[int], None]) -> None:
    """Continue a comparison if that is quick or the visitor asked for it.

    Args:
        draw: called now and then with the number of finished pairs; replaces what it drew last by their results.
    """
    if found.is_finished:
        return
    place, wanted = st.empty(), st.session_state.get(_WANTED)
    quick = found.total - found.done <= (AT_ONCE_REMOTE if _is_remote(found.comparison) else AT_ONCE)
    if wanted == found.key or (quick and wanted != f"not {found.key}"):
        _continue(found, place, draw)
        return
    left = megabytes(found.total - found.done)
    label = f"Continue: {left} left" if found.done else f"Compare {left}"
    pairs, done = found.comparison.pairing.pairs, len(found.state.finished)
    text = f"{count(len(pairs), 'pair')} of tensors"
    if found.done:
        text = f"Stopped at {found.done / found.total:.0%}: {done:,} of {text} compared."
    # with keys: the browser would otherwise keep this button next to the progress bar
    with place.container(horizontal=True, vertical_alignment="center", key="cmp_start"):
        st.button(label, type="primary", on_click=_want, args=(found.key,), key="cmp_go")
        st.caption(text)


def _is_remote(comparison: Comparison) -> bool:
    pieces = (
        piece
        for side in (comparison.original, comparison.other)
        for piece in list(side.release.stored.values())[:1]
    )
    return any(_LOCAL_GAP < piece.source.gap < 1 << 32 for piece in pieces)


def _want(key: str) -> None:
    """Start or stop a comparison (a callback)."""
    st.session_state[_WANTED] = key


def _continue(found: Kept, place: DeltaGenerator, draw: Callable[[int], None]) -> None:
    """Compare, and show the progress."""
    live = st.empty()
    with place.container(horizontal=True, vertical_alignment="center", key="cmp_running"):
        bar = st.progress(0.0, "Comparing…")
        st.button("Stop", on_click=_want, args=(f"not {found.key}",), key="cmp_stop")
    shown = _Progress(found, bar, live, draw)
    proceed(found, shown)
    live.empty()
    place.empty()


class _Progress:
    """Shows the progress of a comparison, and now and then its results; ends the run if it was replaced."""

    def __init__(self, found: Kept, bar: Any, live: DeltaGenerator, draw: Callable[[int], None]) -> None:
        self._found, self._bar, self._live, self._draw = found, bar, live, draw
        self._began = self._drawn = time.monotonic()
        self._updated, self._known = 0.0, 0

    def __call__(self) -> None:
        """Update the display, unless that was done a moment ago."""
        turn.check()
        now, found = time.monotonic(), self._found
        if now - self._updated < 0.1:
            return
        self._updated = now
        part = f"{megabytes(found.done)} of {megabytes(found.total)}: {found.name}"
        self._bar.progress(min(1.0, found.done / max(1, found.total)), messages.plain(part))
        # less often the longer it takes, since the chart flickers when redrawn
        known = len(found.state.finished)
        if known > self._known and now - self._drawn > max(0.6, (now - self._began) / 6):
            with self._live.container():
                self._draw(known)
            self._drawn, self._known = time.monotonic(), known
