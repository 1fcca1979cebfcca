"""Python values in a snippet: numbers, strings, dtypes, sequences, functions."""

from dataclasses import dataclass, field
from typing import Any


def line_field() -> Any:
    """A field for a line number, ignored when values are compared; 0 if there is none."""
    return field(default=0, compare=False)


@dataclass(frozen=True)
class Value:
    """The base of all values."""


@dataclass(frozen=True)
class Unknown(Value):
    """An unknown value."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Num(Value):
    """A number or a bool. ``line``: where it was written, 0 if in several places."""

    value: float | int | bool
    line: int = line_field()
    python: bool = field(default=True, compare=False)  # not a tensor


@dataclass(frozen=True)
class Text(Value):
    """A string."""

    text: str


@dataclass(frozen=True)
class Nothing(Value):
    """None."""


@dataclass(frozen=True)
class DType(Value):
    """A dtype: an integer of ``bits``, or a float (``bits`` 16, 32, 64)."""

    bits: int
    signed: bool = True
    floating: bool = False

    @property
    def low(self) -> int:
        """The smallest integer."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The largest integer."""
        return self.low + (1 << self.bits) - 1

    def __str__(self) -> str:
        return f"{'float' if self.floating else 'int' if self.signed else 'uint'}{self.bits}"


@dataclass(frozen=True)
class Info(Value):
    """``torch.iinfo(dtype)``."""

    dtype: DType


@dataclass(frozen=True)
class Seq(Value):
    """A tuple or a list."""

    items: tuple[Value, ...]


@dataclass(frozen=True)
class Many(Value):
    """A sequence of unknown length with equal items."""

    item: Value


@dataclass(frozen=True)
class Module(Value):
    """A module, or a function in it, by its full name: ``torch.nn``."""

    name: str


@dataclass(frozen=True, eq=False)
class Function(Value):
    """A function of the snippet."""

    node: Any


@dataclass(frozen=True)
class Param(Value):
    """An unknown argument whose name says what it is: ``role`` scale or zero_point."""

    name: str
    role: str
