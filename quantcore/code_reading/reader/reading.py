"""The state while a snippet is read."""

import ast
from dataclasses import dataclass, field

from quantcore.code_reading.values.names import Names
from quantcore.code_reading.values.python import Function, Unknown, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized
from quantcore.errors import QuantError

MAX_STEPS = 20_000


@dataclass
class Reading:
    """``codes``, ``dequantized``: everything computed so far; ``unread``: (line, source) of unrecognized
    calls; ``written``: the caller's tensors that were modified in place, with the line; ``library``: library
    calls that quantize, with the line."""

    codes: list[Codes] = field(default_factory=list)
    dequantized: list[Dequantized] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    unread: dict[tuple[int, str], None] = field(default_factory=dict)
    written: list[tuple[int, Data]] = field(default_factory=list)
    library: list[tuple[int, str]] = field(default_factory=list)
    steps: int = 0
    forks: int = 0

    def tick(self, node: ast.AST) -> None:
        """Count a step.

        Raises:
            QuantError: there are too many steps.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise QuantError(
                f"Line {getattr(node, 'lineno', 0)}: the code has too many branches to follow; paste only the "
                "lines that quantize."
            )

    def evaluate(self, node: ast.expr, names: Names) -> Value:
        """Return the value of an expression; unknown if it is not recognized."""
        raise NotImplementedError

    def call(self, function: Function, args: list[Value], named: Names, names: Names, line: int) -> Value:
        """Follow a call of a function of the snippet."""
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Value, names: Names) -> None:
        """Bind names to a value."""
        raise NotImplementedError

    def changed(self, value: Value, node: ast.AST) -> Value:
        """Record that a tensor of the caller was modified in place."""
        if isinstance(value, Data) and value.caller:
            self.written.append((getattr(node, "lineno", 0), value))
        return value

    def made(self, value: Value, *used: Value) -> Value:
        """Record codes and dequantized values; those they were computed from are no longer the last of their quantizer."""
        if isinstance(value, Codes) and not any(value is u for u in used):
            self.codes.append(value)
            self.used |= {id(u) for u in used if isinstance(u, Codes)}
        elif isinstance(value, Dequantized) and not any(value is u for u in used):
            self.dequantized.append(value)
            self.used |= {id(u) for u in used if isinstance(u, Codes | Dequantized)}
        elif isinstance(value, Unknown) and not any(isinstance(u, Data) for u in used):
            # combined with something other than x, so nothing is claimed; x - x̂ would be the error
            self.used |= {id(u) for u in used if isinstance(u, Dequantized)}
        return value
