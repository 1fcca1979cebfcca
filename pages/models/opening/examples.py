"""The shipped checkpoints as cards, each with its original."""

from dataclasses import dataclass

import numpy as np
import streamlit as st

from pages.models.keys import SLOTS
from pages.models.opening.compared import partner
from pages.models.opening.opened import EXAMPLE, OpenCheckpoint, location_of
from pages.shared.cards import Card
from pages.shared.charts import theme
from quantcore import figures
from quantcore.checkpoints import ORIGINALS

HEIGHT, WIDTH = 24, 36  # cells of a picture


@dataclass(frozen=True)
class ExampleCard:
    """What a card says of an example. ``tensor``: whose errors it shows."""

    title: str
    line: str
    tensor: str


EXAMPLE_CARDS = {
    "chgnet-w4a16": ExampleCard(
        "A whole model",
        "CHGNet in 4 bits, 136 tensors",
        "atom_conv_layers.0.twoBody_atom.mlp_core.layers.0.weight",
    ),
    "minilm-gptq": ExampleCard("GPTQ", "One outlier spoils a row", "encoder.layer.0.output.dense.weight"),
    "minilm-q4_k_m": ExampleCard(
        "GGUF Q4_K_M", "Bits across blocks, scales of scales", "blk.0.ffn_down.weight"
    ),
    "minilm-nvfp4": ExampleCard(
        "NVFP4", "16 values share a scale of 8 bits", "encoder.layer.0.output.dense.weight"
    ),
}


def open_pair(name: str) -> tuple[OpenCheckpoint, OpenCheckpoint]:
    """Open a quantized example and its original; both are shared by all visitors.

    Raises:
        QuantError: it can't be read.
    """
    opened, original = (location_of(f"{EXAMPLE}{each}", None).open() for each in (name, ORIGINALS[name]))
    return opened, original


def choose(name: str) -> None:
    """Open an example with its original (a callback)."""
    st.session_state[SLOTS[""]] = f"{EXAMPLE}{name}"
    st.session_state[SLOTS["original"]] = f"{EXAMPLE}{ORIGINALS[name]}"


def cards() -> list[Card]:
    """Return a card for each example; its picture is the error of one of its tensors."""
    return [
        Card(f"_ck_card_{name}", told.title, told.line, _picture(name, theme()), choose, (name,))
        for name, told in EXAMPLE_CARDS.items()
    ]


@st.cache_resource(show_spinner=False, max_entries=2 * len(EXAMPLE_CARDS))
def _picture(name: str, theme: str) -> np.ndarray:
    """Return the largest error of each part of a tensor, in the colors of the error map."""
    opened, original = open_pair(name)
    tensor = opened.checkpoint.tensors[EXAMPLE_CARDS[name].tensor]
    was = partner(opened, original, tensor.name, ())
    assert was is not None  # a shipped example
    error = (was.rows(0, tensor.shape[0]) - tensor.read()).numpy()
    worst = np.array(
        [
            [part.flat[np.abs(part).argmax()] for part in np.array_split(rows, WIDTH, 1)]
            for rows in np.array_split(error, HEIGHT, 0)
        ]
    )
    bound = float(np.quantile(np.abs(worst), 0.95))
    return figures.thumbnail(worst, "error", (-bound, bound), theme)
