"""Python's collection of cycles, paused while many objects are made that have none.

It looks at all objects of a generation whenever some more have been made, at each of those of a checkpoint of 100,000
tensors ten times: that took more than half of the time of listing it.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses:
    """How many threads pause it now, and whether it runs otherwise."""

    def __init__(self) -> None:
        self.lock, self.count, self.was_enabled = threading.Lock(), 0, False


_pauses = _Pauses()


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause it, for all threads; for work that waits for nothing. Also a decorator."""
    with _pauses.lock:
        if not _pauses.count:
            _pauses.was_enabled = gc.isenabled()
            gc.disable()
        _pauses.count += 1
    try:
        yield
    finally:
        with _pauses.lock:
            _pauses.count -= 1
            if not _pauses.count and _pauses.was_enabled:
                gc.enable()
