"""Calls of PyTorch, NumPy, Python built-ins and the snippet's own functions."""

import ast
import dataclasses
from typing import Any

from quantcore.code_reading.reader import operations
from quantcore.code_reading.reader.operations import OPERATIONS
from quantcore.code_reading.reader.reading import Reading
from quantcore.code_reading.values import arithmetic, extremes
from quantcore.code_reading.values.names import Names, item_of, name_of
from quantcore.code_reading.values.python import (
    UNKNOWN,
    DType,
    Function,
    Info,
    Many,
    Module,
    Seq,
    Text,
    Unknown,
    Value,
)
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Real, Steps
from quantcore.code_reading.values.reductions import Call
from quantcore.code_reading.values.steps import DTYPES, cast, rounded

_TRACKED = Codes | Dequantized | Data | Real | Steps


_MODULES = ("torch", "numpy", "math", "random", "copy", "plt", "matplotlib")
_PLAIN_NAMES = ("relu", "clamp", "deepcopy", "display")  # functions that a snippet may have imported by name
_LIBRARIES = ("torch", "numpy", "jax.numpy", "cupy")


def call(node: ast.Call, names: Names, reading: Reading) -> Value:
    """Return the value of a call; an unrecognized one is unknown, and recorded."""
    args = [reading.evaluate(a.value if isinstance(a, ast.Starred) else a, names) for a in node.args]
    named = {k.arg: reading.evaluate(k.value, names) for k in node.keywords if k.arg}
    method, numpy, of = False, False, list[Value]()
    name = ""
    if isinstance(node.func, ast.Name):
        function = name_of(node.func.id, names) if node.func.id in names else None
        if isinstance(function, Function):
            return reading.call(function, args, named, names, node.lineno)
        name = function.name.rpartition(".")[2] if isinstance(function, Module) else node.func.id
        if function is None:
            built_in = _built_in(name, args, named, node)
            if built_in is not None:
                return reading.made(built_in, *args)
            name = name if name in _PLAIN_NAMES or name in operations.QUIET else ""
        if isinstance(function, DType):
            return reading.made(cast(args[0], function, node.lineno), *args) if args else UNKNOWN
    elif isinstance(node.func, ast.Attribute):
        owner = reading.evaluate(node.func.value, names)
        name = node.func.attr
        if isinstance(owner, Module):
            numpy = owner.name.startswith("numpy")
            if owner.name.startswith(_LIBRARIES) and name in ("iinfo", "finfo") and args:
                dtype = DTYPES.get(args[0].text) if isinstance(args[0], Text) else args[0]
                return Info(dtype) if isinstance(dtype, DType) and not dtype.floating else UNKNOWN
            if owner.name.partition(".")[0] not in _MODULES:
                name = f"{owner.name}.{name}"
        elif isinstance(owner, Function):
            return UNKNOWN
        else:
            method, of = True, [owner]
    call = Call(name, (*of, *args), named, node.lineno, method, numpy)
    return _operate(call, node, names, reading)


def _operate(call: Call, node: ast.Call, names: Names, reading: Reading) -> Value:
    operation = OPERATIONS.get(call.name)
    tracked = any(isinstance(arithmetic.single(v), _TRACKED) for v in (*call.args, *call.named.values()))
    if operation is None:
        if tracked and not call.name.startswith(("plt.", "matplotlib")):
            reading.unread[node.lineno, ast.unparse(node)[:60]] = None
        return UNKNOWN
    try:
        found = operation(call)
    except IndexError:
        found = UNKNOWN  # called with too few arguments
    if call.name in operations.LIBRARY:
        reading.library.append((node.lineno, call.name))
    if call.name in operations.QUIET or call.name in operations.LIBRARY:
        return UNKNOWN
    if isinstance(found, Unknown) and tracked and not isinstance(found, Seq):
        reading.unread[node.lineno, ast.unparse(node)[:60]] = None
    if call.name.endswith("_") and isinstance(found, Data):
        reading.changed(found, node)
    return reading.made(found, *map(arithmetic.single, call.args))


def _built_in(name: str, args: list[Value], named: Names, node: ast.Call) -> Value | None:
    """Python's built-in functions; None for any other."""
    line = node.lineno
    first: Any = args[0] if args else UNKNOWN
    match name, len(args):
        case ("int", 1):
            return cast(first, DType(64), line, python=True)
        case ("float", 1):
            return cast(first, DType(64, True, True), line, python=True)
        case ("round", 1):
            found = rounded(first, "half_even", line)
            return (
                dataclasses.replace(found, python=True)
                if isinstance(found, Steps) and found.python
                else found
            )
        case ("abs", 1):
            return extremes.magnitude(first)
        case ("max" | "min", 2):
            return extremes.larger(first, args[1], name)
        case ("max" | "min", 3):
            value: Value = first
            for other in args[1:]:
                value = extremes.larger(value, other, name)
            return value
        case ("range", _):
            return Many(UNKNOWN)
        case ("zip", _):
            return Many(Seq(tuple(a.item if isinstance(a, Many) else UNKNOWN for a in args)))
        case ("enumerate", 1):
            return Many(Seq((UNKNOWN, item_of(first))))
        case ("pow", 2):
            return arithmetic.power(first, args[1])
        case ("tuple" | "list", 1):
            return first if isinstance(first, Seq | Many) else UNKNOWN
        case ("len" | "print" | "str" | "isinstance" | "bool" | "sum" | "type", _):
            return UNKNOWN
    return None
