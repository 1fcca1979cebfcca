"""Which part of a checkpoint is shown: the parameters of the link, and what a visitor types."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import streamlit as st

import quantcore as qc
from pages.maps.places import around, axes_text, index_text, read_element, read_slice, read_span, span_text
from pages.models import keys
from pages.models.keys import AT, CELL, COLUMNS, PLACE, ROWS, TENSOR
from pages.shared import messages
from pages.shared.state import choice

T = TypeVar("T")
PART, SEARCH, SORT, COLOR = "ck_part", "ck_search", "ck_sort", "ck_color"
BORDERS, NUMBERS = "ck_borders", "ck_numbers"
TENSORS, FINDINGS = "Tensors", "Findings"
PARTS = {TENSORS: TENSORS, FINDINGS: FINDINGS}
IN_FILES, NAME, BYTES = "Order of the files", "Name", "Bytes"
BITS, LOWEST, SQNR = "Bits per weight", "SQNR, lowest first", "SQNR"
SORTS = {name: name.lower() for name in (IN_FILES, NAME, BYTES, BITS)} | {LOWEST: LOWEST}
COLORS = {SQNR: SQNR, BITS: BITS.lower()}  # of the treemap, if there is an original
OWN = {*PLACE, PART, SEARCH, SORT, COLOR, BORDERS, NUMBERS}
KEYS = OWN | keys.KEYS
FREE_TEXT = {SEARCH, *PLACE} | keys.KEYS
REQUIRED = {PART, SORT, COLOR}
ALL, NONE = "all", "none"
AT_ONCE = 1 << 24  # elements; larger planes are shown whole only on request
FIRST_ROWS = 256  # shown first of a larger plane, at most


def open_tensor(name: str, cell: tuple[int, ...] | None = None) -> None:
    """Show a tensor, and a cell of it; without a name, the whole checkpoint (a callback)."""
    place = {TENSOR: name, CELL: "" if cell is None else index_text(cell)}
    st.session_state.update(dict.fromkeys(PLACE, "") | place)


def color() -> str:
    """Draw the choice of what colors the treemap, and return it."""
    return choice.segmented(
        "Color",
        COLOR,
        COLORS,
        label_visibility="collapsed",
        width="content",
        help="Color of the treemap: the signal-to-quantization-noise ratio against the original, "
        "also within a tensor, or bits per weight",
    )


def name() -> str:
    """Draw the field for a tensor's name; return the name, empty for the whole checkpoint."""
    return str(
        st.text_input(
            "Tensor",
            key=TENSOR,
            label_visibility="collapsed",
            placeholder="Name of a tensor",
            max_chars=4000,
            bind="query-params",
        )
    )


@dataclass(frozen=True)
class ShownPart:
    """The part of a tensor that is shown, in the tensor's own rows and columns.

    ``at``: the index on all axes but the last two; ``cell``: the chosen element, if any; ``closed``: no
    element is to be chosen for the visitor either.
    """

    at: tuple[int, ...]
    rows: tuple[int, int]
    columns: tuple[int, int]
    cell: tuple[int, ...] | None
    shape: tuple[int, ...]
    closed: bool = False


def region(rows: tuple[int, int] | None, columns: tuple[int, int] | None) -> None:
    """Show some rows and columns; None: all (a callback)."""
    st.session_state.update({ROWS: span_text(rows) or ALL, COLUMNS: span_text(columns)})


def pick(index: tuple[int, ...]) -> None:
    """Choose a cell; without an index, none (a callback)."""
    st.session_state[CELL] = index_text(index) or NONE


def go_to(index: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Choose a cell and show the 16×16 elements around it (a callback)."""
    open_cell = (0, 0, *index)[-2:]
    spans = [around(i, n) for i, n in zip(open_cell, qc.checkpoints.plane_shape(shape), strict=True)]
    region(*spans)
    st.session_state[AT] = index_text(index[:-2])
    pick(index)


def whole_of(shape: tuple[int, ...]) -> ShownPart:
    """Return the first plane of a tensor, or the first rows of a large one."""
    at, columns = (0,) * max(0, len(shape) - 2), (0, qc.checkpoints.plane_shape(shape)[1])
    return ShownPart(at, _default_rows(shape, None), columns, None, shape)


def part_of(shape: tuple[int, ...], worst: bool) -> ShownPart:
    """Draw the controls of the part shown, and return it; for unusable input, warn and use the default.

    Args:
        worst: whether the element with the largest error is chosen if the visitor chooses none.
    """
    height, width = qc.checkpoints.plane_shape(shape)
    lead, usual = dict(enumerate(shape[:-2])), whole_of(shape)
    with st.container(horizontal=True, key="map_controls", vertical_alignment="center", gap="small"):
        st.checkbox(
            "Block borders",
            key=BORDERS,
            help="Draw lines between the blocks that share a scale",
            bind="query-params",
        )
        st.checkbox(
            "Numbers", True, key=NUMBERS, help="Show numbers in the cells where they fit", bind="query-params"
        )
        first = ALL if usual.rows == (0, height) else span_text(usual.rows)
        rows = _field("Rows", ROWS, first, "Rows to show, such as 0:256; `all` shows all.")
        columns = _field("Columns", COLUMNS, ALL, "Columns to show, such as 0:256; empty shows all.")
        hint = "Index of a cell; click one to fill it in."
        if worst:
            hint += " Empty: the one with the largest |error|; `none`: no cell."
        chosen = _field("Cell", CELL, "the worst" if worst else NONE, hint)
        at = ""
        if lead:
            label, hint = f"Slice along {axes_text(lead)}", "For example, the expert of a stack."
            at = _field(label, AT, index_text(usual.at), hint, 300)
        steps = st.container(horizontal=True, width="content", gap="small")
    closed, all_rows = chosen.strip().lower() == NONE, rows.strip().lower() == ALL
    cell = _tried(lambda: read_element(chosen, shape) if chosen and not closed else None, None)
    usual_rows = (0, height) if all_rows else _default_rows(shape, cell)
    usual_at = usual.at if cell is None else cell[: len(lead)]
    shown = replace(
        usual,
        at=_tried(lambda: read_slice(at, lead) or usual_at, usual.at),
        rows=_tried(lambda: _span("" if all_rows else rows, "Rows", height, usual_rows), usual.rows),
        columns=_tried(lambda: _span(columns, "Columns", width, usual.columns), usual.columns),
        cell=cell,
        closed=closed,
    )
    with steps:
        _step_buttons(shown)
    return shown


def _field(label: str, key: str, placeholder: str, hint: str, width: int = 190) -> str:
    return str(
        st.text_input(label, key=key, placeholder=placeholder, help=hint, width=width, bind="query-params")
    )


def _step_buttons(shown: ShownPart) -> None:
    """Draw the buttons that show other rows, or everything."""
    (start, stop), plane = shown.rows, qc.checkpoints.plane_shape(shown.shape)
    size, height = stop - start, plane[0]
    if size < height:
        before, after = max(0, start - size), min(height, stop + size)
        for which, icon, rows, off in (
            ("before", "up", (before, before + size), start == 0),
            ("after", "down", (after - size, after), stop == height),
        ):
            st.button(
                "",
                icon=f":material/keyboard_arrow_{icon}:",
                disabled=off,
                on_click=st.session_state.update,
                args=({ROWS: span_text(rows)},),
                help=f"The rows {which} these",
                key=f"_ck_{which}",
            )
    if (shown.rows, shown.columns) != tuple((0, n) for n in plane):
        hint = "Show all rows and columns; where a cell stands for several elements, it shows the most "
        hint += "extreme one"
        st.button("Show all", on_click=region, args=(None, None), help=hint)


def _tried(read: Callable[[], T], default: T) -> T:
    try:
        return read()
    except qc.QuantError as error:
        messages.warning(f"{error} The default is used.")
        return default


def _span(typed: str, what: str, length: int, usual: tuple[int, int]) -> tuple[int, int]:
    """Read a span of rows or columns; by default ``usual``."""
    span = read_span(typed, what)
    if span is None:
        return usual
    if not 0 <= span[0] < span[1] <= length:
        outside = f"The {what.lower()} {span_text(span)} are not within 0:{length}"
        raise qc.QuantError(f"{outside}; give a start below a stop, both inside.")
    return span


def _default_rows(shape: tuple[int, ...], cell: tuple[int, ...] | None) -> tuple[int, int]:
    """Return all rows; of a large plane only some, which include the cell's."""
    height, width = qc.checkpoints.plane_shape(shape)
    if height * width <= AT_ONCE:
        return 0, height
    size = min(height, max(1, min(FIRST_ROWS, AT_ONCE // 4 // width)))
    start = cell[-2] // size * size if cell and len(cell) > 1 else 0
    return start, min(height, start + size)
