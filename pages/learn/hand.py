"""Figures that are moved by hand: ends, readings and numbers in sentences are dragged, and all follows.

The browser asks the route of the live maps for the step under the values that the hand is at, and the page's
run follows when it rests. Both call the step's one function, so the run draws what is already seen.
"""

import html
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import streamlit as st

import quantcore as qc
from pages.browser import streamlit_dom
from pages.learn import views
from pages.maps import component, live
from pages.serving import warm
from quantcore import figures

KEY = "learn_hand"  # of the component
WORDS, BELOW, NUMBERS = "learn_hand_words", "learn_hand_below", "learn_hand_numbers"  # of what follows
_COMPONENT = st.components.v2.component(
    "quantscope_hand",
    html='<div class="qs-hand" role="group"></div>',
    css=(Path(__file__).parent / "hand.css").read_text(encoding="utf-8"),
    js=streamlit_dom.read(Path(__file__).parent / "hand.js"),
    isolate_styles=False,
)
Values = Mapping[str, float]


@dataclass(frozen=True)
class MovedNumber:
    """A number that a hand moves, also by the control that has its key."""

    key: str
    low: float
    high: float
    step: float
    name: str
    unit: str = ""

    def read(self, text: str) -> float:
        """Return the number that a request names, or the nearest one that the control has.

        Raises:
            QuantError: it is none, or outside the control's range.
        """
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not self.low <= value <= self.high:
            raise qc.QuantError(
                f"{self.name} is a number from {self.low:g} to {self.high:g}, not {text[:20]!r}."
            )
        value = self.low + round((value - self.low) / self.step) * self.step
        return round(value, 6) if self.step % 1 else round(value)

    def scrub(self, value: float) -> str:
        """Return the number in a sentence, in HTML: it is dragged there, or changed by the arrow keys."""
        places = f'aria-valuemin="{self.low:g}" aria-valuemax="{self.high:g}" aria-valuenow="{value:g}"'
        name = html.escape(f"{self.name}: drag, or press the arrow keys")
        return (
            f'<span class="qs-scrub" role="slider" tabindex="0" data-key="{self.key}" {places} '
            f'aria-label="{name}" title="{name}">{value:g}{self.unit and " "}{self.unit}</span>'
        )


@dataclass(frozen=True)
class Handle:
    """What of a figure is dragged along x.

    Attributes:
        y: its place on the vertical axis; None: a grip over the whole height.
        times: x is so many times the number.
    """

    number: MovedNumber
    y: float | None = None
    times: float = 1.0


@dataclass(frozen=True)
class MovedStep:
    """What a step shows: its figure, what is dragged in it, and HTML that follows, by its places' keys."""

    figure: go.Figure
    handles: tuple[Handle, ...] = ()
    html: Mapping[str, str] = field(default_factory=dict)
    name: str = "Figure"


Step = Callable[[Values], MovedStep]


@dataclass(eq=False)
class _Followed(live.Followed):
    step: Step
    numbers: Mapping[str, MovedNumber]
    values: Values

    def answer(self, values: Mapping[str, str], held: str) -> bytes:
        warm.one_thread()
        read = {key: self.numbers[key].read(text) for key, text in values.items() if key in self.numbers}
        return json.dumps(_sent(self.step, {**self.values, **read}, self.numbers)).encode()


def draw(step: Step, values: Mapping[MovedNumber, float], words: Any, picture: Any) -> None:
    """Draw a step with these values of its controls: its sentences, its figure and its lines.

    Args:
        step: called by the run, and by requests outside it.
        words, picture: the places from `views.side_by_side`.
    """
    numbers = {number.key: number for number in values}
    at = {number.key: value for number, value in values.items()}
    sent = _sent(step, at, numbers)
    place = live.follow(KEY, _Followed(step, numbers, at))
    texts = sent["html"]
    with words:
        for key in [key for key in texts if key != BELOW]:
            st.container(key=key).html(texts[key])
    with picture:
        with views.place_of_figure():
            _COMPONENT(
                key=KEY,
                data=[json.dumps({**sent, "at": place, "base": component.base()})],
                on_moved_change=partial(_moved, numbers),
            )
        if BELOW in texts:
            st.container(key=BELOW).html(texts[BELOW])


def _sent(step: Step, values: Values, numbers: Mapping[str, MovedNumber]) -> dict[str, Any]:
    shown = step(values)
    return {
        "figure": json.loads(str(shown.figure.to_json())),
        "words": figures.described(shown.figure, shown.name),
        "handles": [
            {"key": h.number.key, "y": h.y, "times": h.times, "name": h.number.name, "unit": h.number.unit}
            for h in shown.handles
        ],
        "html": dict(shown.html),
        "values": dict(values),
        "numbers": {key: [n.low, n.high, n.step] for key, n in numbers.items()},
    }


def _moved(numbers: Mapping[str, MovedNumber]) -> None:
    """Set the controls to what the hand has left (a callback)."""
    for key, value in (st.session_state[KEY].moved or {}).items():
        if key in numbers:
            st.session_state[key] = numbers[key].read(str(value))
