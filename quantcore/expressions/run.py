"""Expressions on tensors: parameters in block form first, then the elements, into memory that is given."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from torch import Tensor

from quantcore.expressions.nodes import (
    ADD,
    DIVIDE,
    MULTIPLY,
    SUBTRACT,
    Applied,
    Expression,
    Let,
    Name,
    Number,
    Operation,
    Where,
)
from quantcore.expressions.operations import to, without
from quantcore.numerics import like

Given = Tensor | float | None
# from the numbers, the memory for the result, and the results of `Let` so far, to the result
_Step = Callable[[Mapping[str, Given], Tensor | None, dict[Expression, Any]], Any]
_TO_HALF = {to(dtype): dtype for dtype in (torch.bfloat16, torch.float16)}
# how many elements must share a parameter so that this is faster than in float32
_WIDTH = {torch.bfloat16: 64, torch.float16: 32}
_ARITHMETIC = (ADD, SUBTRACT, MULTIPLY, DIVIDE)
BlockStep = Callable[[Mapping[str, Given], dict[Expression, Any]], Any]


def run(expression: Expression, numbers: Mapping[str, Given], out: Tensor | None = None) -> Any:
    """Return the result of an expression.

    Args:
        numbers: tensors that broadcast, or single numbers, by name. None is a number that is absent, so that
            nothing is added or subtracted.
        out: float32 or float64 memory for the result, of the elements' shape. Names whose tensors have as
            many elements are the elements: they are computed in this memory, and codes are converted straight
                into it.
    """
    size = 0 if out is None else out.numel()
    elements, absent = [], []
    for name, number in numbers.items():
        if number is None:
            absent.append(name)
        elif size and isinstance(number, Tensor) and number.numel() == size:
            elements.append(name)
    found = _plan(expression, tuple(elements), tuple(absent))(numbers, out, {})
    if out is None or found is out:
        return found
    return out.copy_(found) if isinstance(found, Tensor) else out.fill_(found)


def step_of(expression: Expression) -> BlockStep:
    """Return how an expression of parameters is computed: of numbers by name, and of the `Let` so far.

    Not for numbers that may be absent, nor for elements, which `run` computes in memory that is given.
    """
    step = _plan(expression, (), ())
    return lambda numbers, known: step(numbers, None, known)


def bind(steps: Iterable[tuple[str, BlockStep, tuple[str, ...]]], numbers: dict[str, Any]) -> None:
    """Add the results of steps to the numbers: a name, how it is computed, and the names not needed after."""
    known: dict[Expression, Any] = {}
    for name, step, last in steps:
        numbers[name] = step(numbers, known)
        for other in last:  # memory that is given back is used again, which is faster than new memory
            del numbers[other]


@lru_cache(maxsize=1024)
def _plan(expression: Expression, elements: tuple[str, ...], absent: tuple[str, ...]) -> _Step:
    """Return how an expression is computed: to walk its tree would cost more than a small region does."""
    places = (f"operand {i}" for i in count(1))

    def step(part: Expression, inside: bool, place: str = "") -> _Step:
        """``inside``: whether it is computed in memory; ``place``: in the buffer of that name."""
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
        if inside and not place and part.operation in _TO_HALF:
            return _widened(narrow(part))
        steps, free = [], place
        for operand in part.operands:  # what depends on parameters alone is computed in block form
            own = inside and not operand.names.isdisjoint(elements)
            steps.append((step(operand, own, free), own))
            free = next(places) if own else free
        return _applied(part, steps, inside, place)

    def narrow(part: Applied) -> _Step:
        """Return a step of elements rounded to a dtype of 16 bits, in memory of that dtype."""
        dtype, of = _TO_HALF[part.operation], part.operands[0]
        in_float32 = _converted(step(of, True), dtype)
        if not isinstance(of, Applied) or of.operation not in _ARITHMETIC:
            return in_float32
        first, other = of.operands
        first = first.of if isinstance(first, Let) else first
        if not other.names.isdisjoint(elements) or first.names.isdisjoint(elements):
            return in_float32
        if isinstance(first, Name):
            return _in_half(of.operation, dtype, None, step(other, False), in_float32, first.name)
        if isinstance(first, Applied) and _TO_HALF.get(first.operation) == dtype:
            return _in_half(of.operation, dtype, narrow(first), step(other, False), in_float32)
        return in_float32

    whole = without(expression, *absent)
    return step(whole, not whole.names.isdisjoint(elements))


def _named(name: str, place: str) -> _Step:
    def named(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Given:
        number = numbers[name]
        if not isinstance(number, Tensor) or (number.is_floating_point() and number.itemsize != 2):
            return number
        if out is None:
            if number.is_floating_point():
                return number.float()
            small = number.itemsize < 4 and number.dtype != torch.bool  # a test stays one
            return number.to(torch.int32) if small else number
        memory = like(out, place, out.dtype) if place else out
        return memory.copy_(number)

    return named


def _once(part: Let, step: _Step) -> _Step:
    def once(numbers: Mapping[str, Given], out: Tensor | None, known: dict[Expression, Any]) -> Any:
        if part not in known:
            known[part] = step(numbers, None, known)
        return known[part]

    return once


def _where(value: float, test: _Step, then: _Step, otherwise: _Step) -> _Step:
    def where(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
        tested = test(numbers, None, known)
        if not isinstance(tested, Tensor) or tested.dtype != torch.bool:
            tested = torch.as_tensor(tested) == value
            return torch.where(tested, then(numbers, None, known), otherwise(numbers, None, known))
        tested = tested if value else ~tested
        other = otherwise(numbers, None, known)
        if other is not out and not bool(tested.any()):  # as usual: what is not taken is not computed
            return other
        taken = then(numbers, None, known)
        if other is out and not isinstance(taken, Tensor):
            return out.masked_fill_(tested, taken)
        return torch.where(tested, taken, other)

    return where


def _applied(part: Applied, steps: list[tuple[_Step, bool]], inside: bool, place: str) -> _Step:
    """Return a step of an operation; ``steps``: of the operands, and whether each is computed in memory."""
    operation = part.operation
    if not inside:
        return _of_parameters(operation, [step for step, _ in steps])

    def applied(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
        # torch computes with two dtypes more slowly than it converts
        values = [_floats(step(numbers, out if own else None, known)) for step, own in steps]
        if out is None or not any(isinstance(value, Tensor) for value in values):
            return _result(operation, values)
        if not isinstance(values[0], Tensor):
            values[0] = _like_first_tensor(values)
        return operation.on_tensors(*values, out=like(out, place, out.dtype) if place else out)

    return applied


def _of_parameters(operation: Operation, steps: list[_Step]) -> _Step:
    """Return a step of an operation in block form; one and two operands, the most, are written out."""
    tensors, first = operation.on_tensors, steps[0]
    if len(steps) == 1:

        def one(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
            value = first(numbers, None, known)
            return tensors(value) if isinstance(value, Tensor) else operation.on_numbers(value)

        return one
    if len(steps) == 2:
        second = steps[1]

        def two(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
            a, b = first(numbers, None, known), second(numbers, None, known)
            return tensors(a, b) if isinstance(a, Tensor) else _result(operation, [a, b])

        return two
    return lambda numbers, out, known: _result(operation, [step(numbers, None, known) for step in steps])


def _result(operation: Operation, values: list[Any]) -> Any:
    if not any(isinstance(value, Tensor) for value in values):
        return operation.on_numbers(*values)
    if not isinstance(values[0], Tensor):
        values[0] = _like_first_tensor(values)
    return operation.on_tensors(*values)


def _like_first_tensor(values: list[Any]) -> Tensor:
    tensor = next(value for value in values if isinstance(value, Tensor))
    return torch.as_tensor(values[0], dtype=tensor.dtype)


def _floats(value: Any) -> Any:
    integers = isinstance(value, Tensor) and not value.is_floating_point()
    return value.to(torch.float32) if integers else value


def _widened(step: _Step) -> _Step:
    """Return a step that writes its numbers of 16 bits into the memory of the result."""

    def widened(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Tensor:
        assert out is not None
        return out.copy_(step(numbers, out, known))

    return widened


def _converted(step: _Step, dtype: torch.dtype) -> _Step:
    """Return a step in memory of a dtype of 16 bits, computed in float32."""

    def converted(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Tensor:
        found = step(numbers, out, known)
        return like(found, "in half", dtype).copy_(found)

    return converted


def _in_half(
    operation: Operation,
    dtype: torch.dtype,
    elements: _Step | None,
    other: _Step,
    in_float32: _Step,
    x: str = "",
) -> _Step:
    """Compute with 16 bits where both operands have them.

    PyTorch computes with them in float32 and rounds each result, so that these are the same numbers, without
    conversion to float32 and back.

    Args:
        elements: the first operand, or None if it is the number ``x``, if that is given in this dtype.
        other: a parameter. If it has more digits, or few elements share it, all is done in float32.
        in_float32: the step in float32, then rounded.
    """

    def halved(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
        given, factor = numbers.get(x), other(numbers, None, known)
        narrow_given = isinstance(given, Tensor) and given.dtype == dtype
        if out is None or not isinstance(factor, Tensor) or not (elements or narrow_given):
            return in_float32(numbers, out, known)
        narrow = factor.to(dtype)
        few = factor.shape[-1:] == (1,) and 1 < out.shape[-1] < _WIDTH[dtype]
        if few or not torch.equal(factor, narrow.to(factor.dtype)):
            return in_float32(numbers, out, known)
        first = given if elements is None else elements(numbers, out, known)
        return operation.on_tensors(first, narrow, out=like(out, "in half", dtype))

    return halved
