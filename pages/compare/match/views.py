"""What a search found: a summary, the table of candidates, and the maps, reasons and schemes of the chosen one."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
import torch

import quantcore as qc
from pages.compare.match import lesson_links
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state.selection import Tensor
from pages.shared.theme import theme
from pages.sidebar import scheme_state
from quantcore import figures
from quantcore.matching import Candidate, explain_candidate, mismatches, nearest, reproduce
from quantcore.notation import write_call

MOST_ROWS, MOST_SCHEMES = 40, 200
TABLE = "match_table"


def summary(matches: qc.Matches, tensor: Tensor, expected: qc.Scheme | None, fraction: float) -> None:
    """Draw a sentence or two on what was found."""
    elements = cache.size(tensor)
    tried = f"{matches.tried:,} schemes of {len(qc.INTEGER_CONVENTIONS)} conventions tried."
    if fraction < 1:
        tried = f"Stopped at {100 * fraction:.0f} %: {tried}"
    if not matches.candidates:
        messages.warning(f"No scheme has been compared with the whole tensor yet. {tried}")
        return
    best = matches.candidates[0]
    made = f"{_without_library(best.scheme)} in {_listed(_libraries(best))}"
    caveats = [
        *([str(best.corruption)] if best.corruption else []),
        *best.notes,
        *_against(best, tensor, expected),
    ]
    but = f", but: {'; '.join(caveats)}" if caveats else ""
    if best.differing == 0 and not caveats and not best.explanations:
        st.success(messages.plain(f"All {elements:,} integers match {made}."), icon=":material/check_circle:")
    elif best.differing == 0:
        messages.warning(f"All {elements:,} integers match {made}{but}.")
    else:
        closest = (
            "The closest match" if best.differing * 2 < elements else "Nothing matches; the closest scheme"
        )
        messages.warning(f"{closest} is {made}{but}: {best.differing:,} of {elements:,} integers differ.")
    st.markdown("\n".join(f"- {messages.plain(text)}" for text in best.explanations))
    lesson_links.draw(best)
    lesson_links.draw_known(matches)
    st.caption(tried)


def _against(candidate: Candidate, tensor: Tensor, expected: qc.Scheme | None) -> tuple[str, ...]:
    """How the candidate differs from the scheme on the left."""
    return () if expected is None else mismatches(candidate, expected, len(tensor.shape))


def table(matches: qc.Matches, tensor: Tensor, expected: qc.Scheme | None) -> Candidate:
    """Draw the candidates, one per row; return the selected one."""
    shown = matches.candidates[:MOST_ROWS]
    frame = pd.DataFrame([_row(c, tensor, expected) for c in shown])
    frame = frame.loc[:, [(frame[name] != "").any() for name in frame]]  # without empty columns
    event: Any = st.dataframe(
        frame,
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key=TABLE,
        height=300 if len(frame) > 7 else "content",
        column_config={"Libraries": st.column_config.TextColumn(width="large")},
    )
    if len(matches.candidates) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} of {len(matches.candidates)} candidates.")
    rows = event.selection.rows
    return shown[rows[0] if rows and rows[0] < len(shown) else 0]


def _row(candidate: Candidate, tensor: Tensor, expected: qc.Scheme | None) -> dict[str, str]:
    scheme = candidate.scheme
    return {
        "Codes that differ": "none" if candidate.differing == 0 else f"{candidate.differing:,}",
        "Libraries": ", ".join(_libraries(candidate)),
        "Format": f"{scheme.format} {'symmetric' if scheme.symmetric else 'asymmetric'}",
        "Granularity": _granularity(scheme),
        "What went wrong": str(candidate.corruption),
        "Against the scheme on the left": "; ".join(_against(candidate, tensor, expected)),
        "Scale, zero point": "; ".join(candidate.notes),
    }


def detail(candidate: Candidate, tensor: Tensor, codes: np.ndarray, chosen: qc.Scheme | None) -> None:
    """Draw a candidate's maps, why its codes differ, and its schemes."""
    stored = torch.from_numpy(codes.astype(np.int32))
    given = candidate.corruption.undo(stored).numpy()
    what = f"match {candidate.scheme} {candidate.corruption}"
    make = lambda: reproduce(cache.values(tensor), candidate.scheme, candidate.corruption).numpy()  # noqa: E731
    expected = cache.cached(tensor, what, make)
    undone = (
        f" (undone: {', '.join(map(str, candidate.corruption.stored))})"
        if candidate.corruption.stored
        else ""
    )
    bounds = candidate.scheme.format.qmin, candidate.scheme.format.qmax
    figure = figures.pair(given, expected, ("Given", "Reproduced"), bounds=bounds, theme=theme())
    left, right = st.columns([7, 1.4], vertical_alignment="center")
    left.markdown(f"**{messages.plain(_without_library(candidate.scheme))}**{messages.plain(undone)}")
    scheme = candidate.scheme if chosen is None else nearest(candidate, chosen, len(tensor.shape))
    if set_already(scheme, chosen, len(tensor.shape)):
        right.page_link("explore/quantize/page.py", label="Open in Explore", icon=":material/grid_view:")
    else:
        hint = "Sets the scheme on the left to this one; you can then open it in Explore"
        right.button("Use this scheme", on_click=_use, args=(scheme,), width="stretch", help=hint)
    st.plotly_chart(figure, theme=None, key="match_maps")
    legend = figures.pair_data(given, expected).legend
    if legend:
        st.caption(legend)
    if candidate.differing and not candidate.cells:
        x = torch.from_numpy(cache.values(tensor))
        candidate = explain_candidate(x, stored, candidate)
    _reasons(candidate)
    count = len(candidate.schemes)
    with st.expander("The scheme of this row" if count == 1 else f"All {count:,} schemes of this row"):
        lines = [str(s) for s in candidate.schemes[:MOST_SCHEMES]]
        st.code("\n".join(line if len(line) <= 200 else line[:199] + "…" for line in lines), language=None)


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
        height=300 if len(cells) > 7 else "content",
        column_config={"Reason": st.column_config.TextColumn(width="large")},
    )
    if len(cells) < candidate.differing:
        st.caption(f"The first {len(cells)} of {candidate.differing:,}.")


def set_already(scheme: qc.Scheme, chosen: qc.Scheme | None, rank: int) -> bool:
    """Whether this is already the scheme on the left; axes may be counted from either end."""
    if chosen is None:
        return False
    return str(_from_start(scheme, rank)) == str(_from_start(chosen, rank))


def _from_start(scheme: qc.Scheme, rank: int) -> qc.Scheme:
    granularity = scheme.granularity
    if not isinstance(granularity, qc.PerChannel | qc.PerGroup):
        return scheme
    counted = dataclasses.replace(granularity, axis=granularity.axis % max(rank, 1))
    return dataclasses.replace(scheme, granularity=counted)


def _use(scheme: qc.Scheme) -> None:
    """Set the scheme on the left (a callback)."""
    try:
        scheme_state.apply_scheme(scheme)
    except qc.QuantError as error:
        st.session_state[scheme_state.TEXT_ERROR] = str(error)


def _libraries(candidate: Candidate) -> list[str]:
    return list(dict.fromkeys(s.convention.name for s in candidate.schemes))


def _listed(names: list[str]) -> str:
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _granularity(scheme: qc.Scheme) -> str:
    given = ", as given" if isinstance(scheme.range_setting, qc.Given) else ""
    match scheme.granularity:
        case qc.PerChannel(axis):  # name even the default axis: a wrong axis is a common mistake
            return f"per_channel({axis})" + given
    return write_call(scheme.granularity) + given


def _without_library(scheme: qc.Scheme) -> str:
    return f"{scheme.format} {'symmetric' if scheme.symmetric else 'asymmetric'} {_granularity(scheme)}"
