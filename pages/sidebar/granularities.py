"""What a granularity begins with when it is chosen, and its controls as the maps follow them.

The choice of a granularity is at its place in `PER`; sizes and axes are numbers.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import quantcore as qc
from pages.shared.state.selection import Controls

# option -> what is shown
PER = {
    "tensor": "tensor",
    "channel": "channel",
    "group": "group",
    "flat_group": "flat group",
    "block": "block",
}
# key -> label; an option first, since its own controls begin anew
KEYS = {"per": "One scale per", "axis": "Axis", "group": "Group size", "group_axis": "Along axis"}


def controls(granularity: qc.Granularity, option: str) -> Controls:
    """Return what the controls of a granularity stand at, by key.

    Args:
        option: the one chosen; for a group that all rows or columns share, a block does not tell it.
    """
    place = {"per": ([*PER].index(option),)} if option in PER else {}
    match granularity:
        case qc.PerChannel(axis):
            return {**place, "axis": (axis,)}
        case qc.PerGroup(size, axis):
            return {**place, "group": (size,), "group_axis": (axis,)}
        case qc.PerFlatGroup(size):
            return {**place, "group": (size,)}
    return place


def chosen(at: Controls) -> str:
    """Return the option that the controls stand at; empty if they have none."""
    return [*PER][int(at["per"][0])] if "per" in at else ""


def moved(
    scheme: qc.Scheme, shape: tuple[int, ...], values: Mapping[str, str], at: Controls
) -> tuple[qc.Granularity, str]:
    """Return granularity and option after controls were moved to these values, by key.

    Args:
        at: what the controls stood at: what stands there still has not been moved.

    Raises:
        QuantError: a control does not have such a value.
    """
    found, option = scheme.granularity, chosen(at)
    for key in KEYS:
        number = _number(key, values[key]) if key in values else None
        if number is None or (number,) == at.get(key):
            continue
        match key, found:
            case "per", _:
                if number >= len(PER):
                    raise qc.QuantError(f"{KEYS[key]} must be from 0 to {len(PER) - 1}, not {number}.")
                option = [*PER][number]
                found = begun(option, shape, scheme.convention)
            case "group", qc.PerGroup() | qc.PerFlatGroup():
                found = replace(found, size=number)
            case "axis", qc.PerChannel():
                found = qc.PerChannel(number)
            case "group_axis", qc.PerGroup(size):
                found = qc.PerGroup(size, number)
    return found, option


def _number(key: str, typed: str) -> int:
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= 12):
        raise qc.QuantError(f"{KEYS[key]} must be an integer from 0, not {typed[:40]!r}.")
    return int(typed)


def begun(option: str, shape: tuple[int, ...], convention: qc.Convention) -> qc.Granularity:
    """Return the granularity of an option that was just chosen."""
    last = max(1, len(shape)) - 1
    match option:
        case "channel":
            return qc.PerChannel(0)
        case "group":
            length = shape[-1] if shape else 1
            return qc.PerGroup(default_group_size(length, bool(group_divides(convention))), last)
        case "flat_group":
            divides = bool(allowed(convention, "divides"))
            return qc.PerFlatGroup(default_group_size(math.prod(shape), divides))
        case "block":
            return qc.PerBlock(block_lengths(shape))
    return qc.PerTensor()


def block_lengths(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return 2 × 2 on the last two axes, 1 on the others, and never longer than the axis."""
    return tuple(min(n, 2 if i >= len(shape) - 2 else 1) for i, n in enumerate(shape)) or (1,)


def group_divides(convention: qc.Convention) -> tuple[Any, ...] | None:
    """Return what groups of the library must divide; None if they need not."""
    return allowed(convention, "divides") or allowed(convention, "group_divides")


def allowed(convention: qc.Convention, what: str) -> tuple[Any, ...] | None:
    """Return the values of a property that the library supports; None if it supports all."""
    return next((limit.allowed for limit in convention.limits if limit.of == what), None)


def default_group_size(length: int, must_divide: bool = False) -> int:
    """Return the default group size along an axis of ``length``.

    The largest of 32, 16, 8, 4 and 2 that divides the axis. If none does: the largest power of two up to 32
    that fits, with a shorter last group; for a library that does not support that, the whole axis if it has 4
    to 1,024 elements, else 1.

    ======  ================  ====================
    length  last group may    all groups must be
            be shorter        equally long
    ======  ================  ====================
    4096    32                32
    200     8                 8
    33      32                33
    3       2                 1
    ======  ================  ====================
    """
    for size in (32, 16, 8, 4, 2):
        if length % size == 0:
            return size
    if must_divide:
        return length if 3 < length <= 1024 else 1  # a group of 3 would look like a deliberate choice
    return next(size for size in (32, 16, 8, 4, 2, 1) if size <= length)
