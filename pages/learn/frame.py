"""The frame of a lesson: its steps, each with a link, Previous and Next, large mode, the sources.

A lesson is a page script: ``step = frame.head("scale")``, the content of that step, ``frame.foot(...)``.
"""

from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from pages.browser import streamlit_dom
from pages.learn.lesson_pages import LARGE, LESSON_URL
from pages.shared.lesson_plan import LESSONS, script, step_key
from pages.shared.page import Page
from pages.shared.state import selection, sharing
from pages.shared.state.mirrored import key_at, typed
from pages.shared.theme import theme

_BIND: dict[str, Any] = {"bind": "query-params"}
_LARGE_BEFORE, _FOLDED = "_learn_large", "_learn_folded"
FEW = 8  # steps that fit into one row of buttons
_CSS = streamlit_dom.read(Path(__file__).parent / "lesson.css")


def is_lesson(page: Page) -> bool:
    """Whether the page is one of the lessons (the overview is not)."""
    return page.url_path.startswith(LESSON_URL)


def is_large() -> bool:
    """Whether text and figures are large enough to read from the back row."""
    return bool(st.session_state.get(LARGE))


def plot_style() -> dict[str, Any]:
    """Theme, font size and height for the figures of a lesson."""
    return {
        "theme": theme(),
        "size": 24 if is_large() else 14,
        "height": 420 if is_large() else 280,
    }


def head(name: str) -> str:
    """Draw the top of a lesson and return the chosen step."""
    lesson, number, key = LESSONS[name], list(LESSONS).index(name) + 1, step_key(name)
    names = list(lesson.steps)
    title, large, link_place = st.columns([6, 1.2, 1.2], vertical_alignment="center")
    _keep_large(name)
    large.toggle(
        "Large", key=LARGE, help="Larger text and maps for a projector; the sidebar folds away", **_BIND
    )
    st.session_state["_learn_share"] = link_place
    st.session_state[_LARGE_BEFORE] = (name, is_large())
    _enlarge()
    choice, back, on = st.columns([8, 1.5, 1.5], vertical_alignment="center")
    if len(names) <= FEW:
        step = choice.segmented_control(
            "Step", names, default=names[0], key=key, required=True, label_visibility="collapsed", **_BIND
        )
    else:
        step = _one_of_many(name, choice)
    here = names.index(step)
    title.markdown(f"#### {number} · {lesson.title}: {lesson.steps[step].headline}")
    _step_button("Previous", back, name, names[here - 1] if here else None, -1)
    _step_button("Next", on, name, names[here + 1] if here + 1 < len(names) else None, 1)
    return str(step)


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
    """Draw the sources and the link of the step; call it last."""
    st.caption("Sources: " + "; ".join(sources) + ".")
    with st.session_state.pop("_learn_share").popover("Link", icon=":material/link:", width="stretch"):
        sharing.draw(selection.get().tensor)


def _step_button(label: str, place: Any, name: str, step: str | None, direction: int) -> None:
    """Draw a button to the previous or next step or, at either end of a lesson, a link to the adjacent lesson."""
    lessons = list(LESSONS)
    neighbor = lessons.index(name) + direction
    if step is not None:
        go = partial(st.session_state.update, {step_key(name): step})
        place.button(label, key=f"learn_{name}_{label.lower()}", on_click=go, width="stretch")
    elif 0 <= neighbor < len(lessons):
        icon = f":material/arrow_{'forward' if direction > 0 else 'back'}:"
        # a link, since st.switch_page refuses to leave a page whose widgets are bound to the address
        number, other = neighbor + 1, LESSONS[lessons[neighbor]]
        place.page_link(script(lessons[neighbor]), label=f"Lesson {number}", help=other.title, icon=icon)


def link_to(name: str, step: str, label: str, key: str, large: bool = False) -> None:
    """Draw a link that opens a step of a lesson."""
    parameters = {step_key(name): step} | ({LARGE: "true"} if large else {})
    with st.container(key=f"learn_link_{key}"):
        st.page_link(script(name), label=label, query_params=parameters)


def plain() -> None:
    """Apply the style of the lessons to another page."""
    st.html(f"<style>{_CSS}</style>")


def _keep_large(name: str) -> None:
    """Keep large mode on the way to another lesson: its widget has the same key, but is a different one."""
    previous, large = st.session_state.get(_LARGE_BEFORE, (name, False))
    if previous != name and LARGE not in st.query_params:
        st.session_state[LARGE] = large


def _enlarge() -> None:
    """Set the size of text and figures in proportion to the window: 1280 and 1920 pixels fill the same wall when
    projected.
    """
    style = _CSS
    if is_large():
        st.session_state[_FOLDED] = True
        st.set_page_config(initial_sidebar_state="collapsed")
        style += "html{font-size:clamp(18px,1.32vw,30px) !important}.qs-cells{font-size:0.9rem}"
    else:
        unfold()
    st.html(f"<style>{style}</style>")


def unfold() -> None:
    """Bring the sidebar back after large mode, here or on a page that is not a lesson."""
    if st.session_state.pop(_FOLDED, False):
        st.set_page_config(initial_sidebar_state="auto")
