"""Running a method that yields its steps to the end."""

from collections.abc import Generator
from typing import Any, TypeVar

Result = TypeVar("Result")


def finished(steps: Generator[Any, None, Result]) -> Result:
    """Return what a generator of steps returns after the last."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Result = end.value
            return found
