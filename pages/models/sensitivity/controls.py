"""What the page is asked: the schemes, the order of the weights, the chosen cell, and the budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

import quantcore as qc
from pages.shared.state import choice

if TYPE_CHECKING:  # `PAGE` needs the keys, and is imported with the first page
    from quantcore.layerwise import WeightRow

EXAMPLE = "chgnet"  # measured until a checkpoint is chosen
PRESETS, MORE, SORT, KINDS = "sn_presets", "sn_more", "sn_sort", "sn_kinds"
TENSOR, SCHEME = "sn_tensor", "sn_scheme"
UNIT, BITS, SIZE, ERROR, MINIMUM = "sn_unit", "sn_bits", "sn_gb", "sn_error", "sn_minimum"
MODEL, HARM = "model", "harm"
SORTS = {MODEL: "as in the model", HARM: "lowest SQNR first"}
PER_WEIGHT, GIGABYTES = "bits", "gb"
UNITS = {PER_WEIGHT: "bits per weight", GIGABYTES: "GB"}
LABELS = {
    "relative": "error / weight power",
    "absolute": "error",
    "output": "output error",
    "output_relative": "output error / output power",
}
DEFAULTS: dict[str, Any] = {
    PRESETS: [], SORT: MODEL, KINDS: False, TENSOR: "", SCHEME: "", UNIT: PER_WEIGHT, BITS: 6.0, SIZE: 1.0,
    ERROR: "relative", MINIMUM: "",
}  # fmt: skip
KEYS = {MORE, *DEFAULTS}
FIRST_DRAWN = {PRESETS, MORE, TENSOR, SCHEME}
REQUIRED = {SORT, UNIT, ERROR}
FREE_TEXT = {MORE, TENSOR, SCHEME, MINIMUM}


def schemes() -> list[qc.Scheme]:
    """Draw the choice of schemes and return them, without duplicates.

    Raises:
        QuantError: a typed scheme is invalid.
    """
    left, right = st.columns([3, 2])
    more = left.text_input(
        "Schemes (separate with ;)", qc.layerwise.USUAL, key=MORE, bind="query-params", max_chars=2000,
        placeholder="int4 asymmetric per_group(32) torchao; e4m3fn per_channel",
        help="Up to 12 schemes in text form, with any range setting, as shown at the top of Explore.",
    )  # fmt: skip
    presets = right.multiselect("Add presets", list(qc.PRESETS), key=PRESETS, bind="query-params")
    chosen: list[qc.Scheme] = qc.layerwise.schemes_of("; ".join([more or "", *presets]))
    return chosen


@dataclass(frozen=True)
class WeightOrder:
    """How weights are sorted: ``by_harm``, else as in the model; ``by_kind``: grouped."""

    by_harm: bool
    by_kind: bool

    def sort(self, rows: "Sequence[WeightRow]") -> "list[WeightRow]":
        """Return the rows in this order."""
        found = qc.layerwise.by_harm(rows) if self.by_harm else list(rows)
        kinds = list(dict.fromkeys(row.kind for row in found if self.by_kind))
        return sorted(found, key=lambda row: kinds.index(row.kind)) if kinds else found


def order() -> WeightOrder:
    """Draw the choice of the order, by harm under the first scheme."""
    with st.container(horizontal=True, vertical_alignment="center"):
        chosen = choice.segmented("Order", SORT, SORTS, width="content", label_visibility="collapsed")
        hint = "q, k, v; o; gate, up; down; experts; embeddings; others by name"
        grouped = st.checkbox("Group by kind", key=KINDS, bind="query-params", help=hint)
    return WeightOrder(chosen == HARM, grouped)


def chosen_cell(schemes: Sequence[str], rows: "Sequence[WeightRow]") -> "tuple[WeightRow, int] | None":
    """Return row and scheme position of the clicked cell; by default of that with the lowest SQNR."""
    row = next((row for row in rows if row.name == st.session_state.get(TENSOR)), None)
    if row is not None and st.session_state.get(SCHEME) in schemes:
        return row, schemes.index(st.session_state[SCHEME])
    every = ((cell.sqnr_db, row, i) for row in rows for i, cell in enumerate(row.cells))
    known = [each for each in every if not math.isnan(each[0])]
    return min(known, key=lambda each: each[0])[1:] if known else None


def choose(tensor: str, scheme: str) -> None:
    """Show why a weight loses what it does under a scheme, and its maps (a callback)."""
    part = dict.fromkeys(("cell", "rows", "cols", "at"), "")
    st.session_state.update({TENSOR: tensor, SCHEME: scheme} | part)


@dataclass(frozen=True)
class Budget:
    """What schemes are chosen for: at most ``size`` bytes, the summed ``error``, least bits by name."""

    size: float
    error: str
    minimum: str


def budget(elements: int, has_inputs: bool) -> Budget:
    """Draw the budget and return it.

    Args:
        elements: of all weights.
        has_inputs: whether an imatrix is open.
    """
    with st.container(horizontal=True, vertical_alignment="bottom"):
        unit = choice.segmented("Budget in", UNIT, UNITS, width="content")
        if unit == PER_WEIGHT:
            key, least, most, step, shown = BITS, 0.1, 64.0, 0.25, None
            what = "Bits per weight of the whole model"
        else:
            key, least, most, step, shown = SIZE, 1e-6, 1e5, 0.1, "%.6g"
            what = "GB (10⁹ bytes) of all weights"
        limit = st.number_input(
            "At most", least, most, DEFAULTS[key], step, format=shown, key=key, bind="query-params",
            width=140,
            help=f"{what}, including scales, zero points, and weights that are left alone",
        )  # fmt: skip
        names = LABELS if has_inputs else {name: LABELS[name] for name in ("relative", "absolute")}
        help_ = "; ".join(f"{LABELS[name]}: {qc.layerwise.ERRORS[name]}" for name in names)
        help_ += ". Divided, every weight counts alike, whatever its size."
        error = choice.segmented("Keep low", ERROR, names, width="content", help=help_)
        minimum = st.text_input(
            "At least (bits per weight)",
            key=MINIMUM,
            bind="query-params",
            max_chars=1000,
            width=260,
            placeholder="*lm_head*=8; *=4",
            help="Schemes with fewer bits are not chosen for weights whose names fit a pattern, in which * "
            "stands for any characters.",
        )
    return Budget(limit * (elements / 8 if unit == PER_WEIGHT else 1e9), error, minimum or "")
