"""The values of pasted code: each with the operation that made it, of which values, and at which line."""

import math
from collections import ChainMap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.bounds import NUMBERS, shape_of
from quantcore.pasted.narrow import integer_limits, is_small_float, name_of

OWN = "own"  # the operation of a tensor that the code makes itself
RANDOM = ("randn", "rand", "random", "uniform", "normal", "standard_normal")  # what draws its values
FLOAT = 99  # bits: wider than any integer type


@dataclass(eq=False, slots=True, repr=False)
class Val:
    """A value.

    ``op``: what made it, of ``args``; ``line``: where; ``index``: its place in the evaluation; ``name``: the
    operation or the input as the code writes it; ``varies``: whether it depends on the tensor; ``handed``: or
    on a scale or zero point that the code is given; ``flow``: of ``args``, the one whose elements these are,
    if they are the tensor's; ``data``: whether they are; ``of_element``: whether it is a test on an element;
    ``cells``: what was assigned to its elements, as `AssignedCells`; ``gathered``: whether that has been
    gathered; ``levels``: of codes, the table that they are places in; ``learned``: whether that is
    computed from the tensor; ``lanes``: the values, one of each
    lane, that it stands for, and ``lane_places``: where each is in it.
    """

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
    of_element: bool = False
    cells: Any = None
    gathered: bool = False
    levels: Tensor | None = None
    learned: bool = False
    lanes: "Vals" = ()
    lane_places: tuple[Any, ...] = ()

    @property
    def numbers(self) -> Tensor:
        """Its value as float64."""
        if isinstance(self.value, Tensor):
            return self.value.to(torch.float64)
        return torch.from_numpy(np.array(self.value, dtype=np.float64))

    @property
    def number(self) -> float | None:
        """A finite number; None for anything else."""
        one = isinstance(self.value, NUMBERS) and math.prod(shape_of(self.value)) == 1
        found = float(self.numbers) if one else math.nan
        return found if math.isfinite(found) else None

    @property
    def is_integral(self) -> bool:
        """Whether all values that are finite are integers."""
        values = self.numbers
        return bool(torch.eq(values, values.round())[values.isfinite()].all())

    @property
    def dtype(self) -> str:
        """The type of a tensor or array, as text; else empty."""
        return name_of(getattr(self.value, "dtype", ""))

    @property
    def is_float(self) -> bool:
        """Whether it has fractions, or could have."""
        return isinstance(self.value, float) or "float" in self.dtype

    @property
    def is_small_float(self) -> bool:
        """Whether it is a tensor of floats of at most 8 bits."""
        return is_small_float(self.dtype)

    @property
    def limits(self) -> tuple[int, int] | None:
        """The lowest and highest integer of its type; None for floats."""
        return integer_limits(self.dtype)

    @property
    def bits(self) -> int:
        """The width of its integer type; `FLOAT` for others."""
        limits = self.limits
        return FLOAT if limits is None else (limits[1] - limits[0]).bit_length()

    @property
    def other(self) -> "Val":
        """The operand that is not the data."""
        return next((a for a in self.args if a is not self.flow), self.args[-1])

    @property
    def added(self) -> Tensor:
        """What a sum or difference adds to the data."""
        return self.other.numbers * (-1 if self.op == "sub" else 1)

    @property
    def added_line(self) -> int:
        """The line of that, or else its own."""
        return self.other.line or self.line

    @property
    def is_open(self) -> bool:
        """Whether what it adds depends on the tensor, or is handed in."""
        return self.other.varies or self.other.handed

    @property
    def is_flipped(self) -> bool:
        """Whether the data is subtracted or divides."""
        return self.op in ("sub", "div", "floor_divide") and self.args[0] is not self.flow


Vals = tuple[Val, ...]
Override = Tensor | float | Callable[[Val], Tensor]
Names = ChainMap[str, Val]  # of a function, a class or an instance, then of what is around it


class ValuesAndIndices(tuple[Val, ...]):
    """A tuple with ``values`` and ``indices``, as torch.max with an axis returns."""


def ancestors(*vals: Val) -> list[Val]:
    """Return values and all that they were computed from, each once, in order."""
    found, stack = dict[int, Val](), [*vals]
    while stack:
        one = stack.pop()
        if one.index not in found:
            found[one.index] = one
            stack.extend(one.args)
    return [found[i] for i in sorted(found)]
