"""The chosen cell: why this weight loses that much under this scheme, its maps, and the way to its checkpoint."""

import math

import streamlit as st
import torch

from pages.maps import four_maps
from pages.models import opening
from pages.models.opening.controls import SLOTS, TENSOR
from pages.models.sensitivity import controls
from pages.models.sensitivity.run import SharedTable
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore.layerwise import Traits, WeightRow, traits
from quantcore.wording import count

MAPPED = 1 << 24  # elements; larger weights have no maps here


def draw(found: SharedTable) -> None:
    """Draw the cell that was clicked, or the one with the lowest SQNR: why it loses that much, and its maps."""
    chosen = controls.chosen_cell(found.table.schemes, [row for row in found.rows if row.cells])
    if chosen is None:
        return
    row, at = chosen
    scheme, held = found.schemes[at], found.opened.checkpoint.tensors[row.name]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader("Why this one", anchor=False)
        st.button("Open in Checkpoint", on_click=_open, args=(row.name,), type="tertiary", help="This weight as it is stored, down to the bits")
    st.markdown(f"**{messages.plain(row.name)}** under `{found.table.schemes[at]}`: {messages.plain(row.cells[at].said)}.")
    if row.cells[at].problem:
        return
    if row.elements > MAPPED:
        st.caption(f"A weight of more than {MAPPED:,} elements has no maps here; Checkpoint shows its rows.")
        return
    key, load = f"{found.opened.key} {held.name}", lambda: held.read().numpy()
    tensor = PageTensor(key, held.name, held.shape, load, stored=held.dtype)
    of_values = cache.cached_small(tensor, "traits", lambda: traits(torch.from_numpy(cache.values(tensor))))
    st.markdown(messages.plain(why(of_values, row, at)))
    maps = st.container(gap="xxsmall")
    view, shown = four_maps.controls(tensor, scheme, cache.report(tensor, scheme), maps)
    four_maps.draw(maps, tensor, cache.result(tensor, scheme), view, shown)


def why(found: Traits, row: WeightRow, at: int) -> str:
    """Say what about the values of a weight matters for its error; each sentence is true of every weight."""
    cell = row.cells[at]
    outliers = (
        f"No column is an outlier: in none of {found.columns:,} is max |x| above 3 times that of the median column."
        if not found.outlier_columns
        else f"{count(found.outlier_columns, 'outlier column')} of {found.columns:,} (max |x| above 3 times that of the median "
        f"column); the largest is column {found.largest_column:,}."
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


def _open(name: str) -> None:
    """Open a weight on the page Checkpoint (a callback)."""
    if not st.session_state.get(SLOTS[""]):
        st.session_state[SLOTS[""]] = f"{opening.EXAMPLE}{controls.EXAMPLE}"
    opening.show_tensor("sensitivity", opening.IMATRIX_KEYS | controls.KEYS, {TENSOR: name})
