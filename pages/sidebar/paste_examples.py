"""What to paste, as cards, while the field is empty."""

from typing import NamedTuple

import numpy as np
import streamlit as st

from pages.shared.cards import Card
from pages.shared.charts import theme
from pages.shared.state import link
from pages.sidebar.tensor_controls import PASTED
from quantcore import figures, tensors


class PasteExample(NamedTuple):
    """A text as a visitor may paste it, and what is seen with it in 4 bits."""

    title: str
    line: str
    text: str


EXAMPLES = (
    PasteExample(
        "One outlier",
        "A nested list: 8 sets the scale; in 4 bits all others become 0",
        "[[0.1, -0.2, 0.3, 8.0],\n [0.2, 0.1, -0.3, 0.1],\n [-0.1, 0.4, 0.2, -0.3]]",
    ),
    PasteExample(
        "Ties",
        "Rows of numbers: in 4 bits each but 7 lies halfway between two codes",
        "0.5, 1.5, 2.5, 3.5\n-0.5, -1.5, -2.5, 7",
    ),
    PasteExample(
        "Nothing negative",
        "A printed tensor: half of the signed codes stay unused",
        "tensor([[0.02, 0.31, 1.24, 0.77],\n        [0.45, 0.08, 2.10, 0.93]])",
    ),
)


def cards() -> tuple[Card, ...]:
    """Return a card for each example, which puts its text into the field."""
    return tuple(
        Card(f"_paste_card_{place}", title, line, _picture(place, theme()), link.put, ({PASTED: text},))
        for place, (title, line, text) in enumerate(EXAMPLES)
    )


@st.cache_resource(show_spinner=False, max_entries=2 * len(EXAMPLES))
def _picture(place: int, theme: str) -> np.ndarray:
    x = tensors.parse(EXAMPLES[place].text)
    bound = float(np.abs(x).max())
    return figures.thumbnail(x, "diverging", (-bound, bound), theme)
