"""Expressions on tensors: parameters in block form first, then the elements, into memory that is given."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from torch import Tensor

from quantcore.expressions.nodes import Applied, Expression, Let, Name, Number, Where
from quantcore.expressions.operations import without
from quantcore.numerics import like

Given = Tensor | float | None
# from the numbers, the memory for the result, and the results of `Let` so far, to the result
_Step = Callable[[Mapping[str, Given], Tensor | None, dict[Expression, Any]], Any]


def run(expression: Expression, numbers: Mapping[str, Given], out: Tensor | None = None) -> Any:
    """Return the result of an expression.

    Args:
        numbers: tensors that broadcast, or single numbers, by name. None is a number that is absent, so that nothing is
            added or subtracted.
        out: float32 memory for the result, of the elements' shape. Names whose tensors have as many elements are the
            elements: they are computed in this memory, and codes are converted straight into it.
    """
    size = 0 if out is None else out.numel()
    elements, absent = [], []
    for name, number in numbers.items():
        if number is None:
            absent.append(name)
        elif size and isinstance(number, Tensor) and number.numel() == size:
            elements.append(name)
    found = _plan(expression, tuple(elements), tuple(absent))(numbers, out, {})
    return found if out is None or found is out else out.copy_(found)


@lru_cache(maxsize=1024)
def _plan(expression: Expression, elements: tuple[str, ...], absent: tuple[str, ...]) -> _Step:
    """Return how an expression is computed: walking its tree for every region would cost more than small regions do."""
    places = (f"operand {i}" for i in count(1))

    def step(part: Expression, inside: bool, place: str = "") -> _Step:
        """``inside``: whether it is computed in memory; ``place``: in a buffer of that name instead of the result's."""
        if isinstance(part, Number):
            value = part.value
            return lambda numbers, out, known: value
        if isinstance(part, Name):
            return _named(part.name, place)
        if isinstance(part, Let):
            return step(part.of, True, place) if inside else _once(part, step(part.of, False))
        if isinstance(part, Where):
            return _where(part.value, *(step(child, False) for child in part.children))
        assert isinstance(part, Applied)
        steps, free = [], place
        for operand in part.operands:  # what depends on parameters alone is computed in block form
            own = inside and not operand.names.isdisjoint(elements)
            steps.append((step(operand, own, free), own))
            free = next(places) if own else free
        return _applied(part, steps, inside, place)

    whole = without(expression, *absent)
    return step(whole, not whole.names.isdisjoint(elements))


def _named(name: str, place: str) -> _Step:
    def named(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Given:
        number = numbers[name]
        if not isinstance(number, Tensor) or number.is_floating_point():
            return number
        if out is None:
            return number.to(torch.int32) if number.itemsize < 4 else number
        # torch computes with two dtypes more slowly than it converts
        memory = like(out, place) if place else out
        return memory.copy_(number)

    return named


def _once(part: Let, step: _Step) -> _Step:
    def once(numbers: Mapping[str, Given], out: Tensor | None, known: dict[Expression, Any]) -> Any:
        if part not in known:
            known[part] = step(numbers, None, known)
        return known[part]

    return once


def _where(value: float, test: _Step, then: _Step, otherwise: _Step) -> _Step:
    def where(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Tensor:
        tested, a, b = (step(numbers, None, known) for step in (test, then, otherwise))
        return torch.where(torch.as_tensor(tested) == value, a, b)

    return where


def _applied(part: Applied, steps: list[tuple[_Step, bool]], inside: bool, place: str) -> _Step:
    """``steps``: of the operands, and whether each is computed in memory."""
    operation = part.operation

    def applied(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
        values = [step(numbers, out if own else None, known) for step, own in steps]
        if not isinstance(values[0], Tensor):
            tensor = next((value for value in values if isinstance(value, Tensor)), None)
            if tensor is None:
                return operation.on_numbers(*values)
            values[0] = torch.as_tensor(values[0], dtype=tensor.dtype)
        if not inside or out is None:
            return operation.on_tensors(*values)
        return operation.on_tensors(*values, out=like(out, place) if place else out)

    return applied
