"""The plan for a class as it is presented: the address names its part (``?plan=7``), and a lesson shows the step of that
part with the question to the class, the time, and the way to the next part.
"""

import html
from typing import NamedTuple

import streamlit as st

from pages.shared import messages
from pages.shared.lesson_plan import CLASS, LESSONS, PLAN, PlanPart, step_key, step_words

_BEGINS = [sum(part.minutes for part in CLASS[:i]) for i in range(len(CLASS) + 1)]
MINUTES = _BEGINS[-1]


class Presented(NamedTuple):
    """The part that the address names, counted from 0, and whether the page shows its step."""

    part: int
    shown: bool


def presented(name: str) -> Presented | None:
    """Return the part to present on a lesson's page; None if the address names none.

    A link need not name the step. Call it before the control for the step is drawn.
    """
    index = _named()
    if index is None:
        return None
    part, key = CLASS[index], step_key(name)
    if part.lesson != name:
        return Presented(index, False)
    if key not in st.query_params and key not in st.session_state:
        st.session_state[key] = part.step
    return Presented(index, st.session_state.get(key, st.query_params.get(key)) == part.step)


def _named() -> int | None:
    text = st.query_params.get(PLAN)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(CLASS)):
        messages.warning(
            f"The plan has parts 1 to {len(CLASS)}, and no part {text[:20]!r}: the lesson is shown without the plan. "
            "Open a part from the overview."
        )
        return None
    return int(text) - 1


def neighbor(now: Presented, direction: int) -> int | None:
    """Return the part that Next (1) or Previous (-1) leads to; None beyond either end. From a step outside
    the plan, Previous returns to the part.
    """
    index = now.part + direction if now.shown or direction > 0 else now.part
    return index if 0 <= index < len(CLASS) else None


def span(index: int) -> str:
    """Return the minutes of a part, such as "18–23"."""
    return f"{_BEGINS[index]}–{_BEGINS[index + 1]}"


def label(part: PlanPart) -> str:
    """Write the step of a part in words."""
    return step_words(part.step.replace("-", " ") if part.lesson == "mistakes" else part.step)


def query(index: int) -> dict[str, str]:
    """Return the parameters of a link to a part."""
    part = CLASS[index]
    return {PLAN: str(index + 1), step_key(part.lesson): part.step}


def go(index: int) -> None:
    """Go to a part in the lesson that is open (a callback)."""
    part = CLASS[index]
    st.session_state[step_key(part.lesson)] = part.step
    st.query_params[PLAN] = str(index + 1)


def draw(now: Presented) -> None:
    """Draw the question to the class, and the time: the minutes of the part, and the minute it is."""
    part = CLASS[now.part]
    if not now.shown:
        number = list(LESSONS).index(part.lesson) + 1
        said = f"This step is not in the plan, which is at {number} · {LESSONS[part.lesson].title}: {label(part)}."
    else:
        said = part.ask
    begin, end = _BEGINS[now.part : now.part + 2]
    st.html(
        f'<p class="qs-ask"><span>{html.escape(said)}</span><small>{span(now.part)} of {MINUTES} min · '
        f'<span class="qs-clock" role="timer" title="Click to set the clock to minute {begin}" data-begin="{begin}" '
        f'data-end="{end}"></span></small></p>'
    )
