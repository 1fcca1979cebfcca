"""Evaluates calls: of the white list, of Python's own functions, and of the code's functions and classes."""

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from quantcore.pasted import bounds
from quantcore.pasted.bounds import StopError, elementwise
from quantcore.pasted.expressions import (
    BUILTINS,
    DEEPEST,
    ON_LISTS,
    ON_NUMBERS,
    Builtin,
    Class,
    Expressions,
    Function,
    Instance,
    Method,
    Scope,
)
from quantcore.pasted.names import METHODS, Call, kind_of
from quantcore.pasted.trace import ARRAYS, NUMBERS, Val, Vals


@dataclass(eq=False)
class Calls(Expressions):
    """Evaluates calls; the statements are in `Walk`."""

    def call_function(self, function: Function, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a function of the pasted code."""
        raise NotImplementedError

    def create(self, made: Class, args: list[Val], kw: dict[str, Val]) -> Val:
        """Make an instance of a pasted class."""
        raise NotImplementedError

    def overwrite(self, owner: Val, change: Callable[[Any], Any], op: str, args: Vals, name: str) -> Val:
        """Modify a tensor in place."""
        raise NotImplementedError

    def _call(self, node: ast.Call, scope: Scope) -> Val:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name and name not in BUILTINS and scope.find(name) is None:
            raise StopError(f"`{ast.unparse(node)[:60]}` is not recognized")
        func = self.evaluate(node.func, scope)
        if any(k.arg is None for k in node.keywords) or len(node.args) > 64:
            raise StopError("`**` in a call is not evaluated")
        args = [self.evaluate(a, scope) for a in node.args]
        kw = {str(k.arg): self.evaluate(k.value, scope) for k in node.keywords}
        self.budget.line = node.lineno
        return self.call(func, args, kw)

    def call(self, func: Val, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a value.

        Raises:
            StopError: it can't be called, or the call fails.
        """
        match func.value:
            case Call() as call:
                return self._of_library(call, args, kw)
            case Method(owner=Val(value=list()) as owner) if len(args) == 1 and not kw:  # only append
                bounds.check_operands("add", owner.value, 1)
                owner.value.append(args[0])
                owner.args, owner.varies = (*owner.args, args[0]), owner.varies or args[0].varies
                return self.note(None)
            case Method(name=name, owner=owner) if not isinstance(owner.value, list):
                return self._of_array(name, owner, args, kw)
            case Function() as function:
                own = [function.owner] if function.owner else []
                return self.call_function(function, [*own, *args], kw)
            case Class() as made:
                return self.create(made, args, kw)
            case Instance():
                return self.call(self.member(func, "forward"), args, kw)
            case Builtin(name=name):
                return self._of_python(name, args, kw)
        raise StopError("what is called here is not evaluated")

    def _of_array(self, name: str, owner: Val, args: list[Val], kw: dict[str, Val]) -> Val:
        """A method; if its name ends with an underscore, its result is written into its tensor."""
        methods = METHODS[kind_of(owner.value)]
        if name in methods:
            return self._of_library(methods[name], [owner, *args], kw)
        found = self._of_library(methods[name[:-1]], [owner, *args], kw)
        return self.overwrite(owner, lambda x: x.copy_(found.value), found.op, found.args, name)

    def _of_library(self, call: Call, args: list[Val], kw: dict[str, Val]) -> Val:
        """A call of the white list: arguments checked, the result bounded, then computed."""
        if len(args) > call.most or not kw.keys() <= call.keywords:
            other = next((n for n in kw if n not in call.keywords), "more arguments")
            raise StopError(f"`{call.name}` with {other[:40]} is not evaluated")
        if call.op == "clamp" and not args:
            raise StopError(f"`{call.name}` of nothing is not evaluated")
        given, named = [self.raw(a) for a in args], {n: self.raw(v) for n, v in kw.items()}
        if isinstance(named.get("dtype"), NUMBERS):  # a bound would take it for a size
            raise StopError("a number is given as a type here")
        self._one_library([*given, *named.values()])
        if call.op == "library":
            self.trace.library.append((self.budget.line, call.name))
        parts = _clamp_parts(call.name, args, kw) if call.op == "clamp" else _flat([*args, *kw.values()])
        elements = call.bound([*given, *named.values()])
        return self.compute(lambda: call.run(*given, **named), call.op, parts, call.name, elements)

    def _of_python(self, name: str, args: list[Val], kw: dict[str, Val]) -> Val:
        if name in ("print", "super"):
            return self.note(Builtin(name) if name == "super" else None)
        if kw.keys() > {"strict"} or not args or len(args) > 64:
            raise StopError(f"this `{name}` is not evaluated")
        if name in ON_LISTS:
            lists = [self.items(a) for a in args]
            return self.compute(lambda: list(ON_LISTS[name](*lists)), "number", (), name, 1)
        if name == "len":
            return self.compute(lambda: len(args[0].value), "size", (), name, 1)
        if name in ("sum", "min", "max"):
            items = self.items(args[0]) if len(args) == 1 else args
            found = self.note(0) if name == "sum" else items[0] if items else self.note(None)
            for item in items[name != "sum" :]:
                add = name == "sum"
                found = self.operator("Add", found, item) if add else self._extreme(name, found, item)
            return found
        given = [self.raw_word(a) for a in args]
        if name == "float" and given[0] in ("inf", "-inf", "nan"):
            return self.note(float(given[0]))
        if name == "range":
            ends = (int(g) if isinstance(g, ARRAYS) else g for g in given)  # evaluated within the computation
            return self.compute(lambda: range(*ends), "number", (), name, 1)
        op, run = ON_NUMBERS[name]
        if not all(isinstance(g, NUMBERS) for g in given):
            raise StopError(f"`{name}` is evaluated for numbers and tensors only")
        bounds.check_operands(op, given[0], given[-1])
        if name == "round" and len(given) > 1 and not (isinstance(given[1], int) and abs(given[1]) < 64):
            raise StopError("`round` to so many digits is not evaluated")
        return self.compute(lambda: run(*given), op, tuple(args), name, elementwise(given))

    def _extreme(self, name: str, best: Val, item: Val) -> Val:
        chosen = item if self.truth(self.operator("Lt" if name == "min" else "Gt", item, best)) else best
        return self.note(chosen.value, "pick", (chosen, best if chosen is item else item), name)


def _flat(vals: list[Val], depth: int = 0) -> Vals:
    """The values in arguments, also in lists."""
    found: list[Val] = []
    for val in vals:
        listed = isinstance(val.value, list | tuple) and depth < DEEPEST
        found += _flat(list(val.value), depth + 1) if listed else [val]
    return tuple(found)


def _clamp_parts(name: str, args: list[Val], kw: dict[str, Val]) -> Vals:
    """Value, low and high of a clamp, however it is written."""
    x, rest, none = args[0], args[1:], Val(None)
    if name not in ("clamp", "clip"):
        bound = next(iter((*rest, *kw.values())), none)
        x, bound = (x, bound) if x.data else (bound, x)
        return (x, bound, none) if name in ("maximum", "clamp_min", "fmax") else (x, none, bound)
    low = rest[0] if rest else kw.get("min", kw.get("a_min", none))
    return x, low, rest[1] if len(rest) > 1 else kw.get("max", kw.get("a_max", none))
