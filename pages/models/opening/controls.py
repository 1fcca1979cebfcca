"""The controls with which a checkpoint is opened."""

import time
from pathlib import PurePath

import streamlit as st

import quantcore as qc
from pages.models.opening import addresses
from pages.models.opening.found import checkpoints_in
from pages.models.opening.opened import Opened
from pages.serving import models_folder
from pages.shared import messages, turn
from quantcore.tensors import megabytes

# A page may open two: the one that it shows, and the original to compare it with. Keys are link parameters.
SLOTS = {"": "ck", "original": "ck_original"}
KEYS = set(SLOTS.values())
_PATIENCE = 0.3  # seconds that are not worth a word


def choose(slot: str = "", label: str = "Checkpoint") -> Opened | None:
    """Draw the controls of a slot; return what has been opened, None if there is nothing yet or it can't be opened.

    What is wrong is said here.
    """
    row = st.container(horizontal=True, vertical_alignment="center", key=f"opening_{SLOTS[slot]}")
    root = models_folder.current()
    typed = row.selectbox(
        label,
        [*addresses.examples(), *(checkpoints_in(root) if root else [])],
        index=None,
        key=SLOTS[slot],
        bind="query-params",
        accept_new_options=True,
        filter_mode="contains",
        placeholder="Choose or type a path",
        label_visibility="collapsed",
    )
    meter = row.empty()
    if not typed:
        return None
    progress = _Progress(st.empty())
    try:
        opened = addresses.open_at(typed, root, progress)
    except qc.QuantError as error:
        messages.error(str(error))
        return None
    finally:
        progress.end()
    read, total = opened.checkpoint.counter.total, opened.total_bytes
    meter.caption(
        f"{messages.plain(PurePath(opened.title).name)}: read {megabytes(read)} of {megabytes(total)}"
    )
    return opened


class _Progress:
    """Shows how many files have been opened, once that takes long; ends the run if it was replaced."""

    def __init__(self, place: "st.delta_generator.DeltaGenerator") -> None:
        self._place, self._since = place, time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        turn.check()
        if time.monotonic() - self._since > _PATIENCE:
            self._place.progress(done / of, f"Reading headers: {done:,} of {of:,} files")

    def end(self) -> None:
        """Take it away."""
        self._place.empty()
