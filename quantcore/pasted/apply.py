"""A call of the white list: its arguments checked, its result bounded, computed and traced."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import Budget, StopError
from quantcore.pasted.names import DTYPES, WORDS, Bound, Call, Row, arrays
from quantcore.pasted.objects import Builtin
from quantcore.pasted.trace import ARRAYS, Trace, Val

_DTYPE_TYPES = (np.float16, np.float32, np.float64, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.bool_)  # fmt: skip
_DEEPEST = 12  # of lists in lists
_PYTHON = {"float": float, "int": int, "bool": bool}


def raw(val: Val, budget: Budget, depth: int = 0) -> Any:
    """A value as the library takes it: numbers, arrays, types, and lists of them.

    Raises:
        StopError: it is anything else.
    """
    value = val.value
    if isinstance(value, list | tuple):
        if depth > _DEEPEST:
            raise StopError("lists are nested too deeply here")
        budget.steps -= len(value)
        budget.step(0)
        items = [raw(item, budget, depth + 1) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | torch.dtype | np.dtype):
        return value
    if isinstance(value, ARRAYS):
        return value
    if isinstance(value, str) and value in WORDS:
        return value
    if isinstance(value, Builtin) and value.name in DTYPES:
        return _PYTHON[value.name]
    if isinstance(value, type) and value in _DTYPE_TYPES:
        return value
    raise StopError("an argument here is neither a number nor a tensor")


def leaves(vals: list[Val], depth: int = 0) -> tuple[Val, ...]:
    """The values in arguments, also in lists."""
    found: list[Val] = []
    for val in vals:
        if isinstance(val.value, list | tuple) and depth < _DEEPEST:
            found += leaves(list(val.value), depth + 1)
        else:
            found.append(val)
    return tuple(found)


def failing(run: Callable[[], Any], line: int) -> Any:
    """Run an operation; what Python, torch or NumPy raise becomes a sentence.

    Raises:
        StopError: the operation fails.
    """
    try:
        with np.errstate(all="ignore"):
            found = run()
    except (TypeError, ValueError, IndexError, KeyError, RuntimeError, ArithmeticError, AttributeError, MemoryError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:160]
        raise StopError(f"this fails: {why}", line, refused=False) from None
    if isinstance(found, complex) or (isinstance(found, ARRAYS) and str(found.dtype).endswith(("complex64", "complex128", "object"))):
        raise StopError("the result is not a real number", line)
    return found


def apply(call: Call, args: list[Val], kw: dict[str, Val], trace: Trace, budget: Budget, line: int) -> Val:
    """Call a function or method of the white list.

    Raises:
        StopError: an argument is not allowed, the result would be too large, or the call fails.
    """
    if len(args) > call.most:
        raise StopError(f"`{call.name}` has more arguments here than are evaluated")
    for name in kw:
        if name not in call.keywords:
            raise StopError(f"`{name}` of `{call.name}` is not evaluated")
    given, named = [raw(a, budget) for a in args], {n: raw(v, budget) for n, v in kw.items()}
    _check_types(call, given, named)
    budget.room(call.bound(given, named))
    found = failing(lambda: call.run(*given, **named), line)
    parts = _clamp_parts(call, args, kw) if call.op == "clamp" else leaves([*args, *kw.values()])
    return record(found, call.op, parts, call.name, trace, line)


def _clamp_parts(call: Call, args: list[Val], kw: dict[str, Val]) -> tuple[Val, ...]:
    """Value, low and high of a clamp, however it is written."""
    x, rest, none = args[0], args[1:], Val(None)
    if call.name in ("maximum", "minimum", "clamp_min", "clamp_max", "fmax", "fmin"):
        bound = rest[0] if rest else next(iter(kw.values()), none)
        x, bound = (x, bound) if x.data else (bound, x)
        return (x, bound, none) if call.name in ("maximum", "clamp_min", "fmax") else (x, none, bound)
    low = rest[0] if rest else kw.get("min", kw.get("a_min", none))
    high = rest[1] if len(rest) > 1 else kw.get("max", kw.get("a_max", none))
    return (x, low, high)


def _check_types(call: Call, given: list[Any], named: dict[str, Any]) -> None:
    """Words and types only where they choose a type or a rule; torch and NumPy are not mixed."""
    for value in given:
        if isinstance(value, str) and call.op not in ("cast", "size", "create") and value not in ("linear", "lower", "higher", "midpoint", "nearest", "fro"):
            raise StopError(f"`{call.name}` of a text is not evaluated")
    kinds = {isinstance(a, Tensor) for a in arrays([*given, *named.values()])}
    if len(kinds) > 1:
        raise StopError("torch tensors and NumPy arrays are mixed here")


def record(found: Any, op: str, args: tuple[Val, ...], name: str, trace: Trace, line: int) -> Val:
    """Add a result to the trace; the items of a tuple each on its own."""
    if isinstance(found, list | tuple):
        items = [record(item, op, args, name, trace, line) for item in found]
        packed: Any = type(found)(items) if not isinstance(found, Row) else Row(items)
        if isinstance(found, Row):
            packed.names = found.names
        return trace.add(Val(packed, "pack", tuple(items), line, name=name))
    return trace.add(Val(found, op, args, line, name=name))


def operate(op: str, run: Callable[[Any, Any], Any], a: Val, b: Val, trace: Trace, budget: Budget, line: int, bound: Bound) -> Val:  # fmt: skip
    """Apply a binary operator of Python.

    Raises:
        StopError: as `apply`.
    """
    x, y = a.value, b.value
    if isinstance(x, list | tuple) or isinstance(y, list | tuple):
        return _of_lists(op, a, b, trace, line)
    if not all(isinstance(v, (bool, int, float, *ARRAYS)) for v in (x, y)):
        raise StopError("an operator is applied here to what is neither a number nor a tensor")
    if isinstance(x, ARRAYS) and isinstance(y, ARRAYS) and isinstance(x, Tensor) != isinstance(y, Tensor):
        raise StopError("torch tensors and NumPy arrays are mixed here")
    if op == "pow":
        bounds.check_power(x, y)
    elif op == "mul":
        bounds.check_product(x, y)
    elif op == "shift":
        bounds.check_shift(x, y)
    budget.room(bound([x, y], {}) if isinstance(x, ARRAYS) or isinstance(y, ARRAYS) else 1)
    return record(failing(lambda: run(x, y), line), op, (a, b), op, trace, line)


def _of_lists(op: str, a: Val, b: Val, trace: Trace, line: int) -> Val:
    bounds.check_product(a.value, b.value)
    x, y = a.value, b.value
    if op == "mul" and isinstance(x, int | list | tuple) and isinstance(y, int | list | tuple) and isinstance(x, int) != isinstance(y, int):
        return trace.add(Val(x * y, "pack", (a, b), line))  # type: ignore[operator]
    if op == "add" and isinstance(x, list) and isinstance(y, list) or isinstance(x, tuple) and isinstance(y, tuple):
        if len(x) + len(y) > bounds.MOST_ITEMS:
            raise StopError(f"a list here would have more than {bounds.MOST_ITEMS:,} items")
        return trace.add(Val(x + y, "pack", (a, b), line))
    raise StopError("this operator on a list is not evaluated")
