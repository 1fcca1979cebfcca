"""Tests that try only some of their cases by default, and all of them with `python -m pytest -m slow`."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Part = Callable[[Iterable[Any]], list[Any]]


def some(cases: Iterable[Any], every: int = 4) -> list[Any]:
    """Parameters for a test: every ``every``-th case runs by default, the others are marked slow."""
    return [
        case if number % every == 0 else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def some_rows(cases: Iterable[tuple[Any, ...]], every: int = 3) -> list[Any]:
    """As `some`, for parameters of several values."""
    return [
        case if number % every == 0 else pytest.param(*case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def in_parts(every: int = 4) -> Any:
    """Decorate a test that loops over cases: ``part(cases)`` is every ``every``-th, all in the slow run."""
    some_of: Part = lambda cases: list(cases)[::every]  # noqa: E731
    return pytest.mark.parametrize(
        "part", [pytest.param(some_of, id="part"), pytest.param(list, id="all", marks=pytest.mark.slow)]
    )
