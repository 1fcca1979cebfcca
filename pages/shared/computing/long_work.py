"""Work that takes a while: starts by itself or when asked for, waits its turn, shows progress, stops.

The work is a generator that the script itself steps through; it stores what it finds where later runs look
for it. Each step checks whether Streamlit wants the run to end (the visitor pressed Stop, changed another
control or left the page): then the generator is closed, and what it stored stays.
"""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.serving.work.admission import Turn
from pages.shared import messages
from pages.shared.computing import cache, turn

_WANTED = "_long_work"  # key of a work -> whether the visitor asked for it (True) or stopped it (False)
_PATIENCE = 0.4  # seconds; work that starts by itself shows its progress only after this long
_EVERY = 0.1  # seconds between two updates of the progress bar


class WorkStep(NamedTuple):
    """Progress: the fraction done, 0 to 1, what is done next or was last, and how many results are known."""

    done: float
    text: str
    results: int = 0


@dataclass(frozen=True)
class LongWork:
    """Long work of a page.

    Attributes:
        name: distinguishes the kinds of work on a page; prefix of the widgets' keys.
        key: identifies the work and its inputs.
        quick: whether it starts without being asked.
    """

    name: str
    key: str
    quick: bool = False

    def starts(self, place: DeltaGenerator, label: str, caption: str = "", hint: str | None = None) -> bool:
        """Return whether it is asked for, or quick and not stopped; if not, draw the button that starts it.

        Args:
            caption: shown next to the button.
        """
        if st.session_state.get(_WANTED, {}).get(self.key, self.quick):
            return True
        # with a key: the browser would otherwise keep this button next to the progress bar
        with place.container(horizontal=True, vertical_alignment="center", key=f"{self.name}_start"):
            go = f"{self.name}_go"
            st.button(label, type="primary", on_click=self.want, args=(True,), help=hint, key=go)
            if caption:
                st.caption(caption)
        return False

    def run(
        self,
        place: DeltaGenerator,
        steps: Callable[[], Generator[WorkStep, None, None]],
        content: cache.Content,
        need: float = 1.0,
        *,
        short: bool = False,
        useless: Callable[[], bool] = lambda: False,
        let_others: Callable[[Turn], None] | None = turn.rerun_for_others,
        draw: Callable[[], None] | None = None,
    ) -> None:
        """Work to the end, or until the run ends.

        Args:
            place: an empty, for the progress bar and Stop.
            content, need: what is admitted, as for `cache.turn_of`.
            short: whether small inputs take less than a second, so that they need not wait for long work.
            useless: whether another visitor has done it in the meantime.
            let_others: called after each step but the last, to let waiting visitors go first.
            draw: draws the results; called when there are more, ever less often: a redrawn chart flickers.

        Raises:
            QuantError: from the steps.
        """
        progress, live = _Progress(place, self), st.empty() if draw else None
        began = drawn = time.monotonic()
        known = 0

        def redraw(step: WorkStep) -> None:
            nonlocal drawn, known
            now = time.monotonic()
            is_due = step.results > known and now - drawn > max(0.6, (now - began) / 6)
            if draw and live is not None and is_due:
                with live.container():
                    draw()
                drawn, known = time.monotonic(), step.results

        try:
            own_turn = cache.turn_of(content, need, long=not short, useless=useless)
            with own_turn as own, closing(steps()) as running:
                for step in running if not useless() else ():
                    progress.show(step)
                    redraw(step)
                    if let_others is not None and step.done < 1:
                        let_others(own)
        except qc.QuantError:
            place.empty()
            raise
        place.empty()
        if live is not None:
            live.empty()

    def want(self, wanted: bool) -> None:
        """Start or stop (a callback)."""
        st.session_state.setdefault(_WANTED, {})[self.key] = wanted


class _Progress:
    """A progress bar and a Stop button; ends the run if it was replaced."""

    def __init__(self, place: DeltaGenerator, work: LongWork) -> None:
        self._place, self._work = place, work
        self._shown = time.monotonic() + (_PATIENCE if work.quick else 0) - _EVERY
        self._bar: DeltaGenerator | None = None
        if not work.quick:
            self.show(WorkStep(0.0, "Starting…"))

    def show(self, step: WorkStep) -> None:
        """Update the bar, unless that was done a moment ago."""
        turn.check()
        now = time.monotonic()
        if now - self._shown < _EVERY:
            return
        self._shown = now
        if self._bar is None:
            name = self._work.name
            with self._place.container(horizontal=True, vertical_alignment="center", key=f"{name}_running"):
                self._bar = st.progress(0.0)
                st.button("Stop", on_click=self._work.want, args=(False,), key=f"{name}_stop")
        self._bar.progress(min(1.0, step.done), messages.plain(step.text))
