"""What an evaluation leaves behind: every value, the operation that made it, and its line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

ARRAYS = (Tensor, np.ndarray, np.generic)
NUMBERS = (bool, int, float, *ARRAYS)
# operations whose result holds the elements of their data, one by one
_ELEMENTWISE = (
    "add", "sub", "mul", "div", "floor_divide", "round", "clamp", "cast", "abs", "neg", "unary", "pow", "copy", "mask",
    "signed", "where", "shape", "getitem", "library",
)  # fmt: skip


@dataclass(eq=False, slots=True, repr=False)
class Val:
    """A value. ``op``: what made it, of ``args``; ``line``: where; ``index``: its place in the trace; ``name``: the
    operation or the input as the code writes it; ``varies``: whether it depends on the tensor; ``handed``: or on a
    scale or zero point that the code is given; ``flow``: of ``args``, the one whose elements these are, if they are the
    tensor's; ``data``: whether they are."""

    value: Any
    op: str = "number"
    args: "Vals" = ()
    line: int = 0
    name: str = ""
    index: int = -1
    varies: bool = False
    handed: bool = False
    flow: "Val | None" = None
    data: bool = False

    @property
    def is_array(self) -> bool:
        """Whether it is a tensor or an array."""
        return isinstance(self.value, ARRAYS)


Vals = tuple[Val, ...]
Override = Callable[[Val], Any]


@dataclass
class Trace:
    """``vals``: all values in order; ``assigned``: (line, name, value) of every assignment; ``unread``: (line, why,
    whether it is refused) of each statement that could not be evaluated; ``written``: (line, name) of operations that
    modify the given tensor; ``library``: the same of calls that quantize; ``overrides``: results to replace, by place."""

    vals: list[Val] = field(default_factory=list)
    assigned: list[tuple[int, str, Val]] = field(default_factory=list)
    unread: list[tuple[int, str, bool]] = field(default_factory=list)
    written: list[tuple[int, str]] = field(default_factory=list)
    library: list[tuple[int, str]] = field(default_factory=list)
    overrides: dict[int, Override] = field(default_factory=dict)

    def add(self, value: Any, op: str = "number", args: Vals = (), line: int = 0, name: str = "") -> Val:
        """Append a value, or its repair if there is one, and note what it depends on."""
        # a magnitude that gets its sign back is not scaled by it
        signs = op == "mul" and any(a.op == "sign" for a in args) and any(a.data and _is_magnitude(a) for a in args)
        op = "signed" if signs or (op == "sign" and len(args) > 1 and args[0].data) else op
        val = Val(value, op, args, line, name, len(self.vals))
        val.varies, val.handed = any(a.varies for a in args), any(a.handed for a in args)
        val.flow = _flow(val) if op in _ELEMENTWISE else None
        val.data = val.flow is not None
        if val.index in self.overrides:
            val.value = self.overrides[val.index](val)
        self.vals.append(val)
        return val


def _flow(val: Val) -> Val | None:
    """The argument whose elements a value holds; None if there is none, or if there are two."""
    # a mask chooses elements, it does not hold them
    data = [a for a in val.args if a.data and not is_mask(a.value)]
    if is_mask(val.value) or not data or (val.op == "mul" and any(a.op == "sign" for a in val.args)):
        return None
    return data[0] if len(data) == 1 or val.op in ("mask", "where", "signed") else None


def _is_magnitude(val: Val) -> bool:
    """Whether the elements lost their signs on the way here."""
    one: Val | None = val
    while one is not None and one.op != "abs":
        one = one.flow
    return one is not None


def is_mask(value: object) -> bool:
    """Whether a value is a boolean array."""
    return isinstance(value, ARRAYS) and value.dtype in (torch.bool, np.bool_)


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
    """A number, tensor or array as float64."""
    if isinstance(value, Tensor):
        return (value.dequantize() if value.is_quantized else value).to(torch.float64)
    return torch.from_numpy(np.array(value, dtype=np.float64))
