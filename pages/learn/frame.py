"""The frame of a lesson: its steps, Previous and Next, the plan of a class, the sources.

A lesson is a page script: ``step = frame.head("scale")``, the content of that step, ``frame.foot(...)``.
"""

from pathlib import Path
from typing import Any

import streamlit as st

from pages.browser import streamlit_dom
from pages.learn import class_plan, lesson_pages
from pages.learn.lesson_pages import LESSON_URLS, OVERVIEW
from pages.shared import charts
from pages.shared.charts import theme
from pages.shared.large import is_large
from pages.shared.lesson_plan import CLASS, LESSONS, script, step_key, step_words
from pages.shared.page import Page
from pages.shared.state import choice, selection
from pages.shared.state.mirrored import key_at, typed
from quantcore.figures import typography
from quantcore.wording import sentence

_BIND: dict[str, Any] = {"bind": "query-params"}
_FOLDED, _PLACE = "_learn_folded", "_learn_sources"
FEW = 8  # steps that fit into one row of buttons
_CSS = streamlit_dom.read(Path(__file__).parent / "lesson.css")


def is_lesson(page: Page) -> bool:
    """Tell whether the page is one of the lessons (the overview and Class are not)."""
    return page.url_path in LESSON_URLS.values()


def plot_style() -> dict[str, Any]:
    """Return theme and font size for the figures of a lesson, which fill their place."""
    return {"theme": theme(), "size": typography.TEXT * (typography.LARGER if is_large() else 1)}


def head(name: str) -> str:
    """Draw the top of a lesson and return the chosen step."""
    lesson, number, key = LESSONS[name], list(LESSONS).index(name) + 1, step_key(name)
    names, part = list(lesson.steps), class_plan.presented(name)
    _fold()
    charts.small_print(selection.get().words)
    title, st.session_state[_PLACE] = st.columns([6, 1.3], vertical_alignment="center")
    widths = [8, 1.5, 1.5] if part is None else [7, 1.5, 3.5]
    place, back, on = st.columns(widths, vertical_alignment="center")
    if len(names) <= FEW:
        titles = {name: sentence(step_words(name)) for name in names}
        step = choice.segmented("Step", key, titles, place, label_visibility="collapsed")
    else:
        step = _one_of_many(name, place)
    title.markdown(f"# {number} · {lesson.title}: {lesson.steps[step].headline}")
    for beside, label, direction in ((back, "Previous", -1), (on, "Next", 1)):
        with beside.container(key=f"lesson_{label.lower()}"):
            if part is None:
                _step_button(label, name, step, direction)
            else:
                _part_button(label, name, part, direction)
    if part is not None:
        class_plan.draw(part)
    lesson_pages.visited(name, step)
    return step


def _one_of_many(name: str, place: Any) -> str:
    """Choose a step by its headline. The control bound to the link stays hidden: its options are the names of the
    steps, and a name may give away the answer.
    """
    steps, key = LESSONS[name].steps, step_key(name)
    with place:
        hidden, seen = st.container(key="lesson_hidden"), st.container()
    step = str(hidden.selectbox("Step", list(steps), key=key, **_BIND))
    shown = key_at(f"_learn_{name}_shown", step)

    def choose() -> None:
        if typed(f"_learn_{name}_shown", shown):
            st.session_state[key] = st.session_state[shown]

    seen.selectbox(
        "Case",
        list(steps),
        format_func=lambda s: steps[s].headline.partition(":")[0],
        key=shown,
        on_change=choose,
        label_visibility="collapsed",
        width=220,
    )
    return step


def foot(*sources: str) -> None:
    """Draw the sources of the step; call it last."""
    place = st.session_state.pop(_PLACE).container(
        horizontal=True, horizontal_alignment="right", key="lesson_sources"
    )
    with place.popover("Sources", icon=":material/menu_book:"):
        st.caption("Sources: " + "; ".join(sources) + ".")


def _step_button(label: str, name: str, step: str, direction: int) -> None:
    """Draw a button to the previous or next step or, at either end of a lesson, a link to the adjacent lesson, beyond
    the first and the last to the overview.
    """
    steps, lessons = list(LESSONS[name].steps), list(LESSONS)
    icon = f":material/arrow_{'forward' if direction > 0 else 'back'}:"
    if 0 <= steps.index(step) + direction < len(steps):
        key = f"learn_{name}_{label.lower()}"
        st.button(label, key=key, on_click=_go, args=(name, direction), width="stretch")
        return
    # links, since st.switch_page refuses to leave a page whose widgets are bound to the address
    neighbor = lessons.index(name) + direction
    if 0 <= neighbor < len(lessons):
        other = LESSONS[lessons[neighbor]]
        st.page_link(
            script(lessons[neighbor]),
            label=f"Lesson {neighbor + 1}",
            help=other.title,
            icon=icon,
            width="stretch",
        )
    else:
        st.page_link(OVERVIEW, label="Overview", icon=icon, width="stretch")


def _go(name: str, direction: int) -> None:
    """Go to the next or previous step (a callback): from the one that is current then, after a quick second press too."""
    steps, key = list(LESSONS[name].steps), step_key(name)
    there = steps.index(st.session_state.get(key) or steps[0]) + direction
    st.session_state[key] = steps[max(0, min(there, len(steps) - 1))]


def _part_button(label: str, name: str, now: class_plan.Presented, direction: int) -> None:
    """Draw a button to the previous or next part of the plan, a link if it is in another lesson, beyond either end to the
    overview.
    """
    index = class_plan.neighbor(now, direction)
    icon = f":material/arrow_{'forward' if direction > 0 else 'back'}:"
    if index is None:
        st.page_link(OVERVIEW, label="Overview", icon=icon, width="stretch")
        return
    part = CLASS[index]
    text = f"{label}: {class_plan.span(index)} {class_plan.label(part)}" if direction > 0 else label
    if part.lesson == name:  # a link to the page that is open would not change its step
        key = f"learn_plan_{label.lower()}"
        st.button(text, key=key, icon=icon, on_click=class_plan.go, args=(index,), width="stretch")
    else:
        parameters = class_plan.query(index)
        st.page_link(script(part.lesson), label=text, query_params=parameters, icon=icon, width="stretch")


def link_to(name: str, label: str, key: str, parameters: dict[str, str]) -> None:
    """Draw a link that opens a lesson with these parameters."""
    with st.container(key=f"learn_link_{key}"):
        st.page_link(script(name), label=label, query_params=parameters)


def plain() -> None:
    """Apply the style of the lessons to another page."""
    st.html(f"<style>{_CSS}</style>")


def _fold() -> None:
    """Fold the sidebar away in large mode, and bring it back afterwards: what a step needs is on the step."""
    if is_large():
        st.session_state[_FOLDED] = True
        st.set_page_config(initial_sidebar_state="collapsed")
    else:
        unfold()
    plain()


def unfold() -> None:
    """Bring the sidebar back after large mode, here or on a page that is not a lesson."""
    if st.session_state.pop(_FOLDED, False):
        st.set_page_config(initial_sidebar_state="auto")
