"""One tensor of a checkpoint: facts about it, its maps, and where a cell comes from."""

import html
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.maps import component
from pages.maps.picture import Picture
from pages.models.checkpoint import cell, controls, findings, run
from pages.models.checkpoint.controls import ShownPart
from pages.models.opening import OpenCheckpoint, Partner, examples, pairs_of, partner
from pages.shared import cards, charts, messages
from pages.shared.charts import theme
from quantcore.analysis import View
from quantcore.checkpoints import CheckpointTensor, plane_shape
from quantcore.wording import megabytes, printable, short

EXAMPLE = "minilm-gptq"
EXAMPLE_TENSOR = examples.EXAMPLE_CARDS[EXAMPLE].tensor


def draw(opened: OpenCheckpoint, original: OpenCheckpoint | None, name: str) -> None:
    """Draw a tensor of a checkpoint.

    Raises:
        QuantError: there is no such tensor, or it can't be read.
    """
    tensor = opened.checkpoint.tensors.get(name)
    if tensor is None:
        there = f"There is no tensor {short(name, 120)} in {short(opened.title, 80)}"
        raise qc.QuantError(f"{there}; go back and choose one from the table.")
    shape = tensor.shape
    line = st.container()
    with st.container(key="ck_found"):  # what a check has found in this tensor
        found = findings.known(opened, original)
        for finding in found.of.get(name, ()):
            findings.sentence(finding)
        if name in found.checked and not found.of.get(name):
            st.markdown(":small[:green[:material/check_circle:] Checked: nothing found.]")
    why = st.empty()
    shown = controls.part_of(shape, worst=original is not None)
    was, note = _partner(opened, tensor, original, shown.at)
    maps = run.maps(opened, tensor, was, shown, st.empty())
    _facts(line, tensor, shown, maps)
    if maps is not None and maps.why is not None:
        with why.container(key="ck_why"):
            st.markdown(messages.plain(maps.why.sentence))
    maps_and_origin(opened, original, tensor, shown, maps)
    notes = [note] if note else []
    with suppress(qc.QuantError):  # reported where the values are read
        notes += tensor.notes()
    for sentence in notes:
        st.caption(messages.plain(sentence))


def _partner(
    opened: OpenCheckpoint, tensor: CheckpointTensor, original: OpenCheckpoint | None, at: tuple[int, ...]
) -> tuple[Partner | None, str]:
    """Return the original's plane, and a note on the order of its rows, or on why there is none."""
    if original is None:
        return None, ""
    found = partner(opened, original, tensor.name, at)
    pairs = pairs_of(opened, original, tensor.name)
    note = ""
    if found is not None and found.order:
        note = f"The maps show the original {found.order}, to match the row order of this file."
    elif found is None and pairs:
        part = f"{pairs[0].original}" + (f" and {len(pairs) - 1:,} more" if len(pairs) > 1 else "")
        note = f"In the original, this is {part}, in a different layout; "
        note += "the page Two checkpoints compares them."
    elif found is None:
        name = short(tensor.name, 120)
        note = f"No tensor of the original is paired with {name}, so there is nothing to compare with."
    return found, note


def _facts(line: DeltaGenerator, tensor: CheckpointTensor, shown: ShownPart, maps: run.Maps | None) -> None:
    """Draw the facts about the tensor and its error in one line."""
    shape = " × ".join(f"{n:,}" for n in tensor.shape) or "scalar"
    bits = 8 * tensor.num_bytes / max(1, math.prod(tensor.shape))
    pieces = list(tensor.layout.pieces.values())
    stored = ", ".join(f"{p.name.rpartition('.')[2] or p.name} {p.dtype} {list(p.shape)}" for p in pieces)
    names = dict.fromkeys(p.source.name for p in pieces)
    # bytes that a file holds in another form are named by it and what they are
    files = ", ".join(n for n in names if not any(n.startswith(f"{other}, ") for other in names))
    facts = [(shape, "Shape")]
    if maps is not None and maps.errors is not None:
        sums, rows = maps.errors, shown.rows
        where = "" if rows == (0, plane_shape(shown.shape)[0]) else f" in rows {rows[0]:,}–{rows[1] - 1:,}"
        mse, worst = f"{sums.ee / sums.count:.3g}", f"{sums.worst:.3g}"
        error = f"SQNR {qc.decibels(sums.sqnr_db)}, MSE {mse}, max |error| {worst}{where}"
        hint = f"Against the original, with the values rounded to {tensor.dtype} as the library returns them"
        facts.append((error, hint))
    hint = "The dtype that the library dequantizes to; the maps show float32 before that rounding"
    facts += [
        (tensor.storage, f"How it is stored: {stored}"),
        (f"read as {tensor.dtype}", hint),
        (f"{megabytes(tensor.num_bytes)}, {bits:.4g} bits per weight", "Codes and all their parameters"),
        (files, "Where it is stored"),
    ]
    cells = "".join(
        f'<span title="{html.escape(printable(hint, 1000))}">{html.escape(printable(text))}</span>'
        for text, hint in facts
    )
    with line.container(horizontal=True, vertical_alignment="center"):
        words = charts.small_print_attribute(printable(f"{tensor.name} · {tensor.storage}", 300))
        st.html(f'<p class="qs-line qs-facts" {words}>{cells}</p>')
        if maps is not None and maps.errors is not None:
            hint = f"Show the elements around the largest |error|, at {maps.worst}"
            go = partial(controls.go_to, maps.worst, shown.shape)
            st.button("Go to worst", on_click=go, help=hint, type="tertiary")


def maps_and_origin(
    opened: OpenCheckpoint,
    original: OpenCheckpoint | None,
    tensor: CheckpointTensor,
    shown: ShownPart,
    maps: run.Maps | None,
    pick: Callable[[tuple[int, ...]], None] = controls.pick,
) -> None:
    """Draw the maps, and beside them where the chosen element comes from, else that with the largest error.

    Args:
        pick: called with the index of a cell that is clicked; with none, if its panel is closed.
    """
    chosen = shown.cell is not None
    if not (chosen or shown.closed) and maps is not None and maps.why is not None:
        shown = replace(shown, cell=maps.worst)
    with st.container(horizontal=True, key="ck_beside", gap="medium"):
        with st.container(key="ck_picture"):
            if maps is not None:
                _maps(opened, tensor, shown, maps, pick)
        if shown.cell is not None:
            # on a phone what the visitor chose is a sheet over the page, but not what nobody asked for
            with st.container(key="ck_origin" if chosen else "ck_worst"):
                if chosen:
                    st.button(
                        "",
                        icon=":material/close:",
                        key="_ck_origin_close",
                        type="tertiary",
                        on_click=pick,
                        args=((),),
                        help="Close",
                    )
                cell.draw(opened, tensor.name, shown.cell, original)


def _maps(
    opened: OpenCheckpoint,
    tensor: CheckpointTensor,
    shown: ShownPart,
    maps: run.Maps,
    pick: Callable[[tuple[int, ...]], None],
) -> None:
    """Draw the maps, with the cell and the places of findings outlined."""
    found = findings.known(opened, None).of.get(tensor.name, ())
    view = View(index=shown.at, rows=shown.rows, columns=shown.columns)
    picture = Picture(
        maps.format_of,
        maps.data,
        view,
        identity=maps.key,
        element=shown.cell if shown.cell is not None else (-1,) * len(tensor.shape),
        borders=st.session_state.get(controls.BORDERS, False),
        numbers=st.session_state.get(controls.NUMBERS, True),
        theme=theme(),
        found=tuple(box for finding in found for box in finding.boxes),
        whole=tensor.shape,
    )
    component.four_maps(picture, key="ck_maps", on_pick=pick, on_region=controls.region)


def example() -> None:
    """Draw cards of all examples, and below them the worst element of one, before a checkpoint is opened.

    Raises:
        QuantError: the example can't be read.
    """
    cards.draw(examples.cards())
    opened, original = examples.open_pair(EXAMPLE)
    held = opened.checkpoint.tensors[EXAMPLE_TENSOR]
    was = partner(opened, original, EXAMPLE_TENSOR, ())
    assert was is not None  # a shipped example
    told, place = st.container(horizontal=True, vertical_alignment="center", key="ck_example"), st.empty()
    shown = controls.whole_of(held.shape)
    maps = run.maps(opened, held, was, shown, place)
    with told:
        why = messages.plain(maps.why.sentence if maps and maps.why else "")
        name, storage = messages.plain(EXAMPLE_TENSOR), messages.plain(held.storage)
        st.markdown(f"**{name}**, {storage}. {why}", width="stretch")
        st.button("Open", on_click=_open_example, help="With all tensors and controls")
    maps_and_origin(opened, original, held, shown, maps, _open_example)


def _open_example(index: tuple[int, ...] | None = None) -> None:
    """Open the example at a cell (a callback)."""
    examples.choose(EXAMPLE)
    controls.open_tensor(EXAMPLE_TENSOR, index)
