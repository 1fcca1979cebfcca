"""Links from what Match found to the lesson that explains it, and from the lesson on mistakes to Match."""

import numpy as np
import streamlit as st

import quantcore as qc
from pages.compare.match import controls
from pages.shared import lesson_plan
from pages.sidebar import scheme_state, tensor_controls
from quantcore.matching import NEGATIVES_LOST, Candidate, Reinterpreted, Transposed
from quantcore.mistakes import MISTAKES

_TO_LESSON, _TO_MATCH = "_match_to_lesson", "_match_to_match"
_BY_KIND = {
    "range_from_zero": "range-without-minimum",
    "signed_percentile": "percentile-of-signed-values",
    "scale_float16": "scale-in-float16",
    "quantized_twice": "quantized-twice",
    "toward_zero": "truncated",
    "floor": "truncated",
    "unclamped": "cast-without-clamp",
    "wrapped": "cast-without-clamp",
    "zero_point_left_out": "zero-point-left-at-zero",
    "middle_left_out": "negatives-lost",
}


def explained_by(candidate: Candidate) -> tuple[str, str] | None:
    """The lesson that explains what went wrong, and its step if it is a known mistake; None if there is no lesson."""
    kinds, stored = candidate.corruption.computed, candidate.corruption.stored
    if {"zero_point_left_out", "wrapped"} <= set(kinds):
        by_granularity = {qc.PerTensor: "wraps-per-tensor", qc.PerChannel: "wraps-per-column"}
        return "mistakes", by_granularity.get(type(candidate.scheme.granularity), "wraps-per-group")
    for kind, name in _BY_KIND.items():
        if kind in kinds:
            return "mistakes", name
    if any(isinstance(step, Reinterpreted) and step.signed for step in stored):
        return "mistakes", "clamp-of-another-type"
    if any(NEGATIVES_LOST in sentence for sentence in candidate.explanations):
        return "mistakes", "negatives-lost"
    if "zero_point_negated" in kinds:
        return "zero_point", ""
    if "other_axis" in kinds or any(isinstance(step, Transposed) for step in stored):
        return "granularity", ""
    return None


def draw(candidate: Candidate) -> None:
    """Draw a button that opens the lesson about what went wrong, if there is one."""
    found = explained_by(candidate)
    if found is not None:
        _button("match_lesson", *found)


def draw_known(matches: qc.Matches) -> None:
    """Draw the known mistakes that also give the codes, except the best candidate's own, each with its lesson."""
    explained = explained_by(matches.candidates[0])
    for mistake in matches.mistakes:
        if explained == ("mistakes", mistake.name):
            continue
        low, high = f"{mistake.smallest_scale:.7g}", f"{mistake.largest_scale:.7g}"
        scale = f"scale {low}" if low == high else f"scales from {low} to {high}"
        left, right = st.columns([2, 1], vertical_alignment="center")
        left.markdown(f"A known mistake also gives exactly these codes, with {scale}.")
        with right:
            _button(f"match_known_{mistake.name}", "mistakes", mistake.name)


def _button(key: str, name: str, step: str) -> None:
    lesson = lesson_plan.LESSONS[name]
    label = f"Lesson: {MISTAKES[step].title if step else lesson.title}"
    st.button(label, key=key, icon=f":material/{lesson.icon}:", on_click=_open_lesson, args=(name, step))


def draw_back(x: np.ndarray, codes: np.ndarray) -> None:
    """Draw a button that opens Match with the tensor and codes of a mistake."""
    st.button(
        "Find it with Match",
        key="learn_mistakes_match",
        icon=":material/manage_search:",
        on_click=_open_match,
        args=(x, codes),
        help="Opens Compare → Match with this tensor and these codes; Match names the mistake from them alone",
    )


def leave() -> None:
    """Open the page that a button of the last run leads to; call it before drawing anything."""
    name = st.session_state.pop(_TO_LESSON, None)
    # no parameters: Streamlit refuses to clear bound ones, and the widgets of the other page set their own
    if name:
        st.switch_page(lesson_plan.script(name), query_params={})
    if st.session_state.pop(_TO_MATCH, False):
        st.switch_page("compare/match/page.py", query_params={})


def _open_lesson(name: str, step: str) -> None:
    """Open a step of a lesson (a callback)."""
    if step:
        st.session_state[lesson_plan.step_key(name)] = step
    st.session_state[_TO_LESSON] = name


def _open_match(x: np.ndarray, codes: np.ndarray) -> None:
    """Open Match with a tensor and codes (a callback)."""
    text = tensor_controls.write(x)
    st.session_state.update({"src": "paste", tensor_controls.PASTED: text, scheme_state.RANK: x.ndim})
    controls.put(codes)
    st.session_state[_TO_MATCH] = True
