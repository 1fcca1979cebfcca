"""A bound on the time that something takes, which holds on a machine that is busy, too."""

import contextlib
import time
from collections.abc import Iterator


@contextlib.contextmanager
def in_seconds(most: float, what: object = "") -> Iterator[None]:
    """Allow what stands inside so much processor time of this thread.

    Two threads that share a core slow each other down two or three times: a bound is at least five times what
    an idle machine takes, and what it is to find takes longer still.
    """
    start = time.thread_time()
    yield
    taken = time.thread_time() - start
    assert taken < most, f"{taken:.1f} s of at most {most:g} {what}"
