"""The controls with which a checkpoint is opened."""

from pathlib import Path

import streamlit as st

import quantcore as qc
from pages.models.opening.opened import Opened
from pages.shared import messages
from quantcore.checkpoints import open_checkpoint

# A page may open two: the one that it shows, and the original to compare it with. Keys are link parameters.
SLOTS = {"": "ck", "original": "ck_original"}
KEYS = set(SLOTS.values())


def choose(slot: str = "", label: str = "Checkpoint") -> Opened | None:
    """Draw the controls of a slot; return what has been opened, None if there is nothing yet or it can't be opened.

    What is wrong is said here.
    """
    typed = st.text_input(label, key=SLOTS[slot], bind="query-params", placeholder="A file or folder")
    if not typed:
        return None
    try:
        checkpoint = open_checkpoint(Path.cwd() / typed)
    except qc.QuantError as error:
        messages.error(str(error))
        return None
    return Opened(checkpoint, typed, Path(typed).name, sum(t.num_bytes for t in checkpoint.tensors.values()))
