"""Coroutines in tests."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def finish(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own: a worker that has had a browser has Playwright's loop here."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(asyncio.run, main).result()
