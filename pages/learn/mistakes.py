"""Lesson: code that looks right. Find the wrong cells, then see the line that causes them."""

import re

import numpy as np
import streamlit as st
import torch

import quantcore as qc
from pages.learn import frame, views
from pages.maps import cells
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.large import is_large
from pages.shared.state import choice
from pages.sidebar import match_fields
from quantcore.mistakes import CASES, OutcomePair, SourceLine, compare, lines
from quantcore.wording import count, signed

FOUND = "_learn_found"  # the cells picked for each mistake and tensor
SIDE = 8  # rows and columns used of the visitor's tensor


def pick(key: str, row: int, column: int) -> None:
    """Choose or unchoose a cell (a callback)."""
    found = st.session_state.setdefault(FOUND, {})
    found[key] = found.get(key, frozenset()) ^ {(row, column)}


def marked(wrong: np.ndarray, picked: frozenset[tuple[int, int]], revealed: bool) -> np.ndarray:
    """Return the mark of every cell."""
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


def nameless(line: SourceLine) -> str:
    """Return a line of source without the name of the function, which would give the mistake away."""
    return re.sub(r"^def \w+\(", "def quantize(", line.text)


def difference(wrong: list[SourceLine], right: list[SourceLine]) -> str:
    """Return both implementations as a diff, with the wrong lines before the right ones."""
    diff, at = [f"  {nameless(wrong[0])}"], 1
    for line in wrong[1:]:
        if line.differs:
            diff.append(f"- {line.text}")
            continue
        while right[at].differs:
            diff.append(f"+ {right[at].text}")
            at += 1
        diff.append(f"  {line.text}")
        at += 1
    return "\n".join([*diff, *(f"+ {line.text}" for line in right[at:])])


def outcome_tables(
    outcome: qc.mistakes.Outcome,
    marks: np.ndarray | None,
    pick: bool = False,
    beside: qc.mistakes.Outcome | None = None,
) -> list[cells.MarkedTable]:
    """Return the tables of one implementation; ``beside``: the other one, if it is shown too."""
    other = beside or outcome
    names = {"codes": "codes", "x̂": "dequantized", "x − x̂, computed afterwards": "error"}
    return [
        cells.MarkedTable(
            title, getattr(outcome, name).numpy(), marks, pick=pick, beside=getattr(other, name).numpy()
        )
        for title, name in names.items()
    ]


def tensor() -> tuple[str, torch.Tensor | None]:
    """Return the key of the visitor's tensor and the part used; "" and None for the mistake's own tensor."""
    hint = f"Runs the code on the first {SIDE} rows and columns of the tensor in the sidebar"
    mine = st.toggle("Use my tensor", key="learn_mistakes_mine", bind="query-params", help=hint)
    chosen = views.yours() if mine else None
    if chosen is None:
        return "", None
    x = cache.values(chosen[0])
    return chosen[0].key, x.reshape(-1, x.shape[-1] if x.ndim else 1)[:SIDE, :SIDE].float().clone()


def find(comparison: OutcomePair, marks: np.ndarray, key: str, picked: int) -> None:
    """Draw the result of the wrong code, with cells to click, and the code."""
    with words:
        st.markdown(
            "Which cells are wrong? Click them, then press *reveal*. "
            f"{messages.plain(signed(CASES[step].hint))}"
        )
        st.code("\n".join(map(nameless, lines(CASES[step])[0])), language="python", wrap_lines=True)
        st.caption(f"{count(picked, 'cell')} chosen.")
    tables = [
        cells.MarkedTable("x", comparison.x.numpy(), marks, pick=True),
        *outcome_tables(comparison.wrong, marks, True),
    ]
    with picture:
        cells.draw(tables, "learn_mistakes_find", lambda row, column: pick(key, row, column), fill=1)


def reveal(comparison: OutcomePair, marks: np.ndarray, summary: str) -> None:
    """Draw both results one above the other, the code with the lines that differ, and what goes wrong."""
    case = CASES[step]
    wrong, right = comparison.wrong, comparison.right
    with words:
        st.markdown(f"**{case.title}.** {summary}.")
        st.markdown(f"**What goes wrong:** {messages.plain(signed(case.why))}")
        st.markdown(f"**Fix:** {messages.plain(case.fix)}")
        st.code(difference(*lines(case)), language="diff", wrap_lines=True)
        if comparison.hidden.any():
            st.markdown(f"Computed afterwards, x − x̂ gives an MAE of only {wrong.error.abs().mean():.4g}.")
    tables = [cells.MarkedTable("x", comparison.x.numpy(), marks)]
    if not torch.equal(wrong.x, comparison.x):
        tables.append(cells.MarkedTable("x after the wrong code", wrong.x.numpy(), marks))
    with picture:
        st.markdown(f"**Wrong: MAE {wrong.mae:.4g}, SSE {wrong.sse:.4g}**")
        cells.draw([*tables, *outcome_tables(wrong, marks, beside=right)], "learn_mistakes_wrong", fill=0.5)
    with beside:
        st.markdown(f"**Right: MAE {right.mae:.4g}, SSE {right.sse:.4g}**")
        cells.draw(outcome_tables(right, None, beside=wrong), "learn_mistakes_right", fill=1)


def result(wrong: np.ndarray, picked: frozenset[tuple[int, int]]) -> str:
    """Return a sentence on how many cells are wrong, and how many of them were found."""
    every, found = int(wrong.sum()), sum(bool(wrong[place]) for place in picked)
    wrong_cells = f"{every} of {wrong.size} cells {'is' if every == 1 else 'are'} wrong"
    more = f"; you found {found}, and marked {count(len(picked) - found, 'correct cell')}"
    return wrong_cells + more if picked else wrong_cells


step = frame.head("mistakes")
both = choice.before_drawn("learn_mistakes_shown") == "reveal"
# room for the lines of code, and for large numbers or two results
widths = ((1, 1), (4, 5)) if is_large() else ((2, 3), (1, 1))
words, beside = st.columns(widths[0 if both else 1], gap="medium")
picture = beside.container(key="lesson_picture")
with words.container(key="lesson_control"):
    left, right = st.columns(2, vertical_alignment="center")
    ways = {"find": "find", "reveal": "reveal"}
    shown = choice.segmented("Shown", "learn_mistakes_shown", ways, left, label_visibility="collapsed")
    with right:
        key, x = tensor()
try:
    comparison = compare(CASES[step], x)
except qc.QuantError as error:
    messages.error(str(error))
else:
    key = f"{step} {key}"
    picked = st.session_state.get(FOUND, {}).get(key, frozenset())
    wrong = np.atleast_2d(comparison.wrong_cells.numpy())
    marks = marked(wrong, picked, shown == "reveal")
    if shown == "find":
        find(comparison, marks, key, len(picked))
    else:
        reveal(comparison, marks, result(wrong, picked))
        if not torch.equal(comparison.wrong.codes.float(), comparison.right.codes.float()):
            with words:
                st.button(
                    "Find it with Match",
                    key="learn_mistakes_match",
                    icon=":material/manage_search:",
                    on_click=match_fields.open_match,
                    args=(comparison.x.numpy(), comparison.wrong.codes.numpy()),
                    help="Opens Compare → Match with this tensor and these codes; Match names the mistake "
                    "from them alone",
                )
frame.foot(CASES[step].source.rstrip("."))
