"""A tensor with one value changed: the one whose cell is dragged."""

import math

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared.computing import cache
from pages.shared.state.selection import EDITED, PageTensor, of_values

MOST = 4096  # elements of a tensor whose values can be dragged: afterwards it is a text
_LAST = "_value_changed"  # the key of the tensor that was made last, and what was moved for it


def last(tensor: PageTensor | None) -> tuple[float, ...] | None:
    """Return index and value that made this tensor of another, as `nothing` if none did.

    None if no value of it can be dragged: it is large, an image, or in float64.
    """
    if tensor is None or not 0 < tensor.elements <= MOST or tensor.dtype == "float64" or tensor.is_image:
        return None
    key, ends = st.session_state.get(_LAST, ("", ()))
    return ends if key == tensor.key else nothing(tensor)


def nothing(tensor: PageTensor) -> tuple[float, ...]:
    """Return what stands for no index and no value."""
    return (*(-1,) * len(tensor.shape), 0)


def moved(tensor: PageTensor, typed: str) -> tuple[PageTensor, tuple[int, ...], tuple[float, ...]]:
    """Return the tensor with a value changed, its index, and index and value.

    Args:
        typed: index and value, such as ``3,5,-0.25``.

    Raises:
        QuantError: the tensor has no such element, or the value is not a float32 number.
    """
    x, index, value = _with(tensor, typed)
    return of_values(x, EDITED).in_dtype(tensor.dtype), index, (*index, value)


def take(tensor: PageTensor, typed: str) -> tuple[np.ndarray, tuple[int, ...], float]:
    """Return the values of `moved` before they are in the dtype, index and value; remember it for `last`.

    Raises:
        QuantError: as `moved`.
    """
    found, index, ends = moved(tensor, typed)
    st.session_state[_LAST] = (found.key, ends)
    return (found.source or found).load(), index, ends[-1]


def _with(tensor: PageTensor, typed: str) -> tuple[np.ndarray, tuple[int, ...], float]:
    *places, number = typed[:400].split(",")
    shape = tensor.shape
    inside = len(places) == len(shape) and all(
        place.isdecimal() and int(place[:9]) < n for place, n in zip(places, shape, strict=True)
    )
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not inside or not abs(value) <= float(np.finfo(np.float32).max):
        spans = "".join(f"an index from 0 to {n - 1}, " for n in shape)
        raise qc.QuantError(f"A changed value is written as {spans}and a float32 number, not {typed[:40]!r}.")
    index = tuple(map(int, places))
    x = cache.values(tensor.source or tensor).float().numpy().copy()
    x[index] = value
    return x, index, value
