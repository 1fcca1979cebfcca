"""All cached calls; quantcore itself has no caches for pages.

A result's key is text: the key of its content, which is a tensor as a rule, and the name of the result with
the text of the scheme. Cached objects are shared by all visitors: never modify them. A missing result is
computed when it is the visitor's turn, and only once, even if a whole class asks for it at the same moment.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import streamlit as st
from torch import Tensor

import quantcore as qc
from pages.serving.work.admission import Turn
from pages.serving.work.byte_cache import VALUES, ByteCache
from pages.shared.computing import needs, turn
from pages.shared.state.selection import PageTensor
from quantcore import tensors
from quantcore.analysis import MapData, View, map_data, value_data
from quantcore.quantization import apply_quietly

T = TypeVar("T")


@dataclass(frozen=True)
class CacheKey:
    """Content that is not a tensor of the page, such as a checkpoint or a part of one.

    Attributes:
        key: names the content: equal keys, equal results.
        elements: how many floats it takes in memory.
    """

    key: str
    elements: int = 1

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return 4 * self.elements


Content = PageTensor | CacheKey  # what results are kept for

LARGE = 1 << 20  # elements; larger tensors and their results share the gate's memory with the tensors in work
_SMALL_BYTES = 64_000_000  # for the results of all other tensors
_SHARED, _MOST_SHARED = "_shared_records", 4  # records of a kind that a visitor keeps
_RECORDS = 32_000  # bytes; roughly what a small tensor's result takes without arrays of the tensor's size

_small = ByteCache(lambda: _SMALL_BYTES, entries=2000)
_large = ByteCache(turn.GATE.idle_bytes, turn.GATE.in_work, entries=300)
turn.GATE.on_change.append(_large.make_room)


def cached(
    content: Content,
    what: str,
    make: Callable[[], T],
    need: float = needs.USUAL,
    *,
    long: bool = False,
    small: bool = False,
) -> T:
    """Return ``make()``, computed once for this content and ``what``, when it is this run's turn.

    Args:
        need: memory that the run needs to work with the result, in multiples of the content; see `needs`.
        long: whether ``make`` takes seconds even for small content.
        small: whether the result is small even for large content, so that large results do not displace it.
    """
    is_large, bytes_ = content.elements > LARGE, content.nbytes
    cache = _large if is_large and not small else _small
    with turn.current() as own, ExitStack() as shown:

        def elsewhere() -> None:
            shown.enter_context(own.without_place())
            shown.enter_context(turn.computing(is_large))
            turn.check()

        def here() -> T:
            with turn.computing(is_large):
                return make()

        return cast(
            T,
            cache.get(
                content.key,
                what,
                here,
                lambda useless: own.need(int(need * bytes_), content.key, long=long, useless=useless),
                elsewhere,
                None if cache is _large else min(3 * bytes_, _SMALL_BYTES // 64) + _RECORDS,
            ),
        )


def peek(content: Content, what: str) -> Any:
    """Return a result of `cached` if it is known, else None."""
    return (_large if content.elements > LARGE else _small).peek(content.key, what)


def cached_small(
    content: Content, what: str, make: Callable[[], T], need: float = needs.USUAL, *, long: bool = False
) -> T:
    """Return as `cached` a small result."""
    return cached(content, what, make, need, long=long, small=True)


def shared_record(content: Content, what: str, make: Callable[[], T]) -> T:
    """Return as `cached_small` a record that work adds to: all visitors share it, and those who use it keep
    their latest few even if the cache forgets it.
    """
    mine: OrderedDict[str, T] = st.session_state.setdefault(_SHARED, {}).setdefault(what, OrderedDict())
    if content.key not in mine:
        mine[content.key] = cached_small(content, what, make)
    mine.move_to_end(content.key)
    while len(mine) > _MOST_SHARED:
        mine.popitem(last=False)
    return mine[content.key]


@contextmanager
def turn_of(
    content: Content, need: float, *, long: bool = False, useless: Callable[[], bool] = lambda: False
) -> Iterator[Turn]:
    """Wait until it is this run's turn to do something with content whose result is not cached.

    Args:
        need, long: as for `cached`.
        useless: whether another visitor has done it meanwhile, so that waiting is needless.
    """
    with turn.current() as own:
        own.need(int(need * content.nbytes), content.key, long=long, useless=useless)
        yield own


def too_much(content: Content, need: float) -> str:
    """Return a sentence if no run may need so many times the content's size, else an empty text."""
    return turn.GATE.too_much(int(need * content.nbytes))


def bytes_cached() -> int:
    """Return the bytes of all cached tensors and results."""
    return _small.bytes + _large.bytes


def values(tensor: PageTensor) -> Tensor:
    """Return the tensor's values in its dtype; never modify them."""
    return _converted(tensor)[0].to(tensors.DTYPES[tensor.dtype])


def conversion(tensor: PageTensor) -> tensors.Conversion:
    """Return what its dtype changes in the tensor's values."""
    return _converted(tensor)[1]


def known(tensor: PageTensor, x: np.ndarray) -> None:
    """Put into the cache the values that were read to compute the tensor's key."""
    cached(tensor, VALUES, lambda: tensors.rounded_to(x, tensor.dtype))


def _converted(tensor: PageTensor) -> tuple[Tensor, tensors.Conversion]:
    """Return the values as results hold them, half precision as float32, so that results need no copies."""

    def make() -> tuple[Tensor, tensors.Conversion]:
        source = tensor.source
        # a file need not be read again for another dtype
        cache = _large if tensor.elements > LARGE else _small
        found = cache.peek(source.key, VALUES) if source else None
        return tensors.rounded_to(found[0].numpy() if found else tensor.load(), tensor.dtype)

    return cached(tensor, VALUES, make)


def of_scheme(tensor: PageTensor, scheme: qc.Scheme, what: str, make: Callable[[], T]) -> T:
    """Return as `cached` what a page shows of a tensor under a scheme."""
    return cached(tensor, f"{what} {scheme}", make, needs.of(scheme, tensor.shape))


def result(tensor: PageTensor, scheme: qc.Scheme) -> qc.Quantized:
    """Return `quantcore.apply`.

    Raises:
        QuantError: the scheme does not fit the tensor.
    """

    # quietly: the page shows result.warnings
    dtype = tensors.DTYPES[tensor.dtype]
    make = lambda: apply_quietly(_converted(tensor)[0], scheme, dtype=dtype)  # noqa: E731
    return of_scheme(tensor, scheme, "result", make)


def is_known(tensor: PageTensor, scheme: qc.Scheme) -> bool:
    """Tell whether `result` need not be computed."""
    return peek(tensor, f"result {scheme}") is not None


def original(tensor: PageTensor) -> MapData:
    """Return the map of a matrix's own values, before any scheme."""
    return cached_small(tensor, "original", lambda: value_data(_converted(tensor)[0].float(), None))


def fitted(tensor: PageTensor, scheme: qc.Scheme, size: int, method: str) -> qc.Scheme:
    """Return `quantcore.fit_scheme`.

    Raises:
        QuantError: no codebook can be fitted, or the scheme does not fit the tensor.
    """
    what = f"fitted {size} {method}"
    return of_scheme(tensor, scheme, what, lambda: qc.fit_scheme(values(tensor), scheme, size, method))


def report(tensor: PageTensor, scheme: qc.Scheme) -> qc.Report:
    """Return `quantcore.report` of `result`."""
    return of_scheme(tensor, scheme, "report", lambda: qc.report(result(tensor, scheme)))


def drawn(
    tensor: PageTensor, scheme: qc.Scheme, view: View, against: qc.Scheme | None = None, *, rms: bool = False
) -> MapData:
    """Return `quantcore.analysis.map_data` of `result`, compared with the errors of ``against`` if given."""

    def make() -> MapData:
        other = None if against is None else result(tensor, against)
        return map_data(result(tensor, scheme), view, other, rms=rms)

    return of_scheme(tensor, scheme, f"map {view} {against} {rms}", make)
