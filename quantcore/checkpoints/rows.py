"""Boxes of rows, so that checking a weight of any size takes bounded memory."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from typing import TypeVar

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.errors import QuantError

Result = TypeVar("Result")
ELEMENTS = 1 << 21  # per box: 8 MB of float32
MOST_ELEMENTS = 100_000_000  # of one row, such as an expert: a box holds at least one row
IN_MEMORY = 1 << 28  # bytes; for weights up to this size, what every box needs is read once and kept


class TooLong(QuantError):
    """A row of a weight has too many elements for a check."""


def refuse_long(elements: int, reason: str = "{:,} elements must be read at once") -> None:
    """Refuse to read more than `MOST_ELEMENTS` at once.

    Args:
        reason: the beginning of the sentence; ``{:,}`` stands for the number of elements.

    Raises:
        TooLong: there are more.
    """
    if elements > MOST_ELEMENTS:
        raise TooLong(f"{reason.format(elements)}, more than the limit of {MOST_ELEMENTS:,}.")


def rows_per_box(rows: int, width: int, multiple: int, elements: int) -> int:
    """Return how many rows a box has, all but the last.

    Args:
        multiple: how many adjacent rows must stay in one box.
        elements: of a box, if that many rows fit.

    Raises:
        TooLong: even the smallest box would have too many elements.
    """
    refuse_long(width * min(multiple, rows))
    return max(1, elements // max(1, width * multiple)) * multiple


def boxes(layout: Layout) -> Iterator[slice]:
    """Yield slices of axis 0 that cover a weight.

    Raises:
        TooLong: even one row has too many elements.
    """
    rows = layout.shape[0]
    step = rows_per_box(rows, prod(layout.shape[1:]), 1, ELEMENTS)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def ready(layout: Layout, codes: bool = False) -> Layout:
    """Return the layout with what every box needs in memory, unless the weight is large.

    Args:
        codes: load the codes in any case, because they are read twice; values that are stored as they are,
            never.
    """
    return layout.loaded(codes and not layout.is_plain) if layout.num_bytes <= IN_MEMORY else layout


def results_in_order(calls: Iterable[Callable[[], Result]], threads: int) -> Iterator[Result]:
    """Yield the results of calls in order, of which several run at the same time."""
    if threads <= 1:
        yield from (call() for call in calls)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="rows") as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for call in calls:
                waiting.append(pool.submit(call))
                if len(waiting) > 2 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
