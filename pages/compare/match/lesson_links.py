"""Links from what Match found to the lesson that explains it."""

import streamlit as st

import quantcore as qc
from pages.shared import lesson_plan
from pages.shared.state import leaving
from quantcore.matching import Candidate, NegativesLost, Reinterpreted, Transposed
from quantcore.mistakes import CASES, MISTAKES, STAGES


def explained_by(candidate: Candidate) -> tuple[str, str] | None:
    """The lesson that explains what went wrong, and its step if it is a known mistake; None if there is no lesson."""
    kinds, stored = candidate.corruption.computed, candidate.corruption.stored
    if {"zero_point_left_out", "wrapped"} <= set(kinds):
        by_granularity = {qc.PerTensor: "wraps-per-tensor", qc.PerChannel: "wraps-per-column"}
        return "mistakes", by_granularity.get(type(candidate.scheme.granularity), "wraps-per-group")
    made = sorted((MISTAKES[kind] for kind in kinds), key=lambda mistake: STAGES.index(mistake.stage))
    lessons = [mistake.lesson for mistake in made if mistake.lesson]
    shown = [lesson for lesson in lessons if lesson[0] == "mistakes"]
    if shown:
        return shown[0]
    if any(isinstance(step, Reinterpreted) and step.signed for step in stored):
        return "mistakes", "clamp-of-another-type"
    if any(isinstance(sentence, NegativesLost) for sentence in candidate.explanations):
        return "mistakes", "negatives-lost"
    transposed = any(isinstance(step, Transposed) for step in stored)
    return lessons[0] if lessons else ("granularity", "") if transposed else None


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
    label = f"Lesson: {CASES[step].title if name == 'mistakes' else lesson.title}"
    st.button(label, key=key, icon=f":material/{lesson.icon}:", on_click=_open, args=(name, step))


def _open(name: str, step: str) -> None:
    """Open a lesson, at a step (a callback)."""
    if step:
        st.session_state[lesson_plan.step_key(name)] = step
    leaving.to(lesson_plan.script(name))
