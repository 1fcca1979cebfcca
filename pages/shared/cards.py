"""Cards that open an example: a small picture, a title, and one line. The whole card is the button."""

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import streamlit as st
from PIL import Image

WIDTH, HEIGHT = 144, 96  # px of a picture


@dataclass(frozen=True, eq=False)
class Card:
    """A card.

    Attributes:
        key: of its button.
        line: what one sees in the example.
        picture: uint8 [rows, columns, 3]; each cell is drawn as a square.
        on_click: opens the example (a callback), with ``args``.
        help: shown when the pointer rests on it.
    """

    key: str
    title: str
    line: str
    picture: np.ndarray
    on_click: Callable[..., None]
    args: Sequence[Any] = field(default=())
    help: str | None = None


def draw(cards: Sequence[Card]) -> None:
    """Draw cards side by side, as many in a row as fit; once on a page."""
    with st.container(horizontal=True, key="qs_cards", gap="small"):
        for card in cards:
            with st.container(border=True, horizontal=True, vertical_alignment="center", gap="small"):
                st.image(_address(card.picture), width=72)
                with st.container(gap=None):
                    st.button(
                        card.title,
                        key=card.key,
                        on_click=card.on_click,
                        args=tuple(card.args),
                        type="tertiary",
                        help=card.help,
                    )
                    st.caption(card.line)


def _address(picture: np.ndarray) -> str:
    """Return a picture as an address that holds it, so that no later run takes it away while it loads.

    It is 144 × 96 px, as the others beside it: squares as large as fit, from the upper left.
    """
    rows, columns = picture.shape[:2]
    scale, png = max(1, min(WIDTH // columns, HEIGHT // rows)), io.BytesIO()
    whole = Image.new("RGBA", (WIDTH, HEIGHT))
    whole.paste(Image.fromarray(picture.repeat(scale, 0).repeat(scale, 1)))
    whole.save(png, "PNG")
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
