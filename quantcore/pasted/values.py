"""A value of an evaluation, with the operation that made it and what it depends on."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

ARRAYS = (Tensor, np.ndarray, np.generic)
NUMBERS = (bool, int, float, *ARRAYS)


@dataclass(eq=False, slots=True, repr=False)
class Val:
    """A value. ``op``: what made it, of ``args``; ``line``: where; ``index``: its place in the evaluation; ``name``: the
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

    def ancestors(self) -> Iterator["Val"]:
        """It and all that it was computed from, each once."""
        seen, stack = set[int](), [self]
        while stack:
            one = stack.pop()
            if id(one) not in seen:
                seen.add(id(one))
                yield one
                stack.extend(one.args)


Vals = tuple[Val, ...]
Override = Callable[[Val], Any]


def flat(values: Iterable[Any]) -> Iterator[Any]:
    """What is in lists, in lists of them, and outside: of values, or of what they are."""
    for value in values:
        inside = value.value if isinstance(value, Val) else value
        if isinstance(inside, list | tuple):
            yield from flat(inside)
        else:
            yield value


def is_mask(value: object) -> bool:
    """Whether a value is a boolean array."""
    return isinstance(value, ARRAYS) and value.dtype in (torch.bool, np.bool_)


def numbers(value: Any) -> Tensor:
    """A number, tensor or array as float64."""
    if isinstance(value, Tensor):
        return (value.dequantize() if value.is_quantized else value).to(torch.float64)
    return torch.from_numpy(np.array(value, dtype=np.float64))
