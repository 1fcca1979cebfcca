"""Codes that are places in a table: the value that each element is nearest to, and what a code stands for."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.pasted.bounds import ARRAYS, is_mask, shape_of
from quantcore.pasted.evaluation import Evaluation
from quantcore.pasted.values import OWN, Val, Vals, ancestors

MOST_LEVELS = 1 << 12  # values of a table
_SEARCHED = {"bucketize": 0, "digitize": 0, "searchsorted": 1}  # which argument is searched for in the other
_FOUND = ("reduce", "setitem")  # what a table is computed with from a tensor
_DISTANCES = ("abs", "pow", "shape", "copy", "unary")  # what is computed of a difference, or leaves it


@dataclass(eq=False)
class TableCodes(Evaluation):
    """One evaluation of the code: the tables that it chooses values from, and looks codes up in."""

    def note(self, value: Any, op: str = "number", args: Vals = (), name: str = "") -> Val:
        """Append a value, as `Evaluation.note`; places in a table are codes of the tensor's elements."""
        val = super().note(value, op, args, name)
        if name in _SEARCHED and len(args) > 1:
            self._level(val, args[_SEARCHED[name]], None, args[1 - _SEARCHED[name]])
        elif name in ("argmin", "min") and val.op == "reduce" and args and not val.is_float:
            self._nearest(val, args[0])
        elif op == "getitem" and len(args) > 1 and args[-1].data and len(shape_of(args[0].value)) == 1:
            self.decoded(val, args[0], args[-1])
        return val

    def chosen_by(self, chosen: Val, items: list[Val], keys: list[Val]) -> Val:
        """Note which item has the lowest key: a place in a table or its value, if keys are distances."""
        pairs = [pair for pair in map(_difference, keys) if pair]
        numbers = [item.number for item in items]
        for i in (0, 1) if len(pairs) == len(keys) else ():
            of, table = pairs[0][i], [pair[1 - i].number for pair in pairs]
            if not of.data or None in table or len({pair[i].number for pair in pairs}) > 1:
                continue
            levels = torch.tensor(table, dtype=torch.float64)
            if numbers == list(range(len(items))):
                self._level(chosen, of, levels)
            elif numbers == table:
                place = self.note(table.index(chosen.number), "pick", (of,))
                self._level(place, of, levels)
                chosen.op, chosen.flow, chosen.data, chosen.levels = "decode", place, True, levels
        return chosen

    def decoded(self, val: Val, table: Val, codes: Val) -> None:
        """Note that a value is what codes stand for in a table, times its scale if the table has one."""
        table, scale = _unscaled(table)
        numbers = None if codes.is_float or is_mask(codes.value) else table_of(table)
        if numbers is None:
            return
        if scale is None:
            val.op, val.flow, val.data, val.levels = "decode", codes, True, numbers
            return
        at = codes.numbers.long().clamp(-len(numbers), len(numbers) - 1)
        inner = self.note(_like(table, numbers[at]), "decode", (table, codes), "[]")
        inner.flow, inner.data, inner.levels = codes, True, numbers
        val.op, val.args, val.flow, val.data = "mul", (inner, scale), inner, True

    def _nearest(self, val: Val, cost: Val) -> None:
        """Note that places are those of the nearest values, if ``cost`` has the distances from a table's."""
        pair, size = _difference(cost), math.prod(shape_of(val.value))
        for of, table in (pair, pair[::-1]) if pair else ():
            whole = math.prod(shape_of(table.value)) * size == math.prod(shape_of(cost.value))
            whole &= of.data and math.prod(shape_of(of.value)) == size
            if not whole or _start(table) is _start(of):
                continue
            table, scale = _unscaled(table)
            if scale is not None:
                made = self.note(_like(of, of.numbers / scale.numbers), "div", (of, scale))
                made.flow, made.data, of = of, True, made
            self._level(val, of, table_of(table), table)
            return

    def _level(self, val: Val, of: Val, levels: Tensor | None, table: Val | None = None) -> None:
        if of.data and math.prod(shape_of(of.value)) == math.prod(shape_of(val.value)):
            val.op, val.flow, val.data, val.levels = "level", of, True, levels
            val.learned = table is not None and any(a.op in _FOUND for a in ancestors(table))


def table_of(val: Val) -> Tensor | None:
    """Return the numbers of a table, a tensor or a list; None for anything else."""
    if isinstance(val.value, list | tuple):
        numbers = [item.number for item in val.value[:MOST_LEVELS] if isinstance(item, Val)]
        whole = len(numbers) == len(val.value) > 1 and None not in numbers
        return torch.tensor(numbers, dtype=torch.float64) if whole else None
    few = isinstance(val.value, ARRAYS) and 1 < math.prod(shape_of(val.value)) <= MOST_LEVELS
    return val.numbers.reshape(-1) if few else None


def _difference(cost: Val) -> tuple[Val, Val] | None:
    """Return the two values whose distance this is."""
    at = cost
    while at.op in _DISTANCES or (at.op == "mul" and at.args[0] is at.args[-1]):
        at = at.args[0]
    return (at.args[0], at.args[1]) if at.op == "sub" and len(at.args) == 2 else None


def _start(val: Val) -> Val:
    while val.flow is not None:
        val = val.flow
    return val


def _unscaled(table: Val) -> tuple[Val, Val | None]:
    """Return a table of numbers, and what scales it, if that is one number that depends on the tensor."""
    scaled = table.op == "mul" and len(table.args) == 2
    for numbers, scale in (table.args, table.args[::-1]) if scaled else ():
        single = scale.varies and scale.op != OWN and math.prod(shape_of(scale.value)) == 1
        if single and numbers.op == OWN:
            return numbers, scale
    return table, None


def _like(val: Val, numbers: Tensor) -> Any:
    return numbers.to(val.value.dtype) if isinstance(val.value, Tensor) else numbers.numpy()
