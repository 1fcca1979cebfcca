"""What a search found: a summary, the table of candidates, and the maps, reasons and schemes of the chosen one."""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
import torch

import quantcore as qc
from pages.compare.match import lesson_links
from pages.shared import charts, messages
from pages.shared.computing import cache
from pages.shared.state import leaving
from pages.shared.state.selection import Tensor
from pages.shared.theme import theme
from pages.sidebar import scheme_state
from quantcore import figures
from quantcore.matching import Candidate, answer, explain_candidate, nearest, reproduce, rules

MOST_ROWS, MOST_SCHEMES = 40, 200
TABLE = "match_table"


def summary(matches: qc.Matches, tensor: Tensor, fraction: float) -> None:
    """Draw the answer, the mistake first."""
    tried = f"{matches.tried:,} schemes of {len(qc.INTEGER_CONVENTIONS)} conventions tried."
    if fraction < 1:
        tried = f"Stopped at {100 * fraction:.0f} %: {tried}"
    if not matches.candidates:
        messages.warning(f"No scheme has been compared with the whole tensor yet. {tried}")
        return
    best = matches.candidates[0]
    told = answer(best, tensor.elements, len(tensor.shape))
    if best.differing or best.corruption or best.notes or best.explanations:
        messages.warning(told)
    else:
        st.success(messages.plain(told), icon=":material/check_circle:")
    st.markdown("\n".join(f"- {messages.plain(text)}" for text in best.explanations))
    lesson_links.draw(best)
    lesson_links.draw_known(matches)
    libraries = _libraries(best)
    gives = "gives" if len(libraries) == 1 else "give"
    almost = "almost " if best.differing else ""
    st.caption(
        messages.plain(f"With these rules {_listed(libraries)} {gives} {almost}these integers. {tried}")
    )


def table(matches: qc.Matches, tensor: Tensor) -> Candidate:
    """Draw the candidates, one per row; return the selected one."""
    shown = matches.candidates[:MOST_ROWS]
    frame = pd.DataFrame([_row(c, len(tensor.shape)) for c in shown])
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


def _row(candidate: Candidate, rank: int) -> dict[str, str]:
    scheme = candidate.scheme
    return {
        "Codes that differ": "none" if candidate.differing == 0 else f"{candidate.differing:,}",
        "What went wrong": str(candidate.corruption),
        "Rules": rules(scheme, rank),
        "Scale, zero point": "; ".join(candidate.notes),
        "Libraries": ", ".join(_libraries(candidate)),
    }


def detail(candidate: Candidate, tensor: Tensor, codes: np.ndarray, chosen: qc.Scheme | None) -> None:
    """Draw a candidate's maps, why its codes differ, and its schemes.

    Args:
        chosen: the scheme of the visitor; of several that give the codes, the nearest to it can be opened.
    """
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
    rank = len(tensor.shape)
    left.markdown(f"**{messages.plain(rules(candidate.scheme, rank))}**{messages.plain(undone)}")
    scheme = candidate.scheme if chosen is None else nearest(candidate, chosen, rank)
    hint = f"Sets the scheme to {scheme}"
    right.button("Open in Explore", on_click=_to_explore, args=(scheme,), width="stretch", help=hint)
    charts.draw(figure, theme=None, key="match_maps")
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


def _to_explore(scheme: qc.Scheme) -> None:
    """Open Explore with a scheme (a callback)."""
    scheme_state.change_to(scheme)
    leaving.to("explore/quantize/page.py")


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


def _libraries(candidate: Candidate) -> list[str]:
    return list(dict.fromkeys(s.convention.name for s in candidate.schemes))


def _listed(names: list[str]) -> str:
    if len(names) > 3:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
