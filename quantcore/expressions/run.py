"""Expressions on tensors: parameters in block form first, then the elements, into memory that is given."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import count
from typing import Any

import torch
from torch import Tensor

from quantcore.expressions.nodes import MULTIPLY, Applied, Expression, Let, Name, Number, Operation, Where
from quantcore.expressions.operations import to, without
from quantcore.numerics import like

Given = Tensor | float | None
# from the numbers, the memory for the result, and the results of `Let` so far, to the result
_Step = Callable[[Mapping[str, Given], Tensor | None, dict[Expression, Any]], Any]
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
        halved = _product_in_half(part, elements) if inside and not place else None
        if halved is not None:
            first, other = halved
            return _in_half(first, (step(first, True), step(other, False), step(part.operands[0], True)))
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
        if isinstance(tested, Tensor) and tested.dtype == torch.bool:
            tested = tested if value else ~tested
            if not bool(tested.any()):  # as usual: what is not taken is not computed
                return otherwise(numbers, None, known)
        else:
            tested = torch.as_tensor(tested) == value
        taken, other = then(numbers, None, known), otherwise(numbers, None, known)
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


def _product_in_half(part: Applied, elements: tuple[str, ...]) -> tuple[Expression, Expression] | None:
    """Return the factors of a product rounded to float16: codes or numbers rounded to it, and a parameter."""
    product = part.operands[0]
    if part.operation is not to(torch.float16):
        return None
    if not isinstance(product, Applied) or product.operation is not MULTIPLY:
        return None
    first, other = product.operands
    if first.names.isdisjoint(elements) or not other.names.isdisjoint(elements):
        return None
    inner = first.of if isinstance(first, Let) else first
    rounded = isinstance(inner, Applied) and inner.operation is to(torch.float16)
    return (first, other) if rounded or isinstance(inner, Name) else None


def _in_half(first: Expression, steps: tuple[_Step, _Step, _Step]) -> _Step:
    """Multiply in float16 if both factors are exact in it.

    PyTorch computes with float16 in float32 and rounds each result: the same numbers in two thirds of the
    time. For bfloat16 this does not pay off, since conversion takes longer than the computation.

    Args:
        first: the elements that are multiplied.
        steps: to them, to the other factor, and to the product before it is rounded.
    """
    elements, other, product = steps

    def halved(numbers: Mapping[str, Given], out: Tensor | None, known: Any) -> Any:
        factor = other(numbers, None, known)
        codes = numbers[first.name] if isinstance(first, Name) else None
        small = isinstance(codes, Tensor) and codes.itemsize == 1 and not codes.is_floating_point()
        if out is None or not isinstance(factor, Tensor) or not (codes is None or small):
            return to(torch.float16).on_tensors(product(numbers, out, known), out=out)
        narrow = factor.half()
        if not torch.equal(factor.float(), narrow.float()):
            return to(torch.float16).on_tensors(product(numbers, out, known), out=out)
        half = like(out, "in half", torch.float16)
        return out.copy_(half.copy_(elements(numbers, out, known)).mul_(narrow))

    return halved
