"""The frame of a lesson: its steps, Previous and Next, the plan of a class, the sources.

A lesson is a page script: ``step = frame.head("scale")``, the content of that step, ``frame.foot(...)``.
While the plan for a class is presented, the address names its part (``?plan=7``), and the lesson shows the
step of that part with the question to the class, the time, and the way to the next part.
"""

import html
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from pages.browser import streamlit_dom
from pages.learn.lesson_pages import LESSON_URLS, OVERVIEW
from pages.shared import charts, messages
from pages.shared.charts import theme
from pages.shared.large import is_large
from pages.shared.lesson_plan import (
    CLASS,
    LESSONS,
    PARTS,
    PLAN,
    PlanPart,
    numbered,
    script,
    step_key,
    step_words,
)
from pages.shared.page import Page
from pages.shared.state import choice, selection
from quantcore.figures import typography
from quantcore.wording import sentence

_BEGINS = [sum(part.minutes for part in CLASS[:i]) for i in range(len(CLASS) + 1)]
MINUTES = _BEGINS[-1]
_FOLDED, _PLACE = "_learn_folded", "_learn_sources"
FEW = 8  # steps that fit into one row of buttons
_CSS, _WIDE = (streamlit_dom.read(Path(__file__).parent / f"{name}.css") for name in ("lesson", "wide"))


def is_lesson(page: Page) -> bool:
    """Tell whether the page is one of the lessons (the overview and Class are not)."""
    return page.url_path in LESSON_URLS.values()


def plot_style() -> dict[str, Any]:
    """Return theme and font size for the figures of a lesson; its style enlarges them as the page's text."""
    return {"theme": theme(), "size": typography.TEXT}


class Presented(NamedTuple):
    """The part that the address names, counted from 0, and whether the page shows its step."""

    part: int
    shown: bool


def _presented(name: str) -> Presented | None:
    """Return the part to present on a lesson's page; None if the address names none.

    A link need not name the step. Call it before the control for the step is drawn.
    """
    text = st.query_params.get(PLAN)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(PARTS)):
        messages.warning(
            f"The plan has parts 1 to {len(PARTS)}, and no part {text[:20]!r}: the lesson is shown without "
            "the plan. Open a part from the overview."
        )
        return None
    index, key = int(text) - 1, step_key(name)
    part = PARTS[index]
    if part.lesson != name:
        return Presented(index, False)
    if key not in st.query_params and key not in st.session_state:
        st.session_state[key] = part.step
    return Presented(index, choice.before_drawn(key) == part.step)


def span(index: int) -> str:
    """Return the minutes of a part, such as "18–23"; of a choice, which has no place in the hour, "5 min"."""
    if index >= len(CLASS):
        return f"{PARTS[index].minutes} min"
    return f"{_BEGINS[index]}–{_BEGINS[index + 1]}"


def part_label(part: PlanPart) -> str:
    """Write the step of a part in words."""
    return step_words(part.step.replace("-", " ") if part.lesson == "mistakes" else part.step)


def part_query(index: int) -> dict[str, str]:
    """Return the parameters of a link to a part."""
    part = PARTS[index]
    return {PLAN: str(index + 1), step_key(part.lesson): part.step}


def _ask(now: Presented) -> None:
    """Draw the question to the class, and the time: the minutes of the part, and the minute it is."""
    part = PARTS[now.part]
    place = f"{numbered(part.lesson)}: {part_label(part)}"
    said = part.ask if now.shown else f"This step is not in the plan, which is at {place}."
    time = f"{span(now.part)}, in place of another part"
    if now.part < len(CLASS):
        begin, end = _BEGINS[now.part : now.part + 2]
        time = (
            f'{span(now.part)} of {MINUTES} min · <span class="qs-clock" role="timer" '
            f'title="Click to set the clock to minute {begin}" data-begin="{begin}" data-end="{end}"></span>'
        )
    st.html(f'<p class="qs-ask"><span>{html.escape(said)}</span><small>{time}</small></p>')


def head(name: str) -> str:
    """Draw the top of a lesson and return the chosen step."""
    lesson, key = LESSONS[name], step_key(name)
    names, part = list(lesson.steps), _presented(name)
    if is_large():  # fold the sidebar away, and bring it back afterwards: what a step needs is on the step
        st.session_state[_FOLDED] = True
        st.set_page_config(initial_sidebar_state="collapsed")
    else:
        unfold()
    plain()
    charts.small_print(selection.get().words)
    title, st.session_state[_PLACE] = st.columns([6, 1.3], vertical_alignment="center")
    widths = [8, 1.5, 1.5] if part is None else [7, 1.5, 3.5]
    place, back, on = st.columns(widths, vertical_alignment="center")
    if len(names) <= FEW:
        titles = {name: sentence(step_words(name)) for name in names}
        step = choice.segmented("Step", key, titles, place, label_visibility="collapsed")
    else:
        # by number: the name of a case may give away the answer
        titles = {name: step.headline.partition(":")[0] for name, step in lesson.steps.items()}
        step = choice.selectbox("Case", key, titles, place, label_visibility="collapsed", width=220)
    title.markdown(f"# {numbered(name)}: {lesson.steps[step].headline}")
    for beside, label, direction in ((back, "Previous", -1), (on, "Next", 1)):
        with beside.container(key=f"lesson_{label.lower()}"):
            if part is None:
                _step_button(label, name, step, direction)
            else:
                _part_button(label, name, part, direction)
    if part is not None:
        _ask(part)
    st.html(f'<i class="qs-seen" data-seen="{html.escape(f"{name}/{step}")}" hidden></i>')
    return step


def foot(*sources: str) -> None:
    """Draw the sources of the step; call it last."""
    place = st.session_state.pop(_PLACE).container(
        horizontal=True, horizontal_alignment="right", key="lesson_sources"
    )
    with place.popover("Sources", icon=":material/menu_book:"):
        st.caption("Sources: " + "; ".join(sources) + ".")


def _step_button(label: str, name: str, step: str, direction: int) -> None:
    """Draw a button to the previous or next step; at either end of a lesson, a link to the adjacent one."""
    steps, lessons = list(LESSONS[name].steps), list(LESSONS)
    if 0 <= steps.index(step) + direction < len(steps):
        key = f"learn_{name}_{label.lower()}"
        st.button(label, key=key, on_click=_go, args=(name, direction), width="stretch", **_arrow(direction))
        return
    neighbor = lessons.index(name) + direction
    if 0 <= neighbor < len(lessons):
        other = lessons[neighbor]
        _link(f"Lesson {neighbor + 1}", direction, other, help=LESSONS[other].title)
    else:
        _link("Overview", direction)


def _link(label: str, direction: int, lesson: str | None = None, **more: Any) -> None:
    """Draw a link to a lesson or, beyond the first and the last, to the overview.

    A link, since st.switch_page refuses to leave a page whose widgets are bound to the address.
    """
    page = OVERVIEW if lesson is None else script(lesson)
    st.page_link(page, label=label, width="stretch", **_arrow(direction), **more)


def _arrow(direction: int) -> dict[str, Any]:
    """Return the icon of a button or link that leads on or back, on the side to which it leads."""
    if direction > 0:
        return {"icon": ":material/arrow_forward:", "icon_position": "right"}
    return {"icon": ":material/arrow_back:", "icon_position": "left"}


def _go(name: str, direction: int) -> None:
    """Go to the next or previous step (a callback), from the one that is current then."""
    steps, key = list(LESSONS[name].steps), step_key(name)
    there = steps.index(st.session_state.get(key) or steps[0]) + direction
    st.session_state[key] = steps[max(0, min(there, len(steps) - 1))]


def _part_button(label: str, name: str, now: Presented, direction: int) -> None:
    """Draw a button to the previous or next part of the plan; a link if it is in another lesson.

    From a step outside the plan, Previous returns to the part. Before and after a choice is the overview.
    """
    index = now.part + direction if now.shown or direction > 0 else now.part
    if index != now.part and not (now.part < len(CLASS) and 0 <= index < len(CLASS)):
        _link("Overview", direction)
        return
    part = PARTS[index]
    text = f"{label}: {span(index)} {part_label(part)}" if direction > 0 else label
    if part.lesson == name:  # a link to the page that is open would not change its step
        key = f"learn_plan_{label.lower()}"
        st.button(text, key=key, on_click=_go_to_part, args=(index,), width="stretch", **_arrow(direction))
    else:
        _link(text, direction, part.lesson, query_params=part_query(index))


def _go_to_part(index: int) -> None:
    """Go to a part in the lesson that is open (a callback)."""
    part = PARTS[index]
    st.session_state[step_key(part.lesson)] = part.step
    st.query_params[PLAN] = str(index + 1)


def link_to(name: str, label: str, key: str, parameters: dict[str, str]) -> None:
    """Draw a link that opens a lesson with these parameters."""
    with st.container(key=f"learn_link_{key}"):
        st.page_link(script(name), label=label, query_params=parameters)


def plain() -> None:
    """Apply the style of the lessons to another page."""
    st.html(f"<style>{_CSS}{'' if is_large() else _WIDE}</style>")


def unfold() -> None:
    """Bring the sidebar back after large mode, here or on a page that is not a lesson."""
    if st.session_state.pop(_FOLDED, False):
        st.set_page_config(initial_sidebar_state="auto")
