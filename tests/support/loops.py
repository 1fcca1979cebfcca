"""Run coroutines in tests."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def finish(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a thread of its own: after browser tests, this one has Playwright's loop."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, main).result()
