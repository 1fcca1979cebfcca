"""Arithmetic as data: numbers, names, and operations on them.

An expression is a tree that says which operations a library does, in its order. What an operation is stands
in one record, side by side: how it runs on tensors and on one number, and how it is written. Everything that
shows or runs the arithmetic reads the tree: `run` for tensors, `element` for a trace, a formula or code.

Integers are exact. Of floats, each operation rounds once, to the widest dtype among its operands.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Value = int | np.floating[Any]
Dialect = Literal["symbols", "torch", "numpy"]
# how tightly a text binds: one that binds less than its place needs is put in parentheses
LOOSE, SUM, PRODUCT, ATOM = range(4)


@dataclass(frozen=True)
class Explained:
    """How an operation is written where its numbers are known: names, numbers, and what it means."""

    names: str
    numbers: str
    note: str = ""
    numpy: str = ""


@dataclass(frozen=True, eq=False)
class Operation:
    """What an operation does, and how it is written.

    ``symbols``, ``torch``, ``numpy``: templates with ``{0}``, ``{1}`` for the operands; ``binds``: how
    tightly the text binds; ``needs``: how tightly each operand must. ``on_tensors``: (operands, out) ->
    tensor, where ``out`` may be the memory of an operand, or None; ``on_numbers``: operands -> number.
    ``explain``: for an operation whose text depends on its numbers, (written with names, written with
    numbers, values) -> `Explained`. ``exact``: whether its result has no more digits than its operand, so
    that it is not rounded to their dtype.
    """

    symbols: str
    torch: str
    numpy: str
    on_tensors: Callable[..., Tensor]
    on_numbers: Callable[..., Any]
    binds: int = ATOM
    needs: tuple[int, ...] = (LOOSE, LOOSE, LOOSE)
    explain: Callable[..., Explained] | None = None
    exact: bool = False

    def __call__(self, *operands: "Expression | float") -> "Expression":
        """Return the operation on operands; numbers become constants."""
        return Applied(self, tuple(o if isinstance(o, Expression) else Number(o) for o in operands))


class Expression:
    """A node of a tree; Python's operators make trees."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that its value depends on."""
        return frozenset().union(*(child.names for child in self.children))

    @property
    def children(self) -> tuple["Expression", ...]:
        """The expressions that it is made of."""
        return tuple(part for part in vars(self).values() if isinstance(part, Expression))

    def __add__(self, other: "Expression | float") -> "Expression":
        return ADD(self, other)

    def __sub__(self, other: "Expression | float") -> "Expression":
        return SUBTRACT(self, other)

    def __mul__(self, other: "Expression | float") -> "Expression":
        return MULTIPLY(self, other)

    def __truediv__(self, other: "Expression | float") -> "Expression":
        return DIVIDE(self, other)

    def __mod__(self, other: "Expression | int") -> "Expression":
        return REMAINDER(self, other)

    def __rshift__(self, other: "Expression | int") -> "Expression":
        return SHIFT(self, other)


@dataclass(frozen=True, eq=False)
class Number(Expression):
    """A constant: an integer, or a float32 number."""

    value: float


@dataclass(frozen=True, eq=False)
class Name(Expression):
    """A number given when the expression is read; ``binds``: how tightly its name does, as of ``1/s``."""

    name: str
    binds: int = ATOM

    @cached_property
    def names(self) -> frozenset[str]:
        """Its own name."""
        return frozenset((self.name,))


@dataclass(frozen=True, eq=False)
class Applied(Expression):
    """An operation on operands."""

    operation: Operation
    operands: tuple[Expression, ...]

    @property
    def children(self) -> tuple[Expression, ...]:
        """The operands."""
        return self.operands


@dataclass(frozen=True, eq=False)
class Let(Expression):
    """A result with a name: a line of its own in a trace and in code.

    ``note``: what it means. ``after``: parts that a trace shows first, though the formula has them later.
    """

    name: str
    of: Expression
    note: str = ""
    after: tuple[Expression, ...] = ()


@dataclass(frozen=True, eq=False)
class Where(Expression):
    """``then`` where ``test`` is ``value``, else ``otherwise``; a trace shows the one that is taken.

    ``note``: why it is the first, in words.
    """

    test: Expression
    value: int
    then: Expression
    otherwise: Expression
    note: str = ""


def chain(expression: Expression) -> tuple[Applied, ...]:
    """Return the operations that lead to a result, each on that of the one before."""
    if not isinstance(expression, Applied):
        return ()
    return (*chain(expression.operands[0]), expression)


def _divided(a: Any, b: Any) -> Any:
    wide = isinstance(a, np.float64) or isinstance(b, np.float64)
    kind = np.float64 if wide else np.float32
    return kind(a) / kind(b)


def _infix(
    sign: str, python: str, tensors: Callable[..., Tensor], numbers: Callable[..., Any], binds: int
) -> Operation:
    """Return a sign between two operands; the right one is put in parentheses if it binds as tightly."""
    text, code = f"{{0}} {sign} {{1}}", f"{{0}} {python} {{1}}"
    return Operation(text, code, code, tensors, numbers, binds, needs=(binds, min(binds + 1, ATOM)))


def _looser(operation: Operation) -> Operation:
    """Return an operation whose result always gets parentheses: few know how tightly it binds."""
    parts = vars(operation) | {"binds": LOOSE}
    return Operation(**parts)


ADD = _infix("+", "+", torch.add, lambda a, b: a + b, SUM)
SUBTRACT = _infix("-", "-", torch.sub, lambda a, b: a - b, SUM)
MULTIPLY = _infix("·", "*", torch.mul, lambda a, b: a * b, PRODUCT)
DIVIDE = _infix("/", "/", torch.div, _divided, PRODUCT)
REMAINDER = _looser(_infix("mod", "%", torch.remainder, lambda a, b: a % b, PRODUCT))
SHIFT = _looser(_infix(">>", ">>", torch.bitwise_right_shift, lambda a, b: a >> b, ATOM))
