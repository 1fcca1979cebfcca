"""Pause Python's garbage collector while many objects without reference cycles are created.

The collector scans all objects of a generation whenever enough new ones exist. For a checkpoint of 100,000
tensors, it scanned each object ten times, which took more than half of the time of listing them.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

# how many threads are pausing the collector, and whether it was enabled before
_pauses = SimpleNamespace(lock=threading.Lock(), count=0, was_enabled=False)


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector in all threads, for work that never blocks. Also a decorator."""
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
