"""The tensor and scheme chosen in the sidebar, for the page that runs after it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared.cards import Card
from quantcore import tensors

_KEY = "_current"


class NoTensorYet(Exception):
    """Nothing has been pasted or uploaded yet; the message says what to do."""


@dataclass(frozen=True)
class Tensor:
    """The chosen tensor. ``key`` names its content: equal keys, equal values.

    Attributes:
        title: a name for a line of text, including the name of the file.
        recipe: Python code with quantcore that assigns it to ``x``; None if only its values are known.
        name: its full name in its file; ``title`` if it has none.
        stored: the dtype in its file, such as ``bfloat16``; empty if it is not from a file.
    """

    key: str
    title: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    recipe: str | None = None
    name: str = ""
    stored: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.title)


def of_values(x: np.ndarray, title: str, **more: str) -> Tensor:
    """A tensor known only by its values; ``more``: its ``name`` and ``stored``."""
    return Tensor(f"values {tensors.content_hash(x)}", title, x.shape, lambda: x, **more)


@dataclass(frozen=True)
class Current:
    """The tensor and the scheme, or the reasons why they are missing.

    ``problems``: all errors; ``acting``: those of the parts that the page uses.
    ``hint``: what to do next, if there is no tensor yet but nothing is wrong; ``cards``: examples of it.
    ``used``: which of "tensor" and "scheme" the page uses.
    """

    tensor: Tensor | None
    scheme: qc.Scheme | None
    problems: tuple[str, ...] = ()
    acting: tuple[str, ...] = ()
    hint: str = ""
    cards: tuple[Card, ...] = ()
    used: frozenset[str] = frozenset({"tensor", "scheme"})


def put(current: Current) -> None:
    """Store for the page of this run."""
    st.session_state[_KEY] = current


def get() -> Current:
    """The selection of this run, for a page."""
    return cast(Current, st.session_state[_KEY])
