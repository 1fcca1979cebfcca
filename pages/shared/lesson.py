"""The frame of a lesson: its steps with a link each, the way on and back, the large mode, the sources.

A lesson is a page script: ``step = lesson.head("scale", STEPS)``, what belongs to that step, `lesson.foot`.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from pages.shared import current, link, maps_view

_BIND: dict[str, Any] = {"bind": "query-params"}
_FOLDER = Path(__file__).resolve().parent.parent / "learn"
LARGE, _LARGE_THERE, _FOLDED = "learn_large", "_learn_large", "_learn_folded"
_URL = "learn-"
FEW = 8  # steps that fit into one row of choices


@dataclass(frozen=True)
class Lesson:
    """``title``: in the navigation; ``idea``: what it is about, in one line; ``icon``: a Material symbol."""

    title: str
    idea: str
    icon: str


# In their order; the name is that of the page's file. Steps are bound to the key `step_key` of the name.
LESSONS = {
    "scale": Lesson("Scale", "From a thermometer's marks to codes", "straighten"),
    "zero_point": Lesson("Zero point", "Which code stands for 0", "exposure_zero"),
    "granularity": Lesson("Granularity", "Which elements share a scale", "grid_on"),
    "error": Lesson("Error", "How far off, in one number", "show_chart"),
    "mistakes": Lesson("Mistakes", "Code that looks right", "bug_report"),
    "predict": Lesson("Predict", "Be the quantizer yourself", "quiz"),
    "ptq_or_qat": Lesson("PTQ or QAT", "Quantize after the training, or in it", "model_training"),
}

# What lessons bind to the link beside their steps
CONTROLS = {
    "scale": ("bits", "low", "high", "cell"),
    "zero_point": ("low", "high", "cell"),
    "granularity": ("size", "down", "across", "cell"),
    "error": ("limit", "bits", "cell"),
    "mistakes": ("shown", "mine"),
    "predict": ("seed", "mine", "row", "cell"),
    "ptq_or_qat": ("cell",),
}


def step_key(name: str) -> str:
    """Key of the control that holds a lesson's step, and its parameter in the link."""
    return f"learn_{name}_step"


KEYS = {LARGE, *map(step_key, LESSONS), *(f"learn_{n}_{c}" for n, more in CONTROLS.items() for c in more)}


def there() -> list[str]:
    """The lessons whose page exists, in their order."""
    return [name for name in LESSONS if (_FOLDER / f"{name}.py").exists()]


def pages() -> list[StreamlitPage]:
    """The lessons for the navigation."""
    return [
        st.Page(
            f"learn/{name}.py",
            title=LESSONS[name].title,
            icon=f":material/{LESSONS[name].icon}:",
            url_path=_URL + name.replace("_", "-"),
        )
        for name in there()
    ]


def is_lesson(page: StreamlitPage) -> bool:
    """Whether the page is one of these."""
    return page.url_path.startswith(_URL)


def is_large() -> bool:
    """Whether type and pictures are to be read from the last row."""
    return bool(st.session_state.get(LARGE))


def look() -> dict[str, Any]:
    """Theme and size of letters, for the figures of a lesson."""
    return {
        "theme": maps_view.theme(),
        "size": 24 if is_large() else 14,
        "height": 420 if is_large() else 280,
    }


def head(name: str, steps: dict[str, str]) -> str:
    """Draw the top of a lesson and return the step that is chosen.

    Args:
        steps: name in the link -> its headline.
    """
    lesson, number, key = LESSONS[name], list(LESSONS).index(name) + 1, step_key(name)
    title, large, share = st.columns([6, 1.6, 1.2], vertical_alignment="center")
    title.subheader(f"{number} · {lesson.title}: {lesson.idea[0].lower()}{lesson.idea[1:]}", anchor=False)
    _keep_large(name)
    large.toggle("Large", key=LARGE, help="Type and maps for a projector; the sidebar folds away", **_BIND)
    st.session_state["_learn_share"] = share
    st.session_state[_LARGE_THERE] = (name, is_large())
    _enlarge()
    names = list(steps)
    choice, back, on = st.columns([8, 1.1, 1.1], vertical_alignment="center")
    if len(names) <= FEW:
        step = choice.segmented_control(
            "Step", names, default=names[0], key=key, required=True, label_visibility="collapsed", **_BIND
        )
    else:
        step = choice.selectbox("Step", names, key=key, label_visibility="collapsed", **_BIND)
    here = names.index(step)
    _way("Back", back, name, names[here - 1] if here else None, -1)
    _way("Next", on, name, names[here + 1] if here + 1 < len(names) else None, 1)
    st.markdown(f"#### {steps[step]}")
    return str(step)


def foot(*sources: str) -> None:
    """Draw the sources, and the link of the step. To be called last."""
    st.caption("Sources: " + "; ".join(sources) + ".")
    with st.session_state.pop("_learn_share").popover("Link", icon=":material/link:", width="stretch"):
        link.draw(current.get().tensor)


def _way(label: str, place: Any, name: str, step: str | None, direction: int) -> None:
    """A button to the step before or after this one; at the ends of a lesson, to the lesson there."""
    lessons = there()
    neighbour = lessons.index(name) + direction
    if step is not None:
        go = partial(st.session_state.update, {step_key(name): step})
        place.button(label, key=f"learn_{name}_{label.lower()}", on_click=go, width="stretch")
    elif 0 <= neighbour < len(lessons):
        icon = f":material/arrow_{'forward' if direction > 0 else 'back'}:"
        # a link: st.switch_page refuses to leave a page whose widgets are bound to the address
        number, other = list(LESSONS).index(lessons[neighbour]) + 1, LESSONS[lessons[neighbour]]
        place.page_link(
            f"learn/{lessons[neighbour]}.py", label=f"Lesson {number}", help=other.title, icon=icon
        )


def _keep_large(name: str) -> None:
    """Take the large mode along to another lesson: a widget of the same key is another one there."""
    there, large = st.session_state.get(_LARGE_THERE, (name, False))
    if there != name and LARGE not in st.query_params:
        st.session_state[LARGE] = large


def _enlarge() -> None:
    if is_large():
        st.session_state[_FOLDED] = True
        st.set_page_config(initial_sidebar_state="collapsed")
        # the window decides, for a projector's 1280 and a screen's 1920 hang on the same wall
        size = "clamp(18px, 1.32vw, 30px)"
        st.html(
            f"<style>html{{font-size:{size} !important}}.stMainBlockContainer{{padding-top:3.6rem}}"
            ".qs-cells{font-size:1rem}</style>"
        )
    else:
        unfold()


def unfold() -> None:
    """Bring the sidebar back after the large mode, here or on a page that is no lesson."""
    if st.session_state.pop(_FOLDED, False):
        st.set_page_config(initial_sidebar_state="auto")
