"""Follows code that works element by element: the same steps on each element are one step on the tensor.

Each element, row or group that a loop visits is a lane. A test on an element runs both branches, and each
assignment in them keeps the old value where the test is not so; thus all lanes take the same steps. Where
their results come together, in a list or in the elements of a tensor, each step becomes one value.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.bounds import ARRAYS, NUMBERS, shape_of
from quantcore.pasted.levels import TableCodes
from quantcore.pasted.names import Allowed
from quantcore.pasted.values import Override, Val, Vals

_RUNNING = "running"  # the name of a reduction over elements that the code visits one after another
_MOST_LANES = 1 << 12
_DEEPEST = 8  # of lists in lists
_MOST_VISITED = 1 << 16  # values in lists, each as often as it is in one
COLLECT = {
    "array", "asarray", "tensor", "as_tensor", "stack", "cat", "concat", "concatenate", "hstack", "vstack",
}  # fmt: skip


class AssignedCells:
    """What code assigned to a tensor, element by element or region by region.

    ``lanes``: the value of each region, by its places in the flattened tensor; ``held``: the region that each
    place belongs to.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.lanes: dict[tuple[int, ...], Val] = {}
        self.held: dict[int, tuple[int, ...]] = {}

    def put(self, places: tuple[int, ...], val: Val | None) -> None:
        """Assign a value to a region; None for a value that does not have its size."""
        for place in places:
            region = self.held.get(place)
            if region is not None and region != places:
                self.lanes.pop(region, None)
                for other in region:
                    del self.held[other]
        if val is None:
            for place in places:
                self.held.pop(place, None)
            self.lanes.pop(places, None)
        else:
            self.lanes[places] = val
            self.held.update(dict.fromkeys(places, places))


@dataclass(eq=False)
class Lanes(TableCodes):
    """One evaluation of the code: its lanes.

    ``branches``: the tests on elements whose branches are being run, each with the value that leads to it;
    ``appended``: for each of these, what it appends to lists.
    """

    branches: list[tuple[Val, bool]] = field(default_factory=list)
    appended: list[list[tuple[Val, Val]]] = field(default_factory=list)

    @property
    def taken(self) -> bool:
        """Whether the branch that is being run is the one that Python would run."""
        return all(bool(test.value) == wanted for test, wanted in self.branches)

    def note(self, value: Any, op: str = "number", args: Vals = (), name: str = "") -> Val:
        """Append a value, as `TableCodes.note`; a sum over lanes is not an element."""
        later = {"setitem": len(args), "getitem": 1, "pack": len(args)}.get(op, 0)  # an index is needed now
        for a in args[later:]:
            if a.op == "setitem":
                self.gather_cells(a)
        if op == "add" and len(args) == 2 and _running(*args):
            op, name = "reduce", _RUNNING
        val = super().note(value, op, args, name)
        if op in ("other", "binary"):
            val.of_element = any(a.of_element or (a.data and is_scalar(a)) for a in args)
        return val

    def chosen(self, value: Val, old: Val | None) -> Val:
        """Return what a branch assigns: the value if it is taken, else the old one."""
        if not self.branches:
            return value
        if old is None or not (is_scalar(value) and is_scalar(old)):
            return value if self.taken or old is None else old
        return self.either(self.taken, value, old, tuple(test for test, _ in self.branches))

    def either(self, first: bool, a: Val, b: Val, tests: Vals) -> Val:
        """Return one of two numbers, as a value that depends on both."""
        running = _running(a, b)
        return self.note(
            (a if first else b).value, "reduce" if running else "where", (a, b, *tests), _RUNNING * running
        )

    def extreme(self, name: str, a: Val, b: Val) -> Val | None:
        """Return the smaller or larger of two numbers if one of them is an element; else None."""
        if not (is_scalar(a) and is_scalar(b) and (a.data or b.data)):
            return None
        better = a.value <= b.value if name == "min" else a.value >= b.value
        chosen = (a if better else b).value
        if _running(a, b):
            return self.note(chosen, "reduce", (a, b), _RUNNING)
        return self.note(chosen, "clamp", (a, b) if a.data else (b, a), name)

    def stored(self, owner: Val, index: Any, made: Val, value: Val, vals: Vals) -> None:
        """Note where an assignment put a value, in the type that it is stored in."""
        places = _places(owner.value, index)
        cells = made.cells = owner.cells or AssignedCells()
        element = made.value[index]
        kept = element.clone() if isinstance(element, Tensor) else np.array(element)[()]
        if math.prod(shape_of(kept)) == math.prod(shape_of(value.value)):
            made.args = (owner, self.note(kept, "cast", (value,)), *vals)
            cells.put(places, made.args[1])
        else:
            cells.put(places, None)

    def cell(self, owner: Val, index: Any) -> Val | None:
        """Return the element that code assigned to this place of a tensor, if it did."""
        found = owner.cells.lanes.get(_places(owner.value, index)) if owner.cells else None
        return found if found is not None and found.data else None

    def gather_cells(self, owner: Val) -> None:
        """Make one value of what code assigned to the elements of a tensor, once all of them are."""
        cells = owner.cells
        whole = cells is not None and len(cells.held) == math.prod(shape_of(owner.value))
        if owner.flow is None and cells is not None and whole and not owner.gathered:
            owner.gathered = True
            lanes = sorted(cells.lanes.items())
            if all(lane.data for _, lane in lanes):
                self._flow_into(owner, [lane for _, lane in lanes], [np.array(at) for at, _ in lanes])

    def apply(self, call: Allowed, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call what the white list has; of a list of elements it may make a tensor."""
        found = super().apply(call, args, kw)
        collects = call.name in COLLECT and isinstance(found.value, ARRAYS)
        if collects and args and isinstance(args[0].value, list | tuple):
            self.gather_list(found, args[0].value, "shape" if call.op == "shape" else "cast")
        return found

    def gather_list(self, made: Val, items: Any, op: str = "shape") -> None:
        """Make one value of the elements in a list, which ``made`` holds in their order."""
        lanes = _leaves(items)
        if made.flow is not None or len(lanes) < 2 or not all(isinstance(v, Val) and v.data for v in lanes):
            return
        sizes = [math.prod(shape_of(v.value)) for v in lanes]
        if sum(sizes) == math.prod(shape_of(made.value)):
            ends = np.cumsum(sizes)
            places = [np.arange(end - size, end) for size, end in zip(sizes, ends, strict=True)]
            values = torch.cat([lane.numbers.reshape(-1) for lane in lanes])
            if op == "cast" or values.equal(made.numbers.reshape(-1)):
                self._flow_into(made, lanes, places, op)

    def gather_all(self) -> None:
        """Gather what is left at the end: tensors that elements were assigned to, and lists of elements."""
        used = {id(a) for v in self.vals for a in v.args[:1] if v.op == "setitem"}
        for val in [v for v in self.vals if v.op == "setitem" and id(v) not in used]:
            self.gather_cells(val)
        taken = {id(lane) for v in self.vals for lane in v.lanes}
        lists = [v for v in self.vals if isinstance(v.value, list | tuple) and v.op in ("pack", "number")]
        leaves, room = list[tuple[Val, list[Val]]](), _MOST_VISITED
        for val in reversed(lists):  # what holds others is made last
            leaves.append((val, _leaves(val.value)))
            room -= 2 * _MOST_LANES if not leaves[-1][1] else len(leaves[-1][1])
            if room < 0:
                break
        for val, lanes in sorted(leaves, key=lambda pair: -len(pair[1])):
            numbers = len(lanes) > 1 and all(isinstance(v.value, NUMBERS) and v.data for v in lanes)
            if numbers and not taken & {id(v) for v in lanes}:
                values = [np.asarray(v.numbers) for v in lanes]
                made = self.note(np.concatenate([np.atleast_1d(v).ravel() for v in values]), "pack", (val,))
                self.gather_list(made, val.value)
                taken |= {id(v) for v in lanes}

    def _flow_into(self, made: Val, lanes: list[Val], places: list[Any], op: str = "shape") -> None:
        merged = self._merged(lanes, places, shape_of(made.value))
        if merged is not None:
            made.op, made.flow, made.data, made.varies = op, merged, True, True
            made.args = (*made.args, merged)

    def _merged(self, lanes: list[Val], places: list[Any], shape: tuple[int, ...]) -> Val | None:
        """Return the last of the values that all lanes' steps give, or None if they differ in their steps."""
        if len(lanes) > _MOST_LANES:
            return None
        self.spend(steps=len(lanes))
        columns = [lanes]
        while not _begins(columns[-1]):
            flows = [lane.flow for lane in columns[-1]]
            if any(flow is None for flow in flows):
                return None
            columns.append([flow for flow in flows if flow is not None])
        source = _source(columns[-1])
        if (
            source is None
            or columns[-1][0].flow is None
            or any(len({lane.op for lane in column}) > 1 for column in columns)
        ):
            return None
        found = source
        for column in reversed(columns):
            first = column[0]
            others = tuple(
                found if a is first.flow or column is columns[-1] else self._other(column, k, places, shape)
                for k, a in enumerate(first.args[:1] if column is columns[-1] else first.args)
            )
            made = self.note(_scattered(column, places, shape), first.op, others, first.name)
            made.line, made.op, made.flow, made.data, made.varies = first.line, first.op, found, True, True
            made.levels = first.levels
            made.lanes, made.lane_places, found = tuple(column), tuple(places), made
        return found

    def _other(self, column: list[Val], k: int, places: list[Any], shape: tuple[int, ...]) -> Val:
        """Return an operand that is not the data, of all lanes."""
        vals = [lane.args[k] for lane in column if len(lane.args) > k]
        first, numbers = vals[0], all(isinstance(v.value, NUMBERS) for v in vals)
        if all(v is first for v in vals) or not numbers or len(vals) < len(column):
            return first
        constant = not any(v.varies for v in vals) and len({v.number for v in vals}) == 1
        value = first.value if constant else _scattered(vals, places, shape)
        if value is None:
            return first
        made = self.note(value, first.op, first.args, first.name)
        made.line, made.op, made.flow, made.data = first.line, first.op, None, False
        made.varies, made.handed = any(v.varies for v in vals), any(v.handed for v in vals)
        made.lanes, made.lane_places = tuple(vals), tuple(places)
        return made


def spread(val: Val, override: Override) -> dict[int, Override]:
    """Return an override for a value, or for each lane's of those that it stands for."""
    if not val.lanes:
        return {val.index: override}
    found: dict[int, Override] = {}
    for lane, places in zip(val.lanes, val.lane_places, strict=True):
        if callable(override):
            found[lane.index] = partial(_part, override, places)
        elif isinstance(override, Tensor) and override.numel() > 1:
            found[lane.index] = override.reshape(-1)[places].reshape(shape_of(lane.value))
        else:
            found[lane.index] = override
    return found


def _part(override: Callable[[Val], Tensor], places: Any, lane: Val) -> Tensor:
    """Return of an override for all lanes what is this lane's."""
    found, shape = override(lane), shape_of(lane.value)
    return found if found.numel() == math.prod(shape) else found.reshape(-1)[places].reshape(shape)


def is_scalar(val: Val) -> bool:
    """Tell whether a value is one number, without an axis."""
    return isinstance(val.value, NUMBERS) and not shape_of(val.value)


def _running(a: Val, b: Val) -> bool:
    """Tell whether two numbers belong to different lanes, or one is what came of such."""
    if not (is_scalar(a) and is_scalar(b)):
        return False
    if a.data and b.data:
        return _lane(a) != _lane(b)
    return any(v.op == "reduce" and v.name == _RUNNING and w.data for v, w in ((a, b), (b, a)))


def _lane(val: Val) -> tuple[object, ...]:
    """Return what tells the elements of a tensor apart: where it was taken from it."""
    keys = list[object]()
    while val.flow is not None:
        if val.op == "getitem":
            keys.append(tuple(a.number for a in val.args[1:]) or val.index)
        val = val.flow
    return (val.index, *keys)


def _leaves(items: Any) -> list[Val]:
    """Return the values in lists, and in lists of them; none if there are too many, or too deep."""
    found, stack, room = list[Val](), [iter(items)], 2 * _MOST_LANES
    while stack and room:
        room -= 1
        item = next(stack[-1], None)
        inside = getattr(item, "value", item)
        if item is None:
            stack.pop()
        elif isinstance(inside, list | tuple):
            stack.append(iter(inside))
            room = room if len(stack) <= _DEEPEST else 0
        elif isinstance(item, Val):
            found.append(item)
    return found if room else []


def _begins(column: list[Val]) -> bool:
    """Tell whether these are where lanes begin: parts of a larger tensor, or what has no origin."""
    first = column[0]
    return first.flow is None or math.prod(shape_of(first.flow.value)) > math.prod(shape_of(first.value))


def _source(column: list[Val]) -> Val | None:
    """Return the tensor that all lanes are parts of."""
    found = set[int]()
    for lane in column:
        at = lane
        while at.flow is not None and at.op in ("getitem", "shape", "copy"):
            at = at.flow
        found.add(id(at))
    return at if len(found) == 1 and isinstance(at.value, (*ARRAYS, list)) else None


def _scattered(vals: list[Val], places: list[Any], shape: tuple[int, ...]) -> Any:
    """Return the values of all lanes as one tensor; None if they do not fit."""
    values = [v.value for v in vals]
    torch_types = {v.dtype for v in values if isinstance(v, Tensor)}
    arrays = [v.numpy() if isinstance(v, Tensor) and v.dtype != torch.bfloat16 else v for v in values]
    if len(torch_types) == 1 and torch_types & {torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2}:
        arrays = [v.numpy() for v in (val.numbers for val in vals)]
    numbers = all(np.size(v) == 1 for v in arrays)
    dtype = np.array([np.asarray(v).reshape(-1)[0] for v in arrays]).dtype
    if not numbers:
        dtype = np.result_type(*arrays)
    found = np.zeros(math.prod(shape), dtype)
    for value, at in zip(arrays, places, strict=True):
        if np.size(value) not in (1, at.size):
            return None
        found[at] = np.asarray(value).reshape(-1)
    if len(torch_types) == 1 and all(isinstance(v, Tensor) for v in values):
        return torch.from_numpy(found.reshape(shape)).to(next(iter(torch_types)))
    return found.reshape(shape)


def _places(value: Any, index: Any) -> tuple[int, ...]:
    """Return the places of an index in a tensor, flattened; none if it is no index of elements."""
    shape = shape_of(value)
    parts = index if isinstance(index, tuple) else (index,)
    parts = tuple(part.numpy() if isinstance(part, Tensor) else part for part in parts)
    try:
        if len(parts) == len(shape) and all(isinstance(part, int) for part in parts):
            return (int(np.ravel_multi_index([p % n for p, n in zip(parts, shape, strict=True)], shape)),)
        found = np.arange(math.prod(shape)).reshape(shape)[parts]
    except (IndexError, TypeError, ValueError):
        return ()
    return tuple(np.atleast_1d(found).reshape(-1).tolist())
