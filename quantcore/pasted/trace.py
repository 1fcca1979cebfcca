"""What an evaluation leaves behind: every value, the operation that made it, and its line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

ARRAYS = (Tensor, np.ndarray, np.generic)
# operations whose result holds the elements of their data, one by one
ELEMENTWISE = frozenset(
    "add sub mul div floor_divide round clamp cast abs neg unary relu pow copy item pick where setitem mask shape "
    "getitem library dequantize".split()
)


@dataclass(eq=False, slots=True)
class Val:
    """A value. ``op``: what made it, of ``args``; ``line``: where; ``index``: its place in the trace; ``name``: the
    operation as the code writes it; ``varies``: whether it depends on the tensor; ``handed``: or on a scale or zero
    point that the code is given; ``flow``: the value whose elements these are, if it holds the tensor's data."""

    value: Any
    op: str = "number"
    args: "tuple[Val, ...]" = ()
    line: int = 0
    index: int = -1
    name: str = ""
    varies: bool = False
    handed: bool = False
    flow: "Val | None" = None
    data: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it is a tensor or an array."""
        return isinstance(self.value, ARRAYS)


Override = Callable[[Val], Any]


@dataclass
class Trace:
    """``vals``: all values in order; ``assigned``: (line, name, value) of every assignment; ``unread``: (line,
    sentence) of each statement that could not be evaluated; ``written``: (line, name) of operations that modify the
    given tensor; ``library``: (line, name) of calls that quantize by themselves."""

    vals: list[Val] = field(default_factory=list)
    assigned: list[tuple[int, str, Val]] = field(default_factory=list)
    unread: list[tuple[int, str, bool]] = field(default_factory=list)
    written: list[tuple[int, str]] = field(default_factory=list)
    library: list[tuple[int, str]] = field(default_factory=list)
    overrides: dict[int, Override] = field(default_factory=dict)

    def add(self, val: Val) -> Val:
        """Append a value, with its repair if there is one, and note what it depends on."""
        val.index = len(self.vals)
        val.varies = val.varies or any(a.varies for a in val.args)
        val.handed = val.handed or any(a.handed for a in val.args)
        if val.index in self.overrides:
            val.value = self.overrides[val.index](val)
        if not val.data and val.op in ELEMENTWISE:
            val.flow = flow_of(val)
            val.data = val.flow is not None
        self.vals.append(val)
        return val


def flow_of(val: Val) -> Val | None:
    """The argument whose elements a value holds; None if there is none, or if there are two."""
    if val.op == "setitem":
        return None
    # a mask chooses elements, it does not hold them
    data = [a for a in val.args if a.data and not is_mask(a.value)]
    if val.op in ("mask", "where", "pick"):
        return data[0] if data else None
    return data[0] if len(data) == 1 and not is_mask(val.value) else None


def is_mask(value: object) -> bool:
    """Whether a value is boolean."""
    return isinstance(value, bool) or (isinstance(value, ARRAYS) and value.dtype in (torch.bool, np.bool_))


def ancestors(val: Val) -> Iterator[Val]:
    """The value and all that it was computed from, each once."""
    seen, stack = set[int](), [val]
    while stack:
        one = stack.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            stack.extend(one.args)


def numbers(value: Any) -> Tensor:
    """A number, tensor or array as float64 (bool as 0 and 1)."""
    if isinstance(value, Tensor):
        return (value.dequantize() if value.is_quantized else value).detach().to(torch.float64)
    return torch.from_numpy(np.asarray(value, dtype=np.float64).copy())
