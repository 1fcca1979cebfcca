"""A finding before it is given its source."""

from typing import NamedTuple


class Found(NamedTuple):
    """A finding before it is given its source: see `CodeFinding`."""

    kind: str
    line: int
    what: str
    fix: str
    certain: bool = True
