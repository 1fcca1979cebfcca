"""What the controls chose, for the page that runs after them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import streamlit as st

import quantcore as qc

_KEY = "_current"


@dataclass(frozen=True)
class Tensor:
    """The chosen tensor. ``key`` names its content: equal keys, equal values.

    ``recipe``: Python that binds ``x`` to it by quantcore's means; None where it is known by its values alone.
    """

    key: str
    title: str
    shape: tuple[int, ...]
    load: Callable[[], np.ndarray]
    recipe: str | None = None


@dataclass(frozen=True)
class Current:
    """The tensor and the scheme, or the sentences that say why there is none.

    ``hint``: what to do next, where nothing is wrong but there is no tensor yet.
    """

    tensor: Tensor | None
    scheme: qc.Scheme | None
    problems: tuple[str, ...] = ()
    hint: str = ""


def put(current: Current) -> None:
    """Hand over to the page of this run."""
    st.session_state[_KEY] = current


def get() -> Current:
    """Take over in a page."""
    return cast(Current, st.session_state[_KEY])
