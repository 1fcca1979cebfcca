"""A checkpoint as a whole: totals, treemap, table."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from pages.browser import scripts
from pages.maps.component import base
from pages.models.checkpoint import controls, run
from pages.models.opening import OpenCheckpoint
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.large import is_large
from pages.shared.state import choice
from quantcore import figures
from quantcore.analysis import Leaf, Tile, tiles
from quantcore.checkpoints import ListedTensor, Totals, facts, listing
from quantcore.wording import count, megabytes, printable

TILES = 500
TABLE_ROWS = 2000
NARROWEST, WIDEST = 200, 340  # px: of the column of names
_TABLE, _TREEMAP = "_ck_table", "ck_treemap"
_FAILED = "_treemap_failed"
_HERE = Path(__file__).parent
# st.plotly_chart does not report clicks on tiles
_COMPONENT = st.components.v2.component(
    "quantscope_treemap",
    html='<div class="qs-treemap" role="img"></div>',
    css=(_HERE / "treemap.css").read_text(encoding="utf-8"),
    js="\n".join((scripts.LOAD_PLOTLY, (_HERE / "treemap.js").read_text(encoding="utf-8"))),
    isolate_styles=False,
)


def entries(opened: OpenCheckpoint) -> list[ListedTensor]:
    """Return every tensor of a checkpoint, from headers."""
    content = cache.CacheKey(opened.key)
    return cache.cached_small(content, "listing", lambda: listing(opened.checkpoint.tensors))


def heading(opened: OpenCheckpoint) -> None:
    """Draw what the page answers: what this checkpoint holds."""
    name = PurePath(opened.title).name or opened.title
    st.html(f'<p class="qs-title">What does {html.escape(printable(name, 60))} hold?</p>')


def totals(opened: OpenCheckpoint) -> None:
    """Draw one line about the checkpoint: format, totals, and what the config says."""
    sums, checkpoint = Totals.of(entries(opened)), opened.checkpoint
    texts = [
        checkpoint.format,
        count(sums.tensors, "tensor"),
        f"{sums.elements:,} parameters" if sums.elements < 1e7 else f"{sums.elements / 1e9:.3g} B parameters",
        megabytes(opened.total_bytes),
        f"{sums.bits:.4g} bits per weight" if sums.elements else "",
        *facts(checkpoint.config),
    ]
    cells = "".join(f"<span>{html.escape(printable(text))}</span>" for text in texts if text)
    st.html(f'<p class="qs-line qs-facts">{cells}</p>')


def problems(opened: OpenCheckpoint) -> None:
    """Say what is wrong with the files."""
    found = opened.checkpoint.problems
    if found:
        more = f" {len(found) - 1:,} more under Findings." if len(found) > 1 else ""
        messages.warning(printable(found[0].sentence, 400) + more)


def draw(opened: OpenCheckpoint, original: OpenCheckpoint | None, color: str) -> None:
    """Draw the treemap next to the table."""
    every = entries(opened)
    lost: run.Lost | None = None
    if original is not None and color == controls.SQNR:
        lost = run.lost(opened, original, st.empty())
    left, right = st.columns([4, 7], gap="small")
    with left:
        _treemap(opened, every, lost)
    with right:
        _table(every, lost)


def _treemap(opened: OpenCheckpoint, every: list[ListedTensor], lost: run.Lost | None) -> None:
    def leaves() -> list[Leaf]:
        return [Leaf(each.name, each.num_bytes, 0 if each.problem else each.elements) for each in every]

    content = cache.CacheKey(opened.key)
    drawn = cache.cached_small(content, "tiles", lambda: tiles(leaves(), TILES))
    colored = "bits" if lost is None else str(sorted(lost.sqnr.items()))
    identity = f"{opened.key} {theme()} {hashlib.sha256(colored.encode()).hexdigest()}"

    def make() -> str:
        lines = {}
        for at, entry in ((tile.leaf, every[tile.leaf]) for tile in drawn if tile.leaf is not None):
            bits = "" if entry.problem else f", {entry.bits:.4g} bits per weight"
            lines[at] = f"{_shape(entry)}\n{printable(entry.storage)}\n{megabytes(entry.num_bytes)}{bits}"
        title, unit = PurePath(opened.title).name or opened.title, "" if lost is None else "SQNR (dB)"
        values, bounds = (None, None) if lost is None else (lost.sqnr, lost.bounds)
        figure = figures.treemap(
            drawn, leaves(), lines, title=title, values=values, unit=unit, bounds=bounds, theme=theme()
        )
        return str(figure.to_json())

    figure = cache.cached_small(content, f"treemap {identity}", make)
    if st.session_state.get(_FAILED):
        charts.draw(go.Figure(json.loads(figure)), "Treemap of the tensors", key="ck_treemap_chart")
    else:
        # for screen readers
        alt = f"Treemap of {count(drawn[0].leaves, 'tensor')}, {megabytes(drawn[0].size)}"
        first = [tile for tile in drawn if tile.parent == 0]
        parts = ", ".join(f"{printable(tile.label, 60)} {megabytes(tile.size)}" for tile in first[:8])
        data = charts.sized_data(figure)
        _COMPONENT(
            key=_TREEMAP,
            data={
                "figure": data,
                "textures": {} if lost is None else textures(drawn, every, lost, data["data"][0]["marker"]),
                "palette": encoded(figures.colors_at(np.arange(256), 0, 255, figures.palette("patterns"))),
                "picks": [tile.leaf is not None or tile.folded for tile in drawn],
                "key": f"{identity} {is_large()}",
                "alt": f"{alt}: {parts}. The table lists them all.",
                "base": base(),
            },
            on_picked_change=partial(_pick, tuple(_target(tile, every) for tile in drawn)),
            on_failed_change=lambda: st.session_state.update({_FAILED: True}),
        )
    hidden = sum(tile.leaves for tile in drawn if tile.folded)
    if hidden:
        hint = "click such a tile to list its tensors"
        st.caption(f"{hidden:,} tensors are grouped into shared tiles; {hint}.")


def textures(
    drawn: Sequence[Tile], every: Sequence[ListedTensor], lost: run.Lost, scale: Mapping[str, Any]
) -> dict[str, list[Any]]:
    """Return what is drawn on the tiles of single tensors: rows, columns, and the place of each cell's SQNR
    among the 256 colors of the scale, by the number of the tile.
    """
    low, high, found = scale["cmin"], scale["cmax"], {}
    for number, tile in enumerate(drawn):
        cells = None if tile.leaf is None else lost.cells.get(every[tile.leaf].name)
        if cells is not None:
            at = np.clip((np.nan_to_num(cells, nan=high) - low) / (high - low), 0, 1)
            found[str(number)] = [*cells.shape, encoded((255 * at).round().astype(np.uint8))]
    return found


def encoded(values: np.ndarray) -> str:
    """Return bytes as text."""
    return base64.b64encode(values.tobytes()).decode()


def _shape(entry: ListedTensor) -> str:
    return " × ".join(map(str, entry.shape)) or "scalar"


def _target(tile: Tile, every: list[ListedTensor]) -> tuple[str, str]:
    """Return what a click on a tile opens: a tensor's name and, if it stands for several, words to search."""
    return ("", tile.path) if tile.leaf is None else (every[tile.leaf].name, "")


def _pick(targets: Sequence[tuple[str, str]]) -> None:
    """Open the tensor of the clicked tile, or list those of a shared tile; others zoom in (a callback)."""
    tile = st.session_state[_TREEMAP].picked
    if tile is None or not 0 <= tile < len(targets):
        return
    name, words = targets[int(tile)]
    if name:
        controls.open_tensor(name)
    else:
        st.session_state[controls.SEARCH] = words


def _table(every: list[ListedTensor], compared: run.Lost | None) -> None:
    """Draw the search, the order and the table."""
    lost = None if compared is None else compared.sqnr
    left, right = st.columns([3, 2], gap="small")
    typed = left.text_input(
        "Search",
        key=controls.SEARCH,
        bind="query-params",
        placeholder="Search: words in name, shape or storage",
        label_visibility="collapsed",
    )
    orders = {name: words for name, words in controls.SORTS.items() if lost or name != controls.LOWEST}
    order = choice.selectbox("Sort by", controls.SORT, orders, right, label_visibility="collapsed")
    found = arranged(every, typed, order, lost or {})
    rows = found[:TABLE_ROWS]
    frame = pd.DataFrame(
        {
            "name": [printable(e.name, 300) for e in rows],
            "shape": [_shape(e) for e in rows],
            "bits": [None if e.problem else e.bits for e in rows],
            "bytes": [e.num_bytes for e in rows],
            "storage": [printable(e.storage, 120) for e in rows],  # last: the window may end within it
        }
    )
    sqnr = None
    if lost is not None:
        frame.insert(1, "SQNR", [lost.get(e.name, math.nan) for e in rows])
        frame, sqnr = tables.sqnr_column(frame, "SQNR", "SQNR (dB)", "%.1f")
    with tables.filling("ck_list", len(frame)):
        tables.clickable(
            frame,
            _TABLE,
            [e.name for e in rows],
            controls.open_tensor,
            height="stretch",
            column_config={
                "name": st.column_config.TextColumn("Name", width=_wide(frame["name"], NARROWEST)),
                "shape": st.column_config.TextColumn("Shape", width=88),
                "bits": st.column_config.NumberColumn(
                    "Bits", format="%.4g", width=56, help="Per weight, including scales and zero points"
                ),
                "bytes": st.column_config.NumberColumn("Bytes", format="localized", width=84),
                "storage": st.column_config.TextColumn("Storage", width=_wide(frame["storage"])),
                "SQNR": sqnr,
            },
        )
    more = f", the first {TABLE_ROWS:,} listed" if len(found) > TABLE_ROWS else ""
    is_known = compared is not None and compared.cells
    texture = " In a tile: the SQNR of its tensor's parts, rows down, columns across." if is_known else ""
    said = f"{count(len(found), 'tensor')}{more}. Click a row or a tile to open the tensor.{texture}"
    st.caption(said)


def _wide(texts: pd.Series, narrowest: int = 0) -> int:
    """Return the width in px that a column needs for the longest of its texts, within bounds."""
    longest = int(texts.str.len().max()) if len(texts) else 0
    return int(min(max(narrowest, tables.LETTER * longest + tables.MARGIN), WIDEST))


def arranged(
    every: list[ListedTensor], typed: str, order: str, lost: Mapping[str, float]
) -> list[ListedTensor]:
    """Return the tensors that match every word, in the chosen order."""
    words = typed.lower().split()
    found = list(every)
    if words:
        texts = [f"{e.name} {'×'.join(map(str, e.shape))} {e.storage}".lower() for e in every]
        found = [e for e, text in zip(every, texts, strict=True) if all(word in text for word in words)]
    known = {name: value for name, value in lost.items() if not math.isnan(value)}
    by: dict[str, Callable[[ListedTensor], Any]] = {
        controls.NAME: lambda e: e.name,
        controls.BYTES: lambda e: -e.num_bytes,
        controls.BITS: lambda e: (e.bits != e.bits, -e.bits),
        controls.LOWEST: lambda e: (e.name not in known, known.get(e.name, 0.0)),
    }
    return sorted(found, key=by[order]) if order in by else found
