"""One tensor of a checkpoint: facts about it, its maps, and where a cell comes from."""

import html
import math
from collections.abc import Callable
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.maps import component
from pages.maps.picture import Picture
from pages.models.checkpoint import cell, controls, findings, run
from pages.models.checkpoint.controls import ShownPart
from pages.models.opening import OpenCheckpoint, Partner, pairs_of, partner
from pages.shared import charts, messages
from pages.shared.charts import theme
from quantcore.analysis import View, element
from quantcore.checkpoints import CheckpointTensor
from quantcore.diagnosis import Box
from quantcore.wording import megabytes, printable, short


def draw(opened: OpenCheckpoint, original: OpenCheckpoint | None, name: str) -> None:
    """Draw a tensor of a checkpoint."""
    tensor = opened.checkpoint.tensors.get(name)
    if tensor is None:
        messages.error(
            f"There is no tensor {short(name, 120)} in {short(opened.title, 80)}; go back and choose one from the table."
        )
        return
    try:
        shape = tensor.shape
        line = st.container()
        with st.container(key="ck_found"):
            _findings(opened, original, name)
        why = st.empty()
        shown = controls.part_of(shape, worst=original is not None)
        was, note = _partner(opened, tensor, original, shown.at)
        place = st.empty()
        key = f"{opened.key} {f'{original.key} {was.key}' if original and was is not None else ''}"
        maps = run.maps(tensor, was, shown, key, place)
        _facts(line, tensor, shown, maps)
        why_lost(why, maps)
        maps_and_origin(opened, original, tensor, shown, maps, key)
        for sentence in filter(None, (note, *_notes(tensor))):
            st.caption(messages.plain(sentence))
    except qc.QuantError as error:
        messages.error(str(error))


def _partner(
    opened: OpenCheckpoint, tensor: CheckpointTensor, original: OpenCheckpoint | None, at: tuple[int, ...]
) -> tuple[Partner | None, str]:
    """Return the original's plane, and a note on the order of its rows, or on why there is none."""
    if original is None:
        return None, ""
    found = partner(opened, original, tensor.name, at)
    if found is not None:
        order = (
            f"The maps show the original {found.order}, to match the row order of this file."
            if found.order
            else ""
        )
        return found, order
    pairs = pairs_of(opened, original, tensor.name)
    if pairs:
        part = (
            f"{pairs[0].original} and {len(pairs) - 1:,} more" if len(pairs) > 1 else f"{pairs[0].original}"
        )
        return (
            None,
            f"In the original, this is {part}, in a different layout; the page Two checkpoints compares them.",
        )
    return (
        None,
        f"No tensor of the original is paired with {short(tensor.name, 120)}, so there is nothing to compare with.",
    )


def _facts(
    line: "st.delta_generator.DeltaGenerator", tensor: CheckpointTensor, shown: ShownPart, maps: run.Maps | None
) -> None:
    """Draw the facts about the tensor and its error in one line."""
    shape = " × ".join(f"{n:,}" for n in tensor.shape) or "scalar"
    bits = 8 * tensor.num_bytes / max(1, math.prod(tensor.shape))
    pieces = list(tensor.layout.pieces.values())
    stored = ", ".join(f"{p.name.rpartition('.')[2] or p.name} {p.dtype} {list(p.shape)}" for p in pieces)
    names = dict.fromkeys(p.source.name for p in pieces)
    # bytes that a file holds in another form are named by it and what they are
    files = ", ".join(n for n in names if not any(n.startswith(f"{other}, ") for other in names))
    facts = [
        (shape, "Shape"),
        (tensor.storage, f"How it is stored: {stored}"),
        (
            f"read as {tensor.dtype}",
            "The dtype that the library dequantizes to; the maps show float32 before that rounding",
        ),
        (f"{megabytes(tensor.num_bytes)}, {bits:.4g} bits per weight", "Codes and all their parameters"),
        (files, "Where it is stored"),
    ]
    if maps is not None and maps.errors is not None:
        sums = maps.errors.sums
        where = (
            ""
            if shown.is_whole or shown.rows == (0, shown.height)
            else f" in rows {shown.rows[0]:,}–{shown.rows[1] - 1:,}"
        )
        error = f"SQNR {qc.decibels(sums.sqnr_db)}, MSE {sums.ee / sums.count:.3g}, max |error| {sums.worst:.3g}{where}"
        facts.insert(
            1,
            (
                error,
                f"Against the original, with the values rounded to {tensor.dtype} as the library returns them",
            ),
        )
    cells = "".join(
        f'<span title="{html.escape(printable(hint, 1000))}">{html.escape(printable(text))}</span>'
        for text, hint in facts
    )
    with line.container(horizontal=True, vertical_alignment="center"):
        words = charts.small_print_attribute(printable(f"{tensor.name} · {tensor.storage}", 300))
        st.html(f'<p class="qs-line qs-facts" {words}>{cells}</p>')
        if maps is not None and maps.errors is not None:
            worst = element(View(index=shown.at), shown.shape, *maps.errors.worst)
            hint = f"Show the elements around the largest |error|, at {worst}"
            st.button(
                "Go to worst", on_click=controls.go_to, args=(worst, shown.shape), help=hint, type="tertiary"
            )


def _with_worst(shown: ShownPart, maps: run.Maps | None) -> ShownPart:
    """The part with the element of the largest error chosen, if none is and it is known."""
    if shown.cell is not None or shown.closed or maps is None or maps.why is None or maps.errors is None:
        return shown
    return replace(shown, cell=element(View(index=shown.at), shown.shape, *maps.errors.worst))


def why_lost(place: DeltaGenerator, maps: run.Maps | None) -> None:
    """Draw why the row with the largest error lost so much."""
    if maps is not None and maps.why is not None:
        with place.container(key="ck_why"):
            st.markdown(messages.plain(maps.why.sentence))


def maps_and_origin(
    opened: OpenCheckpoint,
    original: OpenCheckpoint | None,
    tensor: CheckpointTensor,
    shown: ShownPart,
    maps: run.Maps | None,
    key: str,
    pick: Callable[[tuple[int, ...]], None] = controls.pick,
) -> None:
    """Draw the maps, and next to them where the chosen element comes from, else the one with the largest error.

    Args:
        pick: called with the index of a cell that is clicked; with none, if its panel is closed.
    """
    chosen = shown.cell is not None
    shown = _with_worst(shown, maps)
    with st.container(horizontal=True, key="ck_beside", gap="medium"):
        with st.container(key="ck_picture"):
            if maps is not None:
                _maps(opened, tensor, shown, maps, key, pick)
        if shown.cell is not None:
            # on a phone what the visitor chose is a sheet over the page, but not what nobody asked for
            with st.container(key="ck_origin" if chosen else "ck_worst"):
                if chosen:
                    st.button(
                        "", icon=":material/close:", key="_ck_origin_close", type="tertiary", on_click=pick, args=((),), help="Close"
                    )
                cell.draw(opened, tensor.name, shown.cell, original)


def _maps(
    opened: OpenCheckpoint,
    tensor: CheckpointTensor,
    shown: ShownPart,
    maps: run.Maps,
    key: str,
    pick: Callable[[tuple[int, ...]], None],
) -> None:
    """Draw the maps, with the cell and the places of findings outlined."""
    view = View(index=shown.at, rows=shown.rows, columns=shown.columns)
    picture = Picture(
        maps.format_of,
        maps.data,
        view,
        identity=f"{key} {tensor.name}",
        element=shown.cell if shown.cell is not None else (-1,) * len(tensor.shape),
        borders=st.session_state.get(controls.BORDERS, False),
        numbers=st.session_state.get(controls.NUMBERS, True),
        theme=theme(),
        found=boxes(opened, tensor.name),
        whole=tensor.shape,
    )
    component.four_maps(
        picture,
        key="ck_maps",
        on_pick=lambda row, column: pick(element(view, tensor.shape, row, column)),
        on_region=controls.region,
    )
    legend = component.legend(maps.data)
    if legend:
        st.caption(legend)


def boxes(opened: OpenCheckpoint, name: str) -> tuple[Box, ...]:
    """The places of the findings of a tensor."""
    found = findings.known(opened, None).of.get(name, ())
    return tuple(box for finding in found for box in finding.boxes)


def _notes(tensor: CheckpointTensor) -> list[str]:
    try:
        return list(tensor.notes())
    except qc.QuantError:  # reported where the values are read
        return []


def _findings(opened: OpenCheckpoint, original: OpenCheckpoint | None, name: str) -> None:
    """Draw what a check has found in this tensor."""
    found = findings.known(opened, original)
    for finding in found.of.get(name, ()):
        findings.sentence(finding)
    if name in found.checked and not found.of.get(name):
        st.markdown(":small[:green[:material/check_circle:] Checked: nothing found.]")
