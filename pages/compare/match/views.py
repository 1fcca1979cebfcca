"""What a search found: a summary, the table of candidates; maps, reasons and schemes of the chosen one."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
import torch

import quantcore as qc
from pages.shared import charts, curriculum, messages
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state import leaving, link
from pages.shared.state.selection import PageTensor
from pages.sidebar import scheme_state, uploads
from quantcore import figures
from quantcore.matching import (
    Candidate,
    NegativesLost,
    Reinterpreted,
    Transposed,
    answer,
    explain_candidate,
    few,
    nearest,
    reproduce,
    rules_of,
)
from quantcore.mistakes import CASES, MISTAKES, STAGES
from quantcore.wording import joined

MOST_ROWS, MOST_SCHEMES = 40, 200
TABLE = "match_table"


def so_far(matches: qc.Matches, tensor: PageTensor) -> None:
    """Draw the nearest rules while the search goes on."""
    if matches.candidates:
        told = answer(matches.candidates[0], tensor.elements, len(tensor.shape))
        st.caption(messages.plain(f"So far: {told}"))


def summary(matches: qc.Matches, tensor: PageTensor, fraction: float) -> None:
    """Draw the answer, the mistake first."""
    tried = f"{matches.tried:,} schemes tried."
    if fraction < 1:
        tried = f"Stopped at {100 * fraction:.0f} %: {tried}"
    if not matches.candidates:
        messages.warning(f"No scheme has been compared with the whole tensor yet. {tried}")
        return
    best = matches.candidates[0]
    told = answer(best, tensor.elements, len(tensor.shape))
    lost = any(isinstance(sentence, NegativesLost) for sentence in best.explanations)
    if best.differing or best.corruption or best.notes or lost or not (best.rule or _is_ranged(best)):
        messages.warning(told)
    else:
        st.success(messages.plain(told), icon=":material/check_circle:")
    st.markdown("\n".join(f"- {messages.plain(text)}" for text in best.explanations))
    explained = explained_by(best) if few(best.differing, tensor.elements) else None
    if explained is not None:
        _button("match_lesson", *explained)
    _known(matches, explained)
    st.caption(messages.plain(_credited(best, tensor.elements) + tried))


def _credited(best: Candidate, elements: int) -> str:
    """Say which libraries give the integers with these rules; nothing if most differ."""
    if 2 * best.differing >= elements:
        return ""
    libraries = _libraries(best)
    gives = "gives" if len(libraries) == 1 else "give"
    more = [f"{len(libraries) - 3} more"] if len(libraries) > 3 else []
    equal = f"{elements - best.differing:,} of the {elements:,}" if best.differing else "these"
    return f"With these rules {joined([*libraries[:3], *more])} {gives} {equal} integers. "


def table(matches: qc.Matches, tensor: PageTensor) -> Candidate:
    """Draw the candidates, one per row; return the selected one."""
    shown = matches.candidates[:MOST_ROWS]
    frame = pd.DataFrame(
        {
            "Codes that differ": f"{each.differing:,}" if each.differing else "none",
            "What went wrong": str(each.corruption) if few(each.differing, tensor.elements) else "",
            "Rules": rules_of(each, len(tensor.shape)),
            "Scale, zero point": "; ".join(each.notes),
            "Libraries": ", ".join(_libraries(each)),
        }
        for each in shown
    )
    frame = frame.loc[:, [(frame[name] != "").any() for name in frame]]  # without empty columns
    event: Any = st.dataframe(
        frame,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=TABLE,
        column_config={
            "What went wrong": st.column_config.TextColumn(width="medium"),
            "Libraries": st.column_config.TextColumn(width="large"),
        },
    )
    if len(matches.candidates) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} of {len(matches.candidates)} candidates.")
    rows = event.selection.rows
    return shown[rows[0] if rows and rows[0] < len(shown) else 0]


def detail(candidate: Candidate, tensor: PageTensor, codes: np.ndarray, chosen: qc.Scheme | None) -> None:
    """Draw a candidate's maps, why its codes differ, and its schemes.

    Args:
        chosen: the scheme of the visitor; of several that give the codes, the nearest to it can be opened.
    """
    stored = torch.from_numpy(codes.astype(np.int32))
    given = candidate.corruption.undo(stored).numpy()
    what = f"match {candidate.scheme} {candidate.corruption} {candidate.dtype}"

    def make() -> np.ndarray:
        x = candidate.given(cache.values(tensor))
        return reproduce(x, candidate.scheme, candidate.corruption).numpy()

    expected = cache.cached(tensor, what, make)
    stored_as = ", ".join(map(str, candidate.corruption.stored))
    undone = f" (undone: {stored_as})" if stored_as else ""
    bounds = candidate.scheme.format.qmin, candidate.scheme.format.qmax
    figure = figures.pair(given, expected, ("Given", "Reproduced"), bounds=bounds, theme=theme())
    left, right = st.columns([7, 1.4], vertical_alignment="center")
    rank = len(tensor.shape)
    left.markdown(f"**{messages.plain(rules_of(candidate, rank))}**{messages.plain(undone)}")
    scheme = candidate.scheme if chosen is None else nearest(candidate, chosen, rank)
    dtype = "" if candidate.converted is None else str(candidate.dtype).removeprefix("torch.")
    hint = f"Sets the scheme to {scheme}" + (f" and the tensor's dtype to {dtype}" if dtype else "")
    right.button("Open in Explore", on_click=_to_explore, args=(scheme, dtype), width="stretch", help=hint)
    charts.draw(figure, "Codes as given and as reproduced, and their differences", key="match_maps")
    legend = figures.pair_data(given, expected).legend
    if legend:
        st.caption(legend)
    if candidate.differing and not candidate.cells:
        candidate = explain_candidate(cache.values(tensor), stored, candidate)
    _reasons(candidate)
    count = len(candidate.schemes)
    with st.expander("The scheme of this row" if count == 1 else f"All {count:,} schemes of this row"):
        lines = [str(s) for s in candidate.schemes[:MOST_SCHEMES]]
        st.code("\n".join(line if len(line) <= 200 else line[:199] + "…" for line in lines), language=None)


def _to_explore(scheme: qc.Scheme, dtype: str) -> None:
    """Open Explore with a scheme, and the tensor in a dtype unless that is "" (a callback)."""
    if dtype:
        link.put({uploads.DTYPE: dtype})
    scheme_state.change_to(scheme)
    leaving.to("explore/explore/page.py")


def _reasons(candidate: Candidate) -> None:
    if not candidate.cells:
        return
    codes = "code differs" if candidate.differing == 1 else "codes differ"
    counted = ", ".join(f"{n:,} {kind}" for kind, n in candidate.reasons)
    total = sum(n for _, n in candidate.reasons)
    first = f"Of the first {total:,}: " if total < candidate.differing else ""
    st.markdown(f"**Why {candidate.differing:,} {codes}.** {messages.plain(first + counted)}.")
    cells = [(str(c.index), c.got, c.expected, c.reason) for c in candidate.cells]
    st.dataframe(
        pd.DataFrame(cells, columns=["Element", "Given", "Reproduced", "Reason"]),
        hide_index=True,
        column_config={"Reason": st.column_config.TextColumn(width="large")},
    )
    if len(cells) < candidate.differing:
        st.caption(f"The first {len(cells)} of {candidate.differing:,}.")


def _is_ranged(candidate: Candidate) -> bool:
    """Tell whether scales follow from x by the scheme itself."""
    return not candidate.scheme.range_setting.gives_parameters


def _libraries(candidate: Candidate) -> list[str]:
    return list(dict.fromkeys(s.convention.name for s in candidate.schemes))


def explained_by(candidate: Candidate) -> tuple[str, str] | None:
    """Return the lesson that explains what went wrong, and its step if it is a known mistake; else None."""
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


def _known(matches: qc.Matches, explained: tuple[str, str] | None) -> None:
    """Draw the known mistakes that also give the codes, except the ``explained`` one, each with a lesson."""
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
    """Draw a button that opens a lesson, at a step."""
    lesson = curriculum.LESSONS[name]
    label = f"Lesson: {CASES[step].title if name == 'mistakes' else lesson.title}"
    st.button(label, key=key, icon=f":material/{lesson.icon}:", on_click=_open, args=(name, step))


def _open(name: str, step: str) -> None:
    """Open a lesson, at a step (a callback)."""
    if step:
        st.session_state[curriculum.step_key(name)] = step
    leaving.to(curriculum.script(name))
