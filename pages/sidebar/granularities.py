"""What a granularity begins with when it is chosen, and its controls as the maps follow them.

The choice of a granularity is at its place in `PER`; sizes and axes are numbers.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

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
KEYS = {
    "per": "One scale per",
    "axis": "Axis",
    "group": "Group size",
    "group_axis": "Along axis",
    "group_all": "Shared by all",
    "block": "Block shape",
}


class _Group(NamedTuple):
    """A group along an axis; ``shared``: whether all indices of the other axes have one scale together."""

    size: int
    axis: int
    shared: bool

    @classmethod
    def of(cls, granularity: qc.Granularity, shape: tuple[int, ...]) -> "_Group | None":
        """Return a granularity as a group; None if it is none, or a block of which the axis can't be told."""
        match granularity:
            case qc.PerGroup(size, axis):
                return cls(size, axis, False)
            case qc.PerBlock(lengths) if len(lengths) == len(shape):
                shorter = [axis for axis, n in enumerate(lengths) if n != shape[axis]]
                return cls(lengths[shorter[0]], shorter[0], True) if len(shorter) == 1 else None
        return None

    def granularity(self, shape: tuple[int, ...]) -> qc.PerGroup | qc.PerBlock:
        """Return the granularity of the group."""
        if not self.shared:
            return qc.PerGroup(self.size, self.axis)
        return qc.PerBlock(tuple(self.size if axis == self.axis else n for axis, n in enumerate(shape)))


def controls(granularity: qc.Granularity, option: str, shape: tuple[int, ...]) -> Controls:
    """Return what the controls of a granularity stand at, by key.

    Args:
        option: the one chosen; for a group that all rows or columns share, a block does not tell it.
        shape: of the tensor.
    """
    place = {"per": ([*PER].index(option),)} if option in PER else {}
    match granularity:
        case qc.PerChannel(axis):
            return {**place, "axis": (axis,)}
        case qc.PerFlatGroup(size):
            return {**place, "group": (size,)}
        case qc.PerBlock(lengths) if option == "block":
            return {**place, "block": lengths}
    group = _Group.of(granularity, shape)
    if group is None:
        return place
    shared = {"group_all": (int(group.shared),)} if len(shape) > 1 else {}
    return {**place, "group": (group.size,), "group_axis": (group.axis,), **shared}


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
        numbers = _numbers(key, values[key]) if key in values else None
        if numbers is None or numbers == at.get(key):
            continue
        number, group = numbers[0], _Group.of(found, shape) if option == "group" else None
        match key, found:
            case "per", _:
                if number >= len(PER):
                    raise qc.QuantError(f"{KEYS[key]} must be from 0 to {len(PER) - 1}, not {number}.")
                option = [*PER][number]
                found = begun(option, shape, scheme.convention)
            case "group", qc.PerFlatGroup():
                found = qc.PerFlatGroup(number)
            case "axis", qc.PerChannel():
                found = qc.PerChannel(number)
            case "block", qc.PerBlock() if option == "block":
                found = qc.PerBlock(numbers)
            case "group", _ if group:
                found = group._replace(size=number).granularity(shape)
            case "group_axis", _ if group:
                found = group._replace(axis=number).granularity(shape)
            case "group_all", _ if group:
                found = group._replace(shared=bool(number)).granularity(shape)
    return found, option


def _numbers(key: str, typed: str) -> tuple[int, ...]:
    """Return the numbers that a request names; one, but of a block one per axis, where -1 is a whole axis."""
    parts = typed[:400].split(",") if key == "block" else [typed]
    for part in parts:
        whole = key == "block" and part == "-1"
        if not whole and not (part.isascii() and part.isdecimal() and len(part) <= 12):
            raise qc.QuantError(f"{KEYS[key]} must be an integer from 0, not {part[:40]!r}.")
    if key == "group_all" and typed not in ("0", "1"):
        raise qc.QuantError(f"{KEYS[key]} must be 0 (no) or 1 (yes), not {typed[:40]!r}.")
    return tuple(map(int, parts))


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
