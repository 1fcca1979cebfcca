"""Checkpoint: what a checkpoint holds, and each of its tensors down to the bits."""

from functools import partial

import streamlit as st

from pages.models import opening
from pages.models.checkpoint import PAGE, controls, findings, tensor, views
from pages.models.opening import OpenCheckpoint
from pages.shared.page_frame import page_frame
from pages.shared.state import choice, link
from pages.shared.state.selection import Current

found: dict[str, OpenCheckpoint | None] = {"": None, "original": None}


def top(_: Current) -> None:
    """Draw the controls of both checkpoints in one row."""
    row = st.container(horizontal=True, vertical_alignment="top", gap="small", key="ck_top")
    with row.container(key="ck_first"):
        found[""] = opening.choose()
    if found[""] is not None:
        with row.container(key="ck_second"):
            found["original"] = opening.choose("original", "Original")


link.keep(controls.OWN)
with page_frame(top=top):
    opened, original = found[""], found["original"]
    if opened is None:
        st.html(f'<p class="qs-title" aria-hidden="true">{PAGE.heading}</p>')
        tensor.example()
    else:
        is_open = bool(st.session_state.get(controls.TENSOR, st.query_params.get(controls.TENSOR)))
        with st.container(
            horizontal=True, vertical_alignment="center", key="ck_tensor_row" if is_open else "ck_hidden"
        ):
            if is_open:
                go_back = partial(controls.open_tensor, "")
                st.button("All tensors", icon=":material/arrow_back:", on_click=go_back)
            name = controls.name()
        if name:
            tensor.draw(opened, original, name)
        else:
            with st.container(horizontal=True, vertical_alignment="center", key="ck_head"):
                views.heading(opened)
                color = controls.color() if original is not None else controls.BITS
                part = choice.segmented(
                    "Part", controls.PART, controls.PARTS, label_visibility="collapsed", width="content"
                )
            views.totals(opened)
            views.problems(opened)
            if part == controls.TENSORS:
                views.draw(opened, original, color)
            else:
                findings.draw(opened, original)
