"""The picture: weights in rows, schemes in columns, the SQNR as color; a click on a cell chooses it."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from pages.models.sensitivity import controls
from pages.models.sensitivity.controls import WeightOrder
from pages.models.sensitivity.run import SharedTable
from pages.shared import messages, tables
from quantcore.layerwise import WeightRow, picture
from quantcore.wording import count, printable

_COMPONENT = st.components.v2.component(
    "quantscope_layers",
    html='<div class="qs-layers"></div>',
    css=picture.STYLE,
    js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
DRAWN = 400  # rows in the picture
LISTED = 50  # reasons


def draw(found: SharedTable, order: WeightOrder, taken: Mapping[str, str]) -> None:
    """Draw the picture of all that is known, what is estimated and what is left alone.

    Args:
        taken: the scheme of each weight within the budget, if any.
    """
    rows = [row for row in found.rows if row.cells]
    if not rows:
        messages.warning("No weight of this checkpoint can be quantized; the reasons are below.")
        return
    guessed = sum(row.name not in found.table.rows for row in rows)
    said = [picture.caption(rows, found.table.schemes, taken)]
    tensors = found.opened.checkpoint.tensors
    if not all(tensors[row.name].layout.is_plain for row in rows):
        said.append("This checkpoint is quantized already: errors are against the values that it stores.")
    if order.by_harm:
        said.append("Sorted by the first scheme.")
    if guessed:
        said.append(f"{count(guessed, 'weight')} estimated from some rows, ± half of the 95 % interval, until the exact numbers replace them.")
    if len(rows) > DRAWN:
        said.append(f"The first {DRAWN:,} weights are drawn; the table to download has all.")
    st.caption(" ".join([*said, "Click a cell to see why it loses that much."]))
    shown = order.sort(rows)[:DRAWN]
    chosen = controls.chosen_cell(found.table.schemes, rows)

    def picked() -> None:
        if place := st.session_state["sn_picture"].picked:
            row, column = map(int, place)
            controls.choose(shown[row].name, found.table.schemes[column])

    data = {"table": picture.layers(shown, found.table.schemes, order.by_kind, chosen, taken), "chosen": st.session_state.get(controls.TENSOR) or ""}
    _COMPONENT(key="sn_picture", data=data, on_picked_change=picked)


def live(found: SharedTable, order: WeightOrder) -> None:
    """Draw what is known so far; clicks do nothing."""
    rows = order.sort([row for row in found.rows if row.cells])[:DRAWN]
    table = picture.layers(rows, found.table.schemes, order.by_kind)
    st.html(f'<style>{picture.STYLE}</style><div class="qs-layers" data-live>{table}</div>')


def beneath(found: SharedTable, order: WeightOrder, taken: Mapping[str, str]) -> None:
    """List the weights that are not measured and what the imatrix has, and draw the downloads."""
    alone = [row for row in found.rows if row.reason]
    broken = [row for row in alone if row.reason.startswith("can't be read")]
    if broken:
        messages.warning(f"{count(len(broken), 'tensor')} can't be read. The first: {broken[0].name} {broken[0].reason}")
    measured = [row for row in found.table.ordered if row.cells]
    with st.container(horizontal=True):
        with st.popover(f"{count(len(alone), 'tensor')} not measured", disabled=not alone):
            _listed([f"{row.name} {row.reason}" for row in alone])
        if found.imatrix is not None:
            with st.popover(f"imatrix: {sum(map(_has_entry, measured)):,} of {count(len(measured), 'weight')}"):
                _listed([f"{row.name}: {row.coverage or 'has an entry'}" for row in sorted(measured, key=_has_entry)])
        if found.table.is_finished:
            make = partial(picture.document, order.sort(measured), found.table.schemes, order.by_kind, taken)
            st.download_button("Picture (HTML)", make, "sensitivity.html", "text/html", on_click="ignore")
            frame = pd.DataFrame(found.table.as_rows())
            tables.downloads(frame, frame[["tensor", "scheme", "sqnr_db", "mse", "bits_per_weight"]], "sensitivity")


def _has_entry(row: WeightRow) -> bool:
    return any(not math.isnan(cell.output_error) for cell in row.cells)


def _listed(lines: Sequence[str]) -> None:
    st.markdown("\n".join(f"- {messages.plain(printable(line, 400))}" for line in lines[:LISTED]))
    if len(lines) > LISTED:
        st.caption(f"{len(lines) - LISTED:,} more; the table to download has all.")
