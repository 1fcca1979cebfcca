"""einops' patterns, such as ``o (n g) -> o n g``, as reshapes, transpositions, reductions and repetitions."""

import math
import re
from dataclasses import dataclass

from quantcore.pasted.bounds import require

REDUCTIONS = ("max", "min", "sum", "mean", "prod")
_TOKEN = re.compile(r"\(|\)|\.\.\.|[A-Za-z_]\w*|1")
_BROKEN = "this pattern of einops is not followed"


@dataclass(frozen=True)
class Arranged:
    """A pattern on a shape, step by step.

    ``split``: the shape in which each axis has a name; ``reduced``: axes that are reduced; ``order``: of
    those that stay; ``expanded``: the shape with an axis of size 1 for each new one, and ``repeated`` to
    these sizes; ``merged``: the last shape.
    """

    split: tuple[int, ...]
    reduced: tuple[int, ...]
    order: tuple[int, ...]
    expanded: tuple[int, ...]
    repeated: tuple[int, ...]
    merged: tuple[int, ...]


def arrange(pattern: str, shape: tuple[int, ...], sizes: dict[str, int], way: str) -> Arranged:
    """Return the steps of a pattern.

    Args:
        way: "rearrange", "repeat", or one of `REDUCTIONS`.

    >>> arrange("o (n g) -> o n g", (4, 6), {"g": 3}, "rearrange").split
    (4, 2, 3)

    Raises:
        StopError: the pattern is not one, or does not fit the shape.
    """
    sides = [_groups(side) for side in pattern.split("->")]
    require(len(sides) == 2, _BROKEN)
    missing = len(shape) - len(sides[0]) + 1
    left, right = ([one for group in side for one in _named_dots(group, missing)] for side in sides)
    require(len(left) == len(shape), "the pattern of einops has not the axes of its tensor", refused=False)
    known = _sizes(left, shape, sizes)
    before, after = ([name for group in side for name in group] for side in (left, right))
    unique = len(set(before)) == len(before) and len(set(after)) == len(after)
    require(unique, _BROKEN, refused=False)
    new, gone = [n for n in after if n not in before], [n for n in before if n not in after]
    known |= {name: sizes[name] for name in new if name in sizes}
    fits = not (new and way != "repeat") and not (gone and way not in REDUCTIONS)
    require(fits and known.keys() >= set(after), _BROKEN, refused=False)
    kept = [name for name in before if name in after]
    return Arranged(
        tuple(known[name] for name in before),
        tuple(i for i, name in enumerate(before) if name in gone),
        tuple(kept.index(name) for name in after if name in kept),
        tuple(1 if name in new else known[name] for name in after),
        tuple(known[name] if name in new else 1 for name in after),
        tuple(math.prod(known[name] for name in group) for group in right),
    )


def _groups(side: str) -> list[list[str] | str]:
    """Return the axes of one side: a list of names for each, empty for one of size 1; ``...`` as a text."""
    require(not _TOKEN.sub("", side).strip(), _BROKEN, refused=False)
    found: list[list[str] | str] = []
    group: list[str] = []
    inside = False
    for token in _TOKEN.findall(side):
        if token in "()":
            require(inside == (token == ")"), _BROKEN, refused=False)
            inside = token == "("
            if inside:
                group = []
                found.append(group)
        elif inside:
            group += [token] * (token != "1")
        else:
            found.append(token if token == "..." else [token] * (token != "1"))
    require(not inside, _BROKEN, refused=False)
    return found


def _named_dots(group: list[str] | str, missing: int) -> list[list[str]]:
    """Return a group with a name for each axis that ``...`` stands for; on its own, it is a text."""
    names = [f"…{i}" for i in range(max(missing, 0))]
    if isinstance(group, str):
        return [[name] for name in names]
    if "..." not in group:
        return [group]
    at = group.index("...")
    return [[*group[:at], *names, *group[at + 1 :]]]


def _sizes(left: list[list[str]], shape: tuple[int, ...], sizes: dict[str, int]) -> dict[str, int]:
    """Return the size of each axis on the left, one of each group from the others."""
    known: dict[str, int] = {}
    for group, length in zip(left, shape, strict=True):
        own = {name: sizes[name] for name in group if name in sizes}
        open_ = [name for name in group if name not in own]
        product = math.prod(own.values())
        require(len(open_) <= 1 and product > 0 and length % product == 0, _BROKEN, refused=False)
        require(bool(open_) or product == length, _BROKEN, refused=False)
        known |= own | dict.fromkeys(open_, length // product)
    return known
