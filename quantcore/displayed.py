"""How results show themselves: one line as text, and in a notebook a card.

Both are written by `quantcore.notebook`, which knows everything that computes; a result only asks for them.
"""

from collections.abc import Callable
from typing import Any, Protocol


class Writer(Protocol):
    """What writes the line and the card of any result."""

    def line(self, of: Any) -> str:
        """Return one line of text."""

    def card(self, of: Any) -> str:
        """Return HTML."""


_writer: list[Callable[[], Any]] = []


def write_with(writer: Callable[[], Any]) -> None:
    """Set what loads the `Writer`: it is asked for when the first result is shown."""
    _writer[:] = [writer]


class Displayed:
    """A result that says itself in one line, and is a card in a notebook. Neither raises an error."""

    def __repr__(self) -> str:
        """Return one line."""
        return str(_writer[0]().line(self))

    def _repr_html_(self) -> str:
        """Return a card for notebooks: inline styles only, no script, readable without any style."""
        return str(_writer[0]().card(self))
