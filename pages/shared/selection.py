"""What the controls chose, for the page that runs after them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import streamlit as st

import quantcore as qc
from quantcore import tensors

_KEY = "_current"


class NoTensorYet(Exception):
    """Nothing was pasted or uploaded so far; the message says what to do."""


@dataclass(frozen=True)
class Tensor:
    """The chosen tensor. ``key`` names its content: equal keys, equal values.

    Attributes:
        title: what it is called in a line of text, the file's name included.
        recipe: Python that binds ``x`` to it by quantcore's means; None where it is known by its values alone.
        name: its full name, in the file that it was read from; ``title`` where it has none of its own.
        stored: the dtype that the file stores it in, such as ``bfloat16``; empty where it comes from no file.
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
    """A tensor that is known by its values alone; ``more``: its ``name`` and ``stored``."""
    return Tensor(f"values {tensors.content_hash(x)}", title, x.shape, lambda: x, **more)


@dataclass(frozen=True)
class Current:
    """The tensor and the scheme, or the sentences that say why there is none.

    ``problems``: all of them; ``acting``: those with what acts on the page.
    ``hint``: what to do next, where nothing is wrong but there is no tensor yet.
    ``used``: "tensor" and "scheme", as far as they act on the page.
    """

    tensor: Tensor | None
    scheme: qc.Scheme | None
    problems: tuple[str, ...] = ()
    acting: tuple[str, ...] = ()
    hint: str = ""
    used: frozenset[str] = frozenset({"tensor", "scheme"})


def put(current: Current) -> None:
    """Hand over to the page of this run."""
    st.session_state[_KEY] = current


def get() -> Current:
    """Take over in a page."""
    return cast(Current, st.session_state[_KEY])
