"""How a comparison is shown: metric, order, filter, and which part of it."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.shared.state import choice
from quantcore.figures import HARM_AXES

EXAMPLE = "chgnet-w4a16"  # compared until two checkpoints are chosen
METRIC, SORT, FILTER, PART = "cmp_metric", "cmp_sort", "cmp_filter", "cmp_part"
HARM, LAYER, BYTES, BITS = "Harm", "Layer", "Bytes", "Bits per weight"
SORTS = {
    HARM: "largest error first",
    LAYER: "by layer",
    BYTES: "largest first",
    BITS: "fewest bits first",
}
TENSORS, BLOCKS, REMARKS = "Tensors", "Worst blocks", "Remarks"
PARTS = {name: name for name in (TENSORS, BLOCKS, REMARKS)}
DEFAULTS: dict[str, Any] = {METRIC: "sqnr_db", SORT: HARM, FILTER: "", PART: TENSORS}
KEYS = set(DEFAULTS)
REQUIRED = {METRIC, SORT, PART}
FREE_TEXT = {FILTER}


@dataclass(frozen=True)
class Chosen:
    """The values of the controls."""

    metric: str
    sort: str
    words: str


def draw() -> Chosen:
    """Draw the controls of the chart and the tables."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        labels = {name: label for name, (label, _) in HARM_AXES.items()}
        metric = choice.segmented("Metric", METRIC, labels, default=DEFAULTS[METRIC], width="content")
        sort = choice.segmented("Sort by", SORT, {name: name.lower() for name in SORTS}, width="content")
        words = st.text_input(
            "Filter", key=FILTER, max_chars=500, bind="query-params",
            placeholder="words that a row must contain, such as attn_k Q4_K",
        )  # fmt: skip
    return Chosen(metric, sort, words)
