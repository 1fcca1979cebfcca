"""Lesson 5: code that looks right; find the wrong cells, then see the line that makes them."""

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.shared import cells, compute, lesson, lesson_view, match_lessons, say
from quantcore.mistakes import MISTAKES, Comparison, Line, compare, lines

FOUND = "_learn_found"  # the cells that were picked, for each mistake and tensor
SIDE = 8  # rows and columns of one's own tensor


def pick(key: str, row: int, column: int) -> None:
    """Choose a cell, or let it go (a callback)."""
    found = st.session_state.setdefault(FOUND, {})
    found[key] = found.get(key, frozenset()) ^ {(row, column)}


def marked(wrong: np.ndarray, picked: frozenset[tuple[int, int]], revealed: bool) -> np.ndarray:
    """The mark of every cell."""
    marks = np.full(wrong.shape, "", dtype="<U8")
    for place in np.ndindex(*wrong.shape):
        chosen = place in picked
        if not revealed:
            marks[place] = "chosen" if chosen else ""
        elif wrong[place]:
            marks[place] = "right" if chosen else "missed" if picked else "wrong"
        elif chosen:
            marks[place] = "false"
    return marks


def code(shown: list[Line], sign: str) -> None:
    """Draw source; a sign, unless it is empty, stands before the lines that differ."""
    texts = [f"{sign if line.differs else ' '} {line.text}" if sign else line.text for line in shown]
    st.code("\n".join(texts), language="diff" if sign else "python", wrap_lines=True)


def side(way: qc.mistakes.Outcome, marks: np.ndarray | None, pick: bool = False) -> list[cells.Table]:
    """The tables of one way."""
    shown = [("codes", way.codes), ("x̂", way.dequantized), ("x - x̂, computed afterwards", way.error)]
    return [cells.Table(title, values.numpy(), marks, pick=pick) for title, values in shown]


def tensor() -> tuple[str, torch.Tensor | None]:
    """The visitor's tensor, as far as it is shown, with its key; None for the mistake's own."""
    mine = st.toggle("On my tensor", key="learn_mistakes_mine", bind="query-params",
                     help=f"Run both on the tensor in the sidebar, its first {SIDE} rows and columns")  # fmt: skip
    chosen = lesson_view.yours() if mine else None
    if chosen is None:
        return "", None
    x = compute.values(chosen[0])
    return chosen[0].key, torch.from_numpy(x.reshape(-1, x.shape[-1] if x.ndim else 1)[:SIDE, :SIDE].copy())


def reveal(comparison: Comparison, marks: np.ndarray, name: str) -> None:
    """Draw both ways side by side, their code with the differing lines marked, and what goes wrong."""
    mistake, (wrong, right) = MISTAKES[name], lines(MISTAKES[name])
    st.markdown(f"**What goes wrong:** {say.plain(mistake.why)}")
    st.markdown(f"**Fixed:** {say.plain(mistake.mend)}")
    for column, title, way, shown, sign in zip(
        st.columns(2), ("Wrong", "Right"), (comparison.wrong, comparison.right), (wrong, right), "-+", strict=True
    ):  # fmt: skip
        with column:
            st.markdown(f"##### {title}: MAE {way.mae:.4g}, SSE {way.sse:.4g}")
            if comparison.hidden.any():
                st.markdown(f"x - x̂ computed afterwards says MAE {way.error.abs().mean():.4g}.")
            code(shown, sign)
            cells.draw(side(way, marks if sign == "-" else None), f"learn_mistakes_{title.lower()}")


match_lessons.leave()
step = lesson.head("mistakes", {name: mistake.title for name, mistake in MISTAKES.items()})
left, right = st.columns([2, 3], vertical_alignment="center")
shown = left.segmented_control("Shown", ["find", "reveal"], default="find", key="learn_mistakes_shown", required=True,
                               label_visibility="collapsed", bind="query-params")  # fmt: skip
with right:
    key, x = tensor()
try:
    comparison = compare(MISTAKES[step], x)
except qc.QuantError as error:
    say.error(str(error))
else:
    key = f"{step} {key}"
    picked = st.session_state.get(FOUND, {}).get(key, frozenset())
    wrong = np.atleast_2d(comparison.wrong_cells.numpy())
    marks = marked(wrong, picked, shown == "reveal")
    if shown == "find":
        st.markdown(f"Which cells are wrong? Click them, then reveal. {say.plain(MISTAKES[step].hint)}")
        code(lines(MISTAKES[step])[0], "")
        tables = [
            cells.Table("x", comparison.x.numpy(), marks, pick=True),
            *side(comparison.wrong, marks, True),
        ]
        cells.draw(tables, "learn_mistakes_find", lambda row, column: pick(key, row, column))
        st.caption(f"{len(picked)} chosen.")
    else:
        found = sum(bool(wrong[place]) for place in picked)
        told = f"{int(wrong.sum())} of {wrong.size} cells are wrong"
        if picked:
            told += f"; you found {found} of them, and chose {len(picked) - found} that are right"
        st.markdown(f"**{told}.**")
        tables = [cells.Table("x", comparison.x.numpy(), marks)]
        if not torch.equal(comparison.wrong.x, comparison.x):
            tables.append(cells.Table("x after the wrong way", comparison.wrong.x.numpy(), marks))
        cells.draw(tables, "learn_mistakes_x")
        reveal(comparison, marks, step)
        if not torch.equal(comparison.wrong.codes.float(), comparison.right.codes.float()):
            match_lessons.draw_back(comparison.x.numpy(), comparison.wrong.codes.numpy())
lesson.foot(MISTAKES[step].source.rstrip("."))
