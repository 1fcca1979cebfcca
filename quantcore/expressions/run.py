"""Expressions on tensors: parameters in block form first, then the elements, into memory that is given."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from quantcore.expressions.nodes import ADD, SUBTRACT, Applied, Expression, Let, Name, Number, Where
from quantcore.numerics import like

Given = Tensor | float | None


def run(
    expression: Expression,
    numbers: Mapping[str, Given],
    out: Tensor | None = None,
    known: Mapping[Expression, Tensor] | None = None,
) -> Any:
    """Return the result of an expression.

    Args:
        numbers: tensors that broadcast, or single numbers, by name. None is a number that is absent, so that nothing is
            added or subtracted.
        out: float32 memory for the result, of the elements' shape. Names whose tensors have as many elements are the
            elements: they are computed in this memory, and codes are converted straight into it.
        known: elements that parts of the expression stand for, computed elsewhere; they may lie in ``out``.
    """
    found = _Run(numbers, 0 if out is None else out.numel(), known or {}).of(expression, out)
    return found if out is None or found is out else out.copy_(found)


class _Run:
    def __init__(self, numbers: Mapping[str, Given], count: int, known: Mapping[Expression, Tensor]) -> None:
        self.numbers = numbers
        self.elements = frozenset(
            name for name, n in numbers.items() if count and isinstance(n, Tensor) and n.numel() == count
        ).union(*(expression.names for expression in known))
        self.given = known
        self.known: dict[Expression, Any] = {}
        self.depth = 0

    def of(self, expression: Expression, out: Tensor | None = None) -> Any:
        if expression in self.given:
            return self._named(self.given[expression], out)
        if isinstance(expression, Applied):
            return self._applied(expression, out)
        if isinstance(expression, Number):
            return expression.value
        if isinstance(expression, Name):
            return self._named(self.numbers[expression.name], out)
        if isinstance(expression, Where):
            test, then, other = (self.of(e) for e in expression.children)
            return torch.where(torch.as_tensor(test) == expression.value, then, other)
        assert isinstance(expression, Let)
        if out is not None:
            return self.of(expression.of, out)
        if expression not in self.known:
            self.known[expression] = self.of(expression.of)
        return self.known[expression]

    def _named(self, number: Given, out: Tensor | None) -> Given:
        if not isinstance(number, Tensor) or number.is_floating_point():
            return number
        if out is not None:  # torch computes with two dtypes more slowly than it converts
            return out.copy_(number) if number.numel() == out.numel() else number.to(torch.float32)
        return number.to(torch.int32) if number.itemsize < 4 else number

    def _applied(self, expression: Applied, out: Tensor | None) -> Any:
        if out is not None and not (expression.names & self.elements):
            out = None  # parameters alone: they are computed in block form
        values: list[Any] = []
        taken = False
        for operand in expression.operands:
            if out is None or not (operand.names & self.elements):
                values.append(self.of(operand))
                continue
            values.append(self.of(operand, self._scratch(out) if taken else out))
            taken = taken or values[-1] is out
        if any(value is None for value in values) and expression.operation in (ADD, SUBTRACT):
            return next(value for value in values if value is not None)
        tensors = [value for value in values if isinstance(value, Tensor)]
        if not tensors:
            return expression.operation.on_numbers(*values)
        if not isinstance(values[0], Tensor):
            values[0] = torch.as_tensor(values[0], dtype=tensors[0].dtype)
        return expression.operation.on_tensors(*values, out=out)

    def _scratch(self, out: Tensor) -> Tensor:
        self.depth += 1
        return like(out, f"operand {self.depth}")
