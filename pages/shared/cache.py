"""All cached calls; quantcore itself has no caches for pages.

Cache keys are text: the content key of the tensor, the text of the scheme, the name of the result. (Streamlit would
hash arrays of 500,000 elements or more by a sample, and ignore the class of nested dataclasses.) Arguments with a
leading underscore are not hashed. Cached objects are shared by all visitors: never modify them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import streamlit as st

import quantcore as qc
from pages.shared.selection import Tensor
from quantcore.analysis import MapData, View, map_data
from quantcore.quantization import apply_quietly

T = TypeVar("T")
LARGE = 1 << 20  # elements; for larger tensors only the latest results stay cached


@st.cache_resource(max_entries=300, show_spinner=False)
def _small(key: str, _make: Callable[[], Any]) -> Any:
    return _make()


@st.cache_resource(max_entries=8, show_spinner="Computing…")
def _large(key: str, _make: Callable[[], Any]) -> Any:
    return _make()


def cached(tensor: Tensor, what: str, make: Callable[[], T]) -> T:
    """Return ``make()``, computed once for this tensor and ``what``."""
    found = _large if size(tensor) > LARGE else _small
    return cast(T, found(f"{tensor.key}|{what}", make))


def cached_small(tensor: Tensor, what: str, make: Callable[[], T]) -> T:
    """`cached` for results that are small whatever the tensor: they do not displace large results."""
    return cast(T, _small(f"{tensor.key}|{what}", make))


def size(tensor: Tensor) -> int:
    """Number of elements."""
    return int(np.prod(tensor.shape, dtype=np.int64))


def values(tensor: Tensor) -> np.ndarray:
    """The tensor's values; never modify them."""
    return cached(tensor, "values", tensor.load)


def result(tensor: Tensor, scheme: qc.Scheme) -> qc.Quantized:
    """`quantcore.apply`.

    Raises:
        QuantError: the scheme does not fit the tensor.
    """

    def make() -> qc.Quantized:
        return apply_quietly(values(tensor), scheme)  # the page shows result.warnings

    return cached(tensor, f"result {scheme}", make)


def fitted(tensor: Tensor, scheme: qc.Scheme, size: int, method: str) -> qc.Scheme:
    """`quantcore.fit_scheme`.

    Raises:
        QuantError: no codebook can be fitted, or the scheme does not fit the tensor.
    """
    make = partial(qc.fit_scheme, values(tensor), scheme, size, method)
    return cached(tensor, f"fitted {size} {method} {scheme}", make)


def report(tensor: Tensor, scheme: qc.Scheme) -> qc.Report:
    """`quantcore.report` of `result`."""
    return cached(tensor, f"report {scheme}", lambda: qc.report(result(tensor, scheme)))


def drawn(tensor: Tensor, scheme: qc.Scheme, view: View, against: qc.Scheme | None = None) -> MapData:
    """`quantcore.analysis.map_data` of `result`, compared with the errors of the scheme ``against`` if given."""

    def make() -> MapData:
        return map_data(result(tensor, scheme), view, None if against is None else result(tensor, against))

    return cached(tensor, f"map {view} {scheme} {against}", make)
