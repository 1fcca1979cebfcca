"""The results: the picture of all weights, why the chosen cell loses that much, and what fits the budget.

The picture has weights in rows, schemes in columns, and the SQNR as color; a click on a cell chooses it.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from pages.maps import four_maps
from pages.models.sensitivity import controls, ways
from pages.models.sensitivity.controls import Budget, WeightOrder
from pages.models.sensitivity.run import SharedTable
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore.errors import QuantError
from quantcore.figures import short_scheme, size_curve
from quantcore.layerwise import (
    ERRORS,
    LOCAL,
    Plan,
    Traits,
    WeightRow,
    check_size,
    dtype_of,
    groups_of,
    minimum_of,
    not_measured,
    picture,
    plan,
    trade_off,
    traits,
)
from quantcore.recipes import TOOLS, ToolRecipe, ftype_points, recipe
from quantcore.wording import count, printable

_COMPONENT = st.components.v2.component(
    "quantscope_layers",
    html='<div class="qs-layers"></div>',
    css=picture.STYLE,
    js=Path(__file__).with_name("layers.js").read_text(encoding="utf-8"),
    isolate_styles=False,
)
DRAWN = 400  # rows in the picture
LISTED = 50  # reasons
_FILES = (
    " llama.cpp's file types are told from headers, without an imatrix; their errors are known where the "
    "schemes include all their types, such as gguf.Q4_K."
)
MAPPED = 1 << 24  # elements; larger weights have no maps here


def layers(found: SharedTable, order: WeightOrder, taken: Mapping[str, str]) -> None:
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
        said.append(
            f"{count(guessed, 'weight')} estimated from some rows, ± half of the 95 % interval, until the "
            "exact numbers replace them."
        )
    if len(rows) > DRAWN:
        said.append(f"The first {DRAWN:,} weights are drawn; the table to download has all.")
    st.caption(" ".join([*said, "Click a cell to see why it loses that much."]))
    shown = order.sort(rows)[:DRAWN]
    chosen = controls.chosen_cell(found.table.schemes, rows)

    def picked() -> None:
        if place := st.session_state["sn_picture"].picked:
            row, column = map(int, place)
            controls.choose(shown[row].name, found.table.schemes[column])

    table = picture.layers(shown, found.table.schemes, order.by_kind, chosen, taken)
    data = {"table": table, "chosen": st.session_state.get(controls.TENSOR) or ""}

    _COMPONENT(key="sn_picture", data=data, on_picked_change=picked)


def live(found: SharedTable, order: WeightOrder) -> None:
    """Draw what is known so far; clicks do nothing."""
    rows = order.sort([row for row in found.rows if row.cells])[:DRAWN]
    table = picture.layers(rows, found.table.schemes, order.by_kind)
    st.html(f'<style>{picture.STYLE}</style><div class="qs-layers" data-live>{table}</div>')


def beneath(found: SharedTable, order: WeightOrder, taken: Mapping[str, str]) -> None:
    """List the weights that are not measured and what the imatrix has, and draw the downloads."""
    alone = [row for row in found.rows if row.reason]
    broken = [row for row in alone if not row.is_readable]
    if broken:
        messages.warning(
            f"{count(len(broken), 'tensor')} can't be read. The first: {broken[0].name} {broken[0].reason}"
        )
    measured = [row for row in found.table.ordered if row.cells]
    with st.container(horizontal=True):
        with st.popover(f"{count(len(alone), 'tensor')} not measured", disabled=not alone):
            _listed(not_measured(alone))
        if found.imatrix is not None:
            without_first = sorted(measured, key=_has_entry)
            entries = sum(map(_has_entry, measured))
            with st.popover(f"imatrix: {entries:,} of {count(len(measured), 'weight')}"):
                _listed([f"{row.name}: {row.coverage or 'has an entry'}" for row in without_first])
        if found.table.is_finished:
            make = partial(picture.document, order.sort(measured), found.table.schemes, order.by_kind, taken)
            st.download_button("Picture (HTML)", make, "sensitivity.html", "text/html", on_click="ignore")
            frame = pd.DataFrame(found.table.as_rows())
            shown = ["tensor", "scheme", "sqnr_db", "mse", "bits_per_weight"]
            tables.downloads(frame, frame[shown], "sensitivity")


def _has_entry(row: WeightRow) -> bool:
    return any(not math.isnan(cell.output_error) for cell in row.cells)


def _listed(lines: Sequence[str]) -> None:
    st.markdown("\n".join(f"- {messages.plain(printable(line, 400))}" for line in lines[:LISTED]))
    if len(lines) > LISTED:
        st.caption(f"{len(lines) - LISTED:,} more; the table to download has all.")


def cell(found: SharedTable) -> None:
    """Draw the cell that was clicked, or that with the lowest SQNR: why it loses that much, and its maps."""
    chosen = controls.chosen_cell(found.table.schemes, [row for row in found.rows if row.cells])
    if chosen is None:
        return
    row, at = chosen
    scheme, held = found.schemes[at], found.opened.checkpoint.tensors[row.name]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("Why this one", anchor=False)
        hint = "This weight as it is stored, down to the bits"
        st.button(
            "Open in Checkpoint", on_click=ways.checkpoint, args=(row.name,), type="tertiary", help=hint
        )
        beside = st.container(width="content")
    name, said = messages.plain(row.name), messages.plain(row.cells[at].said.removesuffix("."))
    dtype = dtype_of(held.layout)
    dtype_name = str(dtype).removeprefix("torch.")
    is_own = not row.cells[at].problem and scheme.in_dtype(dtype) is not scheme
    computed = f", computed in {dtype_name}" if is_own else ""
    st.markdown(f"**{name}** under `{found.table.schemes[at]}`{computed}: {said}.")
    if row.cells[at].problem:
        return
    if row.elements > MAPPED:
        st.caption(f"A weight of more than {MAPPED:,} elements has no maps here; Checkpoint shows its rows.")
        return
    key, read = f"{found.opened.key} {held.name}", lambda: held.read().numpy()
    tensor = PageTensor(key, held.name, held.shape, read, stored=held.dtype, dtype=dtype_name)
    if len(tensor.shape) == 2:
        hint = "What this error does to the layer's output x·wᵀ"
        way = partial(ways.layer, found, tensor, scheme)
        beside.button("Open in Layer", on_click=way, type="tertiary", help=hint)
    of_values = cache.cached_small(tensor, "traits", lambda: traits(cache.values(tensor)))
    st.markdown(messages.plain(why(of_values, row, at)))
    maps = st.container(gap="xxsmall")
    view, _ = four_maps.controls(tensor, scheme, cache.report(tensor, scheme), maps)
    four_maps.draw(maps, tensor, scheme, view)


def why(found: Traits, row: WeightRow, at: int) -> str:
    """Say what about the values of a weight matters for its error; each sentence is true of every weight."""
    cell = row.cells[at]
    columns, above = f"{found.columns:,}", "max |x| above 3 times that of the median column"
    outliers = f"No column is an outlier: in none of {columns} is {above}."
    if found.outlier_columns:
        outliers = (
            f"{count(found.outlier_columns, 'outlier column')} of {columns} ({above}); "
            f"the largest is column {found.largest_column:,}."
        )
    said = [outliers]
    if not math.isnan(found.kurtosis):
        said.append(f"Kurtosis {found.kurtosis:#.3g} (normal distribution: 3).")
    if not math.isnan(found.peak):
        said.append(f"The largest |x| is {found.peak:.3g} times the RMS.")
    if cell.clipped is not None:
        part = f" ({100 * cell.clipped / row.elements:.2g} %)" if cell.clipped else ""
        said.append(f"Clipped: {cell.clipped:,} of {count(row.elements, 'element')}{part}.")
    return " ".join(said)


def budget_asked(found: SharedTable) -> Budget:
    """Draw the budget and return it; say, from headers alone, if nothing fits."""
    elements = sum(row.elements for row in found.outlined.ordered)
    own = controls.budget(elements, found.imatrix is not None)
    try:
        check_size(found.outlined, own.size, minimum_of(own.minimum))
    except QuantError as reason:
        messages.error(str(reason))
    return own


def best(found: SharedTable, own: Budget) -> Plan | None:
    """Return the choice within the budget if something fits, once everything is measured."""
    if not found.table.is_finished:
        return None
    make = lambda: plan(found.table, own.size, own.error, minimum=minimum_of(own.minimum))  # noqa: E731
    try:
        return cache.cached_small(cache.CacheKey(found.key), f"plan {own}", make)
    except QuantError:  # nothing fits, as `budget_asked` says, or the table lacks the error, as `sizes` says
        return None


def answer(found: SharedTable, chosen: Plan | None, own: Budget) -> None:
    """Say what is chosen within the budget, once everything is measured."""
    if chosen is not None:
        st.markdown(messages.plain(f"{chosen.said}; the error is {ERRORS[own.error]}."))
        if chosen.is_local:
            st.caption(messages.plain(LOCAL))
        recipes(found, chosen, own)
    elif not found.table.is_finished:
        st.caption("The choice needs the exact errors of all weights.")


def recipes(found: SharedTable, chosen: Plan, own: Budget) -> None:
    """Draw a button per tool that downloads the choice as its recipe, and say what the other tools lack."""
    checkpoint = found.opened.checkpoint

    def make() -> dict[str, ToolRecipe | str]:
        of_tools: dict[str, ToolRecipe | str] = {}
        for tool in TOOLS:
            try:
                of_tools[tool] = recipe(chosen, tool, checkpoint, found.table)
            except QuantError as reason:
                of_tools[tool] = str(reason)
        return of_tools

    made = cache.cached_small(cache.CacheKey(found.key), f"recipes {own}", make)
    with st.container(horizontal=True, vertical_alignment="center", key="sn_recipes"):
        st.caption("Recipe for", width="content")
        lacking = [one for one in made.values() if isinstance(one, str)]
        for tool, one in made.items():
            if not isinstance(one, str):
                said = "The choice in the form that this tool reads; how it rounds is its own"
                st.download_button(
                    tool, one.text, one.file, help=said, on_click="ignore", key=f"sn_recipe_{tool}"
                )
        if lacking:
            with st.popover(f"{count(len(lacking), 'tool')} can't take it", key="sn_recipes_lacking"):
                _listed(lacking)


def _file_types(found: SharedTable, error: str) -> dict[str, tuple[float, float]]:
    """Return the file types of llama.cpp for a model whose tensors it knows, and none for others."""

    def make() -> dict[str, tuple[float, float]]:
        try:
            return ftype_points(found.opened.checkpoint, found.table, error)
        except QuantError:
            return {}

    return cache.cached_small(cache.CacheKey(found.key), f"file types {error}", make)


def sizes(found: SharedTable, chosen: Plan | None, own: Budget) -> None:
    """Draw the error against the size, and the scheme of each group, once everything is measured."""
    if not found.table.is_finished:
        return
    error, minimum = own.error, own.minimum if chosen else ""
    make = lambda: trade_off(found.table, error, minimum_of(minimum))  # noqa: E731
    try:
        curve = cache.cached_small(cache.CacheKey(found.key), f"curve {error} {minimum}", make)
    except QuantError as reason:
        messages.error(str(reason))
        return
    st.subheader("Error against size", anchor=False)
    left, right = st.columns([3, 2])
    with left:
        ring = None if chosen is None else (chosen.num_bytes, chosen.error)
        files = _file_types(found, error)
        figure = size_curve(curve.best, curve.uniform, ring, files=files, label=ERRORS[error], theme=theme())
        charts.draw(figure, "Error of the choices of every size", key="sn_curve")
        st.caption(
            "One scheme for all: weights that it does not fit, or that must have more bits, stay as they "
            "are stored." + _FILES * bool(files)
        )
    if chosen is not None:
        frame = pd.DataFrame(
            {
                "Group": printable(name, 200),
                "Scheme": short_scheme(chosen.schemes[rows[0].name]),
                "Weights": len(rows),
                "Elements": sum(row.elements for row in rows),
            }
            for name, rows in groups_of(found.table).items()
        )
        number = st.column_config.NumberColumn(format="localized")
        group = st.column_config.TextColumn(width="medium")
        config: dict[str, Any] = {"Group": group, "Weights": number, "Elements": number}
        each = pd.DataFrame(list(chosen.schemes.items()), columns=["tensor", "scheme"])
        with right:
            st.dataframe(frame, hide_index=True, height=360, column_config=config)
            tables.downloads(each, each, "schemes")
