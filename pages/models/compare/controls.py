"""How a comparison is shown: metric, order, filter, and which part of it."""

from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.shared.state import link
from quantcore.figures import HARM_AXES

EXAMPLE = "chgnet-w4a16"  # compared until two checkpoints are chosen
_BIND: dict[str, Any] = {"bind": "query-params"}
METRIC, SORT, FILTER, PART = "cmp_metric", "cmp_sort", "cmp_filter", "cmp_part"
HARM, LAYER, BYTES, BITS = "Harm", "Layer", "Bytes", "Bits per weight"
SORTS = {
    HARM: "the most harmed first",
    LAYER: "by layer",
    BYTES: "the largest first",
    BITS: "the fewest bits first",
}
SORT_WORDS = {name: name.lower() for name in SORTS}
TENSORS, BLOCKS, REMARKS = "Tensors", "Worst blocks", "Remarks"
PARTS = [TENSORS, BLOCKS, REMARKS]
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
        with link.named(METRIC, labels):
            metric = st.segmented_control(
                "Metric", list(labels), default=DEFAULTS[METRIC], format_func=labels.__getitem__, key=METRIC,
                required=True, width="content", **_BIND,
            )  # fmt: skip
        with link.named(SORT, SORT_WORDS):
            sort = st.segmented_control(
                "Sort by", list(SORTS), default=DEFAULTS[SORT], format_func=SORT_WORDS.__getitem__, key=SORT,
                required=True, width="content", **_BIND,
            )  # fmt: skip
        words = st.text_input(
            "Filter", key=FILTER, max_chars=500, **_BIND,
            placeholder="words that a row must contain, such as attn_k Q4_K",
        )  # fmt: skip
    return Chosen(str(metric), str(sort), words)


def part() -> str:
    """Draw the choice of what is shown below the chart."""
    return str(
        st.segmented_control(
            "Show",
            PARTS,
            default=DEFAULTS[PART],
            key=PART,
            required=True,
            label_visibility="collapsed",
            **_BIND,
        )
    )


def keep() -> None:
    """Keep the values of controls that this run does not draw."""
    for key in KEYS & set(st.session_state):
        st.session_state[key] = st.session_state[key]
