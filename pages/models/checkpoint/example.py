"""What the page shows before a checkpoint is opened: the worst element of an example, and cards of all examples."""

import streamlit as st

from pages.models import opening
from pages.models.checkpoint import controls, run, tensor
from pages.models.opening import examples
from pages.shared import cards, messages

NAME = "minilm-gptq"
TENSOR = examples.EXAMPLE_CARDS[NAME].tensor


def draw() -> None:
    """Draw the cards, and below them the example.

    Raises:
        QuantError: the example can't be read.
    """
    cards.draw(examples.cards())
    opened, original = examples.open_pair(NAME)
    held = opened.checkpoint.tensors[TENSOR]
    was = opening.partner(opened, original, TENSOR, ())
    assert was is not None  # a shipped example
    told, place = st.container(horizontal=True, vertical_alignment="center", key="ck_example"), st.empty()
    shown = controls.whole_of(held.shape)
    maps = run.maps(opened, held, was, shown, place)
    with told:
        why = maps.why.sentence if maps and maps.why else ""
        st.markdown(f"**{messages.plain(TENSOR)}**, {messages.plain(held.storage)}. {messages.plain(why)}", width="stretch")
        st.button("Open", on_click=_open, help="With all tensors and controls")
    tensor.maps_and_origin(opened, original, held, shown, maps, _open)


def _open(index: tuple[int, ...] | None = None) -> None:
    """Open the example at a cell (a callback)."""
    examples.choose(NAME)
    controls.open_tensor(TENSOR, index)
