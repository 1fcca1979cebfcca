"""The picture: weights in rows, schemes in columns, the SQNR as color; a click on a cell chooses it."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import pandas as pd
import streamlit as st

from pages.models.sensitivity import controls
from pages.models.sensitivity.controls import Order
from pages.models.sensitivity.run import SharedTable
from pages.shared import messages, tables
from pages.shared.theme import theme
from quantcore.analysis import decibels
from quantcore.figures import palette, short_scheme
from quantcore.figures.checkpoints import layer_colors
from quantcore.layerwise import Cell, Row
from quantcore.wording import count, printable

_HERE = Path(__file__).parent
_STYLE = (_HERE / "picture.css").read_text(encoding="utf-8")
_COMPONENT = st.components.v2.component(
    "quantscope_layers",
    html='<div class="qs-layers"></div>',
    css=_STYLE,
    js=(_HERE / "picture.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
DRAWN = 400  # rows in the picture
LISTED = 50  # reasons


def draw(found: SharedTable, order: Order, taken: Mapping[str, str]) -> None:
    """Draw the picture of all that is known, what is estimated and what is left alone.

    Args:
        taken: the scheme of each weight within the budget, if any.
    """
    rows, estimates = [row for row in found.rows if row.cells], found.estimates()
    if not rows:
        messages.warning("No weight of this checkpoint can be quantized; the reasons are below.")
        return
    guessed = sum(row.name in estimates for row in rows)
    said = [f"SQNR (dB) of {count(len(rows), 'weight')} under {count(len(found.schemes), 'scheme')}."]
    tensors = found.opened.checkpoint.tensors
    if not all(tensors[row.name].layout.is_plain for row in rows):
        said.append("This checkpoint is quantized already: errors are against the values that it stores.")
    if order.by_harm:
        said.append("Sorted by the first scheme.")
    if guessed:
        said.append(f"{count(guessed, 'weight')} estimated from some rows, ± half of the 95 % interval, until the exact numbers replace them.")
    if taken:
        said.append("✓: the choice within the budget; weights without one stay as they are stored.")
    if len(rows) > DRAWN:
        said.append(f"The first {DRAWN:,} weights are drawn; the table to download has all.")
    st.caption(" ".join([*said, "Click a cell to see why it loses that much."]))
    shown = order.sort(rows)[:DRAWN]
    chosen = controls.chosen_cell(found.table.schemes, rows)

    def picked() -> None:
        if place := st.session_state["sn_picture"].picked:
            row, column = map(int, place)
            controls.choose(shown[row].name, found.table.schemes[column])

    data = {"table": _table(found, shown, order.by_kind, chosen, taken), "chosen": st.session_state.get(controls.TENSOR) or ""}
    _COMPONENT(key="sn_picture", data=data, on_picked_change=picked)


def live(found: SharedTable, order: Order) -> None:
    """Draw what is known so far; clicks do nothing."""
    rows = order.sort([row for row in found.rows if row.cells])[:DRAWN]
    st.html(f'<style>{_STYLE}</style><div class="qs-layers" data-live>{_table(found, rows, order.by_kind)}</div>')


def _table(
    found: SharedTable, rows: Sequence[Row], is_grouped: bool = False, chosen: tuple[Row, int] | None = None, taken: Mapping[str, str] | None = None
) -> str:
    """The picture as HTML."""
    schemes, values = found.table.schemes, [[cell.sqnr_db for cell in row.cells] for row in rows]
    heads = "".join(f'<th scope="col" title="{_text(scheme)}">{_text(short_scheme(scheme))}</th>' for scheme in schemes)
    styles = iter(zip(range(len(rows)), layer_colors(values, theme()), strict=True))
    lines = []
    for kind, group in groupby(rows, key=lambda row: row.kind if is_grouped else ""):
        if is_grouped:
            lines.append(f'<tr class="qs-kind"><th colspan="{len(schemes) + 1}">{_text(kind)}</th></tr>')
        for row, (number, own) in zip(group, styles, strict=False):
            marks = [("qs-chosen " if chosen == (row, i) else "") + ("qs-taken" if (taken or {}).get(row.name) == scheme else "")
                     for i, scheme in enumerate(schemes)]  # fmt: skip
            cells = "".join(_cell(*each) for each in zip(row.cells, own, marks, strict=True))
            name = re.sub(r"([._])", r"\1<wbr>", _text(row.name.removesuffix(".weight")))
            lines.append(f'<tr data-row="{number}"><th scope="row" title="{_text(row.kind)}, {"×".join(map(str, row.shape))}">{name}</th>{cells}</tr>')
    return f'<table role="grid"><thead><tr><th>{_legend(values)}</th>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table>'


def _legend(values: Sequence[Sequence[float]]) -> str:
    """Which colors stand for which SQNR."""
    finite = [value for row in values for value in row if math.isfinite(value)]
    if not finite:
        return "SQNR (dB)"
    colors = ",".join(color for _, color in reversed(palette("sequential", theme())))
    return f'SQNR (dB)<i style="background:linear-gradient(90deg,{colors})"></i><small><span>{min(finite):.1f}</span><span>{max(finite):.1f}</span></small>'


def _cell(cell: Cell, style: str, mark: str) -> str:
    half = (cell.sqnr_high - cell.sqnr_low) / 2
    if cell.problem or math.isnan(cell.sqnr_db):
        number, hint = "–", cell.problem or "not defined"
    elif half > 0 and math.isfinite(half):
        number, hint = f"{cell.sqnr_db:.1f} ± {half:.1f}", f"{cell.said}; the exact number takes about {cell.seconds:.2g} s on one core"
    else:
        number, hint = decibels(cell.sqnr_db).removesuffix(" dB"), ""
    title = f' title="{_text(hint)}"' if hint else ""
    return f'<td class="{mark}" style="{style}"{title}>{number}</td>'


def _text(text: str) -> str:
    return html.escape(printable(text, 400))


def left_alone(found: SharedTable) -> None:
    """List the weights that are not measured, what the imatrix has, and the downloads."""
    alone = [row for row in found.rows if row.reason]
    broken = [row for row in alone if row.reason.startswith("can't be read")]
    if broken:
        messages.warning(f"{count(len(broken), 'tensor')} can't be read. The first: {broken[0].name} {broken[0].reason}")
    with st.container(horizontal=True):
        with st.popover(f"{count(len(alone), 'tensor')} not measured", disabled=not alone):
            st.markdown("\n".join(f"- {messages.plain(printable(f'{row.name} {row.reason}', 400))}" for row in alone[:LISTED]))
            if len(alone) > LISTED:
                st.caption(f"{len(alone) - LISTED:,} more; the table to download has all.")
        if found.imatrix is not None:
            _coverage(found)
        if found.table.is_finished:
            frame = pd.DataFrame(found.table.as_rows())
            tables.downloads(frame, frame[["tensor", "scheme", "sqnr_db", "mse", "bits_per_weight"]], "sensitivity")


def _coverage(found: SharedTable) -> None:
    rows = [row for row in found.table.ordered if row.cells]
    lacking = [row for row in rows if all(math.isnan(cell.output_error) for cell in row.cells)]
    with st.popover(f"imatrix: {len(rows) - len(lacking):,} of {count(len(rows), 'weight')}"):
        listed = [printable(f"{row.name}: {row.coverage or 'has an entry'}", 400) for row in [*lacking, *rows][:LISTED]]
        st.markdown("\n".join(f"- {messages.plain(line)}" for line in listed))
