"""The picture: weights in rows, schemes in columns, the SQNR as color; a click on a cell chooses it."""

import html
import math
from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.models.sensitivity import controls
from pages.models.sensitivity.run import SharedTable
from pages.shared import charts, messages, tables
from pages.shared.theme import theme
from quantcore.analysis import decibels
from quantcore.figures.checkpoints import layers
from quantcore.layerwise import Cell, Row
from quantcore.wording import count, printable

CHART, DRAWN = "sn_chart", 400  # rows in the picture
LISTED = 50  # reasons
_HIGH = 560  # px; more rows are scrolled


def draw(found: SharedTable) -> None:
    """Draw the picture of all that is known, what is estimated and what is left alone."""
    rows = [row for row in found.rows if row.cells]
    estimates = found.estimates()
    if not rows:
        messages.warning("No weight of this checkpoint can be quantized; the reasons are below.")
    else:
        shown = controls.order(rows, found.table.schemes[0])
        guessed = sum(row.name in estimates for row in rows)
        exact = "Each number is exact." if not guessed else (
            f"{count(guessed, 'weight')} estimated from some rows, ± half of the 95 % interval; the exact numbers replace them."
        )  # fmt: skip
        st.caption(
            f"SQNR (dB) of {count(len(rows), 'weight')} under {count(len(found.schemes), 'scheme')}. {exact} "
            "Empty: the scheme does not fit. Click a cell to see why it loses that much."
        )
        _picture(found, shown[:DRAWN])
        if len(shown) > DRAWN:
            st.caption(f"The first {DRAWN:,} of {len(shown):,} are drawn; the table to download has all.")
    _left_alone(found)


def live(found: SharedTable) -> None:
    """Draw what is known so far, in the order of the model; clicks do nothing."""
    rows = [row for row in found.rows if row.cells][:DRAWN]
    with st.container(height=_HIGH, border=False):
        charts.draw(_figure(found, rows), theme=None, key=f"_sn_live_{len(found.table.rows)}_{len(rows)}")


def _picture(found: SharedTable, rows: Sequence[Row]) -> None:
    targets = [(row.name, scheme) for row in rows for scheme in found.table.schemes]
    figure = _figure(found, rows)
    with st.container(height=min(_HIGH, int(figure.layout.height) + 20), border=False, key="sn_picture"):
        charts.clickable(figure, CHART, targets, controls.choose)


def _figure(found: SharedTable, rows: Sequence[Row]) -> go.Figure:
    """The heat map, with its numbers, and over it a point per cell: heat maps report no clicks."""
    table = found.table
    values = [[cell.sqnr_db for cell in row.cells] for row in rows]
    names = [row.name.removesuffix(".weight") for row in rows]
    figure = layers(names, table.schemes, values, theme=theme())
    figure.update_traces(
        hoverinfo="skip", hovertemplate=None, text=[[_number(cell) for cell in row.cells] for row in rows], texttemplate="%{text}"
    )
    columns, lines = figure.data[0].x, figure.data[0].y
    figure.add_scatter(
        x=[column for _ in rows for column in columns], y=[line for line in lines for _ in columns], mode="markers",
        marker={"symbol": "square", "size": 16, "opacity": 0}, customdata=list(range(len(rows) * len(columns))),
        text=[_told(row, scheme, cell) for row in rows for scheme, cell in zip(table.schemes, row.cells, strict=True)],
        hovertemplate="%{text}<extra></extra>", selected={"marker": {"opacity": 0}}, unselected={"marker": {"opacity": 0}},
    )  # fmt: skip
    figure.update_layout(hoverdistance=-1, hovermode="closest", clickmode="event+select", dragmode=False)
    return figure


def _number(cell: Cell) -> str:
    if cell.problem or math.isnan(cell.sqnr_db):
        return ""
    half = (cell.sqnr_high - cell.sqnr_low) / 2
    return f"{cell.sqnr_db:.1f}" + (f" ± {half:.1f}" if half > 0 and math.isfinite(half) else "")


def _told(row: Row, scheme: str, cell: Cell) -> str:
    lines = [f"<b>{html.escape(printable(row.name, 120))}</b>", f"{html.escape(printable(row.kind, 80))}, {'×'.join(map(str, row.shape))}"]
    return "<br>".join([*lines, html.escape(printable(scheme)), html.escape(sqnr_text(cell))])


def sqnr_text(cell: Cell) -> str:
    """The SQNR with its interval, or why there is none."""
    if cell.problem:
        return cell.problem
    between = f" (95 % interval {decibels(cell.sqnr_low)} to {decibels(cell.sqnr_high)})"
    return f"SQNR {decibels(cell.sqnr_db)}{between if cell.sqnr_low < cell.sqnr_high else ''}"


def _left_alone(found: SharedTable) -> None:
    """List the weights that are not measured, what the imatrix has, and the downloads."""
    alone = [row for row in found.rows if row.reason]
    broken = [row for row in alone if row.reason.startswith("can't be read")]
    if broken:
        messages.warning(f"{count(len(broken), 'tensor')} can't be read. The first: {broken[0].name} {broken[0].reason}")
    with st.container(horizontal=True):
        with st.popover(f"{count(len(alone), 'tensor')} left alone", disabled=not alone):
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
        st.markdown("\n".join(f"- {messages.plain(printable(f'{row.name}: {row.coverage}', 400))}" for row in [*lacking, *rows][:LISTED]))
