"""Small tables of numbers side by side, with marked cells, for lessons."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from pages.browser import streamlit_dom
from quantcore.figures import BLOCKS
from quantcore.wording import signed

_HERE = Path(__file__).parent
_COMPONENT = st.components.v2.component(
    "quantscope_cells",
    html='<div class="qs-cells"></div>',
    css=(_HERE / "cells.css").read_text(encoding="utf-8"),
    js=streamlit_dom.read(_HERE / "cells.js"),
    isolate_styles=False,
)
TINTS = len(BLOCKS["light"])  # colors that distinguish blocks; with more blocks, cells are numbered too


@dataclass(frozen=True)
class MarkedTable:
    """A table of at most two axes.

    Attributes:
        marks: of each cell: wrong, missed, right, false, chosen, faint, a mark of `tints`, or "" (the
            default).
        note: after the title.
        index: whether rows and columns are numbered; with one axis, its elements are.
        first: the number of the first row.
        pick: whether cells can be picked.
        beside: the numbers of another table, which are shown with as many decimals as these.
    """

    title: str
    values: Any
    marks: Any = None
    note: str = ""
    index: bool = True
    first: int = 0
    pick: bool = False
    beside: Any = None


def draw(
    tables: Sequence[MarkedTable],
    key: str,
    on_pick: Callable[[int, int], None] | None = None,
    *,
    fill: float = 0.0,
    even: bool = False,
) -> None:
    """Draw tables side by side, or one below the other if they are ``even``.

    Args:
        on_pick: called with row and column of a picked cell.
        fill: the fraction of the height from their top to the bottom of the window that the tables fill, as
            large as they can; 0: they are as large as text.
        even: all columns are equally wide and take the whole width: tables and fields below each other align.
    """

    def picked() -> None:
        place = st.session_state[key].picked
        if place and on_pick:
            on_pick(*(int(i) for i in place))

    data = {
        "tables": [_data(table) for table in tables],
        "tints": BLOCKS[st.context.theme.type or "light"],
        "fill": fill,
        "even": even,
    }
    _COMPONENT(key=key, data=data, on_picked_change=picked)


def tints(blocks: Any) -> np.ndarray:
    """Return a mark for each cell from the number of its block, counted from 0: a color such as ``tint3``.

    With more blocks than colors, the cells show the number too: ``tint3:11``.
    """
    blocks = np.atleast_2d(blocks)
    numbered = int(blocks.max()) >= TINTS
    return np.array(
        [[f"tint{n % TINTS}" + (f":{n}" if numbered else "") for n in map(int, row)] for row in blocks]
    )


def _data(table: MarkedTable) -> dict[str, Any]:
    values = np.atleast_2d(np.asarray(table.values))
    marks = np.full(values.shape, "") if table.marks is None else np.atleast_2d(np.asarray(table.marks))
    texts = _texts(values, values if table.beside is None else np.atleast_2d(np.asarray(table.beside)))
    rows = [
        [[text, str(mark)] for text, mark in zip(*pair, strict=True)]
        for pair in zip(texts, marks, strict=True)
    ]
    rank = min(np.ndim(table.values), 2) if table.index else 0
    return {
        "title": signed(table.title),
        "note": signed(table.note),
        "cells": rows,
        "indices": rank,
        "first": table.first,
        "pick": table.pick,
    }


def _texts(values: np.ndarray, beside: np.ndarray) -> list[list[str]]:
    """Write a table's numbers with equally many decimals: as many as needed, up to four digits for the
    largest number, also of the table ``beside``.
    """
    if values.dtype.kind != "f":
        return [[str(v) for v in row] for row in values]
    every = np.concatenate([values.ravel(), beside.ravel()])
    finite = np.abs(every[np.isfinite(every)])
    most = float(finite.max()) if finite.size else 0.0
    if most and not 1e-3 <= most < 1e5:
        return [[f"{v:.3g}" for v in row] for row in values]
    decimals = 4 if most < 1 else max(0, 3 - int(np.log10(max(most, 1))))
    fewer = (d for d in range(decimals) if all(values.dtype.type(f"{v:.{d}f}") == v for v in every))
    decimals = next(fewer, decimals)
    return [[f"{v:z.{decimals}f}" for v in row] for row in values]  # z: no -0
