"""What pasted code can define: functions, classes, their instances; and the scopes of its names."""

import ast
from dataclasses import dataclass, field
from typing import Any

from quantcore.pasted.names import Call
from quantcore.pasted.trace import Val

FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(eq=False)
class Scope:
    """Names and their values; ``outer``: where else to look, None for the module."""

    outer: "Scope | None" = None
    names: dict[str, Val] = field(default_factory=dict)

    def find(self, name: str) -> Val | None:
        """The value of a name here or further out."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None


@dataclass(eq=False)
class Function:
    """A function of the pasted code. ``static``: a method that takes no instance; ``calls``: how often it was called."""

    node: FunctionNode
    scope: Scope
    defaults: dict[str, Val]
    static: bool = False
    calls: int = 0

    @property
    def name(self) -> str:
        """As the code names it."""
        return self.node.name if isinstance(self.node, ast.FunctionDef) else "lambda"

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters."""
        args = self.node.args
        return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


@dataclass(eq=False)
class Class:
    """A class of the pasted code, with its methods and constants."""

    name: str
    line: int
    members: dict[str, Val]
    calls: int = 0


@dataclass(eq=False)
class Instance:
    """An instance of a pasted class."""

    made: Class
    fields: dict[str, Val] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Bound:
    """A method with the value it is called on: of the white list, or of the pasted code."""

    call: "Call | Function | str"
    owner: Val


@dataclass(frozen=True)
class Builtin:
    """One of Python's own functions, by name."""

    name: str


class Unread:
    """The value of a name whose statement could not be evaluated."""


class ReturnSignal(Exception):
    """A return statement was reached."""

    def __init__(self, value: Val):
        super().__init__()
        self.value = value


class LoopSignal(Exception):
    """A break or continue was reached."""

    def __init__(self, ends: bool):
        super().__init__()
        self.ends = ends


BUILTINS = frozenset(
    "abs min max round int float bool len range sum zip enumerate isinstance tuple list sorted reversed pow print super".split()
)


def plain(value: Any) -> bool:
    """Whether a value is one of Python's own: no function, class, instance or module."""
    return value is None or isinstance(value, int | float | str | list | tuple | dict)
