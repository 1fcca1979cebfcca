"""What a comparison found: a summary, a chart, tables of tensors and of the worst blocks, and remarks."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.maps.places import index_text, span_text
from pages.models import keys, opening
from pages.models.keys import CELL, COLUMNS, ROWS, SLOTS, TENSOR
from pages.models.opening import examples
from pages.models.opening.compared import SharedComparison
from pages.models.two_checkpoints import controls
from pages.models.two_checkpoints.controls import Chosen
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.state import choice
from quantcore import figures
from quantcore.checkpoints.comparison import TensorResult, Unpaired, by_harm, schemes_of, summary
from quantcore.wording import count

CHART, TABLE, BLOCKS = "cmp_chart", "cmp_table", "cmp_blocks"
NAME = "Error of each tensor"  # of the chart
DRAWN = 2000  # circles in the chart
LISTED = 100  # worst blocks, and remarks of each kind
SCHEMES = 3  # pairs of schemes that are named
AROUND = 32  # rows shown above and below a place
SHOWN = [
    "tensor", "sqnr_db", "mse", "max_abs_error", "cosine", "bits_per_weight", "original_bits_per_weight",
    "bytes", "shape", "storage", "worst_block", "worst_block_sqnr_db", "different", "nonfinite", "order",
    "original", "remark",
]  # fmt: skip
HEADS = {
    "tensor": "Tensor", "bits_per_weight": "Bits per weight", "original_bits_per_weight": "Original's bits",
    "bytes": "Bytes", "shape": "Shape", "storage": "Storage", "worst_block": "Worst block at",
    "worst_block_sqnr_db": "Its SQNR (dB)", "different": "Values that differ",
    "nonfinite": "NaN and infinite", "order": "Rows", "original": "Original", "remark": "Remark",
    "place": "At", "columns": "Columns", "share": "Share of Σ error²", "tensor's": "SQNR of the tensor (dB)",
}  # fmt: skip
Target = tuple[str, tuple[int, ...] | None, int]  # tensor, index of an element, columns of a block


def pairs_told(found: SharedComparison) -> None:
    """Warn if no tensors are paired, and of those that have no partner or can't be compared."""
    pairing = found.comparison.pairing
    if not pairing.pairs:
        messages.warning(
            "No tensor of one checkpoint can be paired with one of the other; check that both are the same "
            "model."
        )
    alone = [u for u in pairing.unpaired if u.is_weight]
    if alone:
        first = f" {alone[0].reason}" if len(alone) == 1 else f" The first: {alone[0].reason}"
        have = "has" if len(alone) == 1 else "have"
        messages.warning(f"{count(len(alone), 'tensor')} {have} no partner, or can't be compared.{first}")


def results(found: SharedComparison, chosen: Chosen) -> None:
    """Draw all that is known."""
    known = found.results
    if not known:
        if found.comparison.pairing.unpaired:
            _remarks(known, found.comparison.pairing.unpaired)
        return
    counts = {
        "compared with a different row order or a shift undone": sum(r.order != "as stored" for r in known),
        "compared without their NaN or infinite elements": sum(any(r.nonfinite.values()) for r in known),
        "not compared": sum(bool(r.problem) for r in known),
    }
    told = [f"{count(n, 'tensor')} {'is' if n == 1 else 'are'} {what}" for what, n in counts.items() if n]
    rows = rows_of(known, chosen)
    figure = None if rows.empty else _harm(rows, chosen)
    with st.container(gap="xxsmall"):
        st.markdown(messages.plain(summary(known) + (f" {'; '.join(told)}: see Remarks." if told else "")))
        _why(found, known)
        if figure is not None:
            st.caption(figure.layout.meta["caption"])
            charts.clickable(figure, NAME, CHART, tuple(rows.head(DRAWN)["place"]), _open)
    with st.container(horizontal=True, vertical_alignment="center"):
        part = choice.segmented("Show", controls.PART, controls.PARTS, label_visibility="collapsed")
        what = "a row" if rows.empty else "a mark of the chart or a row"
        st.caption(f"Click {what} to open the tensor there, with the original next to it.")
    if part == controls.TENSORS:
        _table(rows[SHOWN], TABLE, tuple(rows["place"]))
    elif part == controls.BLOCKS:
        _blocks(known, chosen)
    else:
        _remarks(known, found.comparison.pairing.unpaired)
    frame = rows.drop(columns="place")
    tables.downloads(frame, frame[SHOWN], "comparison", head)


def _why(found: SharedComparison, known: Sequence[TensorResult]) -> None:
    """Tell how both sides are stored, and why the tensor with the largest error differs, if scales tell."""
    stored = schemes_of(known)
    more = f"; {len(stored) - SCHEMES:,} more pairs of schemes" if len(stored) > SCHEMES else ""
    said = ["; ".join(stored[:SCHEMES]) + more + " (A: the original)."]
    worst = by_harm(known)[0]
    key = cache.CacheKey(f"why {found.key} | {worst.other_tensor}", 100)
    reason = cache.cached_small(key, "why", lambda: found.comparison.why(worst))
    if reason is not None:
        said.append(reason.about(worst.other_tensor))
    st.caption(messages.plain(" ".join(said)))


def live(found: SharedComparison, chosen: Chosen) -> None:
    """Draw the harm of each tensor compared so far; clicks do nothing while the comparison is running."""
    rows = rows_of(found.results, chosen)
    figure = _harm(rows, chosen)
    with st.container():  # the place holds one element
        st.caption(figure.layout.meta["caption"])
        charts.draw(figure, NAME, key=f"_cmp_live_{len(found.results)}")


def _harm(rows: pd.DataFrame, chosen: Chosen) -> go.Figure:
    shown = rows.head(DRAWN)
    order = controls.SORTS[chosen.sort] + (f" ({len(rows):,} in all)" if len(rows) > DRAWN else "")
    worst_first = chosen.sort == controls.HARM
    return figures.harm(shown, chosen.metric, order=order, worst_first=worst_first, theme=theme())


def _blocks(known: Sequence[TensorResult], chosen: Chosen) -> None:
    """Draw the blocks with the largest squared errors of all tensors."""
    total = sum(r.squared_error for r in known)
    words = chosen.words.lower().split()
    found = [
        (block.mse * block.columns, r, block)
        for r in known
        for block in r.worst
        if all(word in f"{r.name} {r.original} {r.storage[1]}".lower() for word in words)
    ]
    found.sort(key=lambda item: -item[0])
    rows = [
        {
            "tensor": r.name, "place": ", ".join(map(str, block.other_index)), "columns": block.columns,
            "sqnr_db": block.sqnr_db, "mse": block.mse, "share": sse / total if total else np.nan,
            "tensor's": r.sqnr_db, "storage": r.storage[1],
        }
        for sse, r, block in found[:LISTED]
    ]  # fmt: skip
    if not rows:
        st.caption("No tensor shown has an error.")
        return
    places = tuple((r.other_tensor, block.other_index, block.columns) for _, r, block in found[:LISTED])
    _table(pd.DataFrame(rows), BLOCKS, places)
    st.caption(
        "The largest squared errors, from the five worst blocks of each pair; a block is up to 256 columns "
        "of a row."
    )


def _table(frame: pd.DataFrame, key: str, places: tuple[Target, ...]) -> None:
    """Draw a table; a click on any cell opens the tensor of its row."""
    heads = {name: head(name) for name in frame.columns}
    config: dict[str, Any] = {
        "tensor": st.column_config.TextColumn(HEADS["tensor"], width="large"),
        "share": st.column_config.NumberColumn(HEADS["share"], format="percent"),
    }
    for name in ("sqnr_db", "worst_block_sqnr_db", "tensor's"):
        if name in frame:
            frame, config[name] = tables.sqnr_column(frame, name, heads[name])
    config |= tables.columns(frame, heads=heads, skip=config)
    tables.clickable(frame, key, places, _open, column_config=config)


def _open(place: Target) -> None:
    """Open a tensor of the checkpoint at a place, with the original next to it (a callback)."""
    tensor, index, columns = place
    if not any(st.session_state.get(key) for key in (SLOTS[""], SLOTS["original"])):
        examples.choose(controls.EXAMPLE)
    where = {TENSOR: tensor}
    if index:
        where[CELL] = index_text(index)
    if index and len(index) > 1:
        row, column = index[-2:]
        where[ROWS] = span_text((max(0, row - AROUND), row + AROUND))
        start = column if columns > 1 else max(0, column - 2 * AROUND)
        where[COLUMNS] = span_text((start, start + max(columns, 4 * AROUND)))
    opening.show_tensor("two checkpoints", keys.KEYS | controls.KEYS, where)


def _undefined(result: TensorResult) -> str:
    why = next(iter(result.undefined.values()))
    return f"{result.name}: {', '.join(result.undefined)} not defined, since {why}."


def _remarks(known: Sequence[TensorResult], unpaired: Sequence[Unpaired]) -> None:
    """List what has no partner or can't be compared, and the remarks on the pairs."""
    groups = {
        "No partner, or can't be compared": [u.reason for u in unpaired if u.is_weight],
        "Remarks on pairs": [sentence for r in known for sentence in r.sentences()],
        "Metrics not defined": [_undefined(r) for r in known if r.undefined],
        "Activation scales and buffers": [u.reason for u in unpaired if not u.is_weight],
    }  # fmt: skip
    for title, sentences in groups.items():
        if sentences:
            st.markdown(f"**{title}** ({len(sentences):,})")
            st.markdown("\n".join(f"- {messages.plain(sentence)}" for sentence in sentences[:LISTED]))
        if len(sentences) > LISTED:
            command = "`python -m quantcore compare … --json`"
            st.caption(f"{len(sentences) - LISTED:,} more; {command} lists them all.")
    if not any(groups.values()):
        st.caption("Every tensor has a partner, and there are no remarks.")


def _layers(result: TensorResult) -> list[tuple[int, str]]:
    """Return a sort key that puts layer 2 before layer 10."""
    parts = re.split(r"(\d{1,9})", result.name)
    return [(int(part), "") if i % 2 else (0, part) for i, part in enumerate(parts)]


_KEYS: dict[str, Callable[[TensorResult], Any]] = {
    controls.LAYER: _layers,
    controls.BYTES: lambda r: -r.num_bytes[1],
    controls.BITS: lambda r: r.bits_per_weight[1],
}


def rows_of(known: Sequence[TensorResult], chosen: Chosen) -> pd.DataFrame:
    """Return the results as rows, filtered and sorted; ``place`` is where a click leads."""
    by = _KEYS.get(chosen.sort)
    listed = by_harm(known, chosen.metric) if by is None else sorted(known, key=by)
    rows = [r.as_row() | {"place": (r.other_tensor, r.other_index, 1)} for r in listed]
    frame = pd.DataFrame(rows, columns=None if rows else [*SHOWN, "place"])
    searched = ["tensor", "original", "storage", "shape", "order", "remark"]
    return tables.containing(frame, searched, chosen.words).reset_index(drop=True)


def head(column: str) -> str:
    """Return what a column is called."""
    return HEADS.get(column) or tables.label(column)
