"""What the usual check goes through in part, and the slow one as a whole (`python -m pytest -m slow`)."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Part = Callable[[Iterable[Any]], list[Any]]


def some(cases: Iterable[Any], every: int = 3) -> list[Any]:
    """Parameters of a test: one of ``every`` for the usual check, the others marked slow."""
    return [
        case if number % every == 0 else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def in_parts(every: int = 3) -> Any:
    """Decorate a test that goes through many cases by itself: ``part(cases)`` is one of ``every``, or all when slow."""
    some_of: Part = lambda cases: list(cases)[::every]  # noqa: E731
    return pytest.mark.parametrize(
        "part", [pytest.param(some_of, id="part"), pytest.param(list, id="all", marks=pytest.mark.slow)]
    )
