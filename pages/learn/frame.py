"""The frame of a lesson: its steps, Previous and Next, the sources.

A lesson is a page script: ``step = frame.head("scale")``, the content of that step, ``frame.foot(...)``.
"""

import html
from pathlib import Path
from typing import Any

import streamlit as st

from pages.browser import streamlit_dom
from pages.learn.lesson_pages import LESSON_URLS, OVERVIEW
from pages.shared import charts
from pages.shared.charts import theme
from pages.shared.curriculum import LESSONS, numbered, script, step_key, step_words
from pages.shared.large import is_large
from pages.shared.page import Page
from pages.shared.state import choice, selection
from quantcore.figures import typography
from quantcore.wording import sentence

_FOLDED, _PLACE, _ASKED = "_learn_folded", "_learn_sources", "_learn_asked"
FEW = 8  # steps that fit into one row of buttons
_CSS, _WIDE = (streamlit_dom.read(Path(__file__).parent / f"{name}.css") for name in ("lesson", "wide"))


def is_lesson(page: Page) -> bool:
    """Tell whether the page is one of the lessons (the overview and Class are not)."""
    return page.url_path in LESSON_URLS.values()


def plot_style() -> dict[str, Any]:
    """Return theme and font size for the figures of a lesson; its style enlarges them as the page's text."""
    return {"theme": theme(), "size": typography.TEXT}


def head(name: str) -> str:
    """Draw the top of a lesson and return the chosen step."""
    lesson, key = LESSONS[name], step_key(name)
    names = list(lesson.steps)
    if is_large():  # fold the sidebar away, and bring it back afterwards: what a step needs is on the step
        st.session_state[_FOLDED] = True
        st.set_page_config(initial_sidebar_state="collapsed")
    else:
        unfold()
    plain()
    charts.small_print(selection.get().words)
    title, st.session_state[_PLACE] = st.columns([6, 1.3], vertical_alignment="center")
    place, back, on = st.columns([8, 1.5, 1.5], vertical_alignment="center")
    if len(names) <= FEW:
        titles = {name: sentence(step_words(name)) for name in names}
        step = choice.segmented("Step", key, titles, place, label_visibility="collapsed")
    else:
        # by number: the name of a case may give away the answer
        titles = {name: step.headline.partition(":")[0] for name, step in lesson.steps.items()}
        step = choice.selectbox("Case", key, titles, place, label_visibility="collapsed", width=220)
    st.session_state[_ASKED] = lesson.steps[step].headline
    title.markdown(f"# {numbered(name)}: {lesson.steps[step].headline}")
    for beside, label, direction in ((back, "Previous", -1), (on, "Next", 1)):
        with beside.container(key=f"lesson_{label.lower()}"):
            _step_button(label, name, step, direction)
    st.html(f'<i class="qs-seen" data-seen="{html.escape(f"{name}/{step}")}" hidden></i>')
    return step


def asked() -> str:
    """Return the question of the step that `head` has drawn."""
    return str(st.session_state[_ASKED])


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
