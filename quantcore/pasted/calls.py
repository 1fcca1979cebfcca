"""Calls: of the white list, in place too, of Python's own functions, and of the code's functions and classes."""

import ast
import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.apply import failing, raw
from quantcore.pasted.bounds import StopError
from quantcore.pasted.expressions import Expressions
from quantcore.pasted.names import Call, plain_bound
from quantcore.pasted.objects import Bound, Builtin, Class, Function, Instance, ReturnSignal, Scope
from quantcore.pasted.trace import ARRAYS, Val

_TYPES = {"int": int, "float": float, "bool": bool, "list": list, "tuple": tuple}
_CALLED = ("forward", "__call__")
_NEGATED = {"min": "Gt", "max": "Lt"}


class Calls(Expressions):
    """Evaluates calls; the statements are in `Walk`."""

    depth = 0

    def run_body(self, body: list[ast.stmt], scope: Scope) -> None:
        """Run the statements of a function."""
        raise NotImplementedError

    def writes(self, val: Val, line: int, name: str) -> None:
        """Note that an operation modifies a value, before it does."""
        raise NotImplementedError

    def _call(self, node: ast.Call, scope: Scope) -> Val:
        if isinstance(node.func, ast.Name) and scope.find(node.func.id) is None and not self.defines(node.func.id):
            raise StopError(f"`{ast.unparse(node)[:60]}` is not recognized, so what depends on it is not checked", node.lineno)
        func = self.evaluate(node.func, scope)
        args: list[Val] = []
        for part in node.args:
            args += self.items(self.evaluate(part.value, scope)) if isinstance(part, ast.Starred) else [self.evaluate(part, scope)]
        if any(k.arg is None for k in node.keywords) or len(args) > 64:
            raise StopError("`**` in a call is not evaluated")
        kw = {k.arg: self.evaluate(k.value, scope) for k in node.keywords if k.arg is not None}
        return self.call_value(func, args, kw, node.lineno)

    def defines(self, name: str) -> bool:
        """Whether a name that the code does not define can be called."""
        raise NotImplementedError

    def call_value(self, func: Val, args: list[Val], kw: dict[str, Val], line: int) -> Val:
        """Call a value.

        Raises:
            StopError: it can't be called, or the call fails.
        """
        match func.value:
            case Call() as call:
                return self.library_call(call, args, kw, line)
            case Bound(call=str() as name, owner=owner):
                return self._on_list(name, owner, args, line)
            case Bound(call=Call() as call, owner=owner) if func.name != call.name and func.name.endswith("_"):
                return self._in_place(call, owner, args, kw, line)
            case Bound(call=Call() as call, owner=owner):
                return self.library_call(call, [owner, *args], kw, line)
            case Bound(call=Function() as function, owner=owner):
                return self.call_function(function, [owner, *args], kw, line)
            case Function() as function:
                return self.call_function(function, args, kw, line)
            case Class() as made:
                return self._instance(made, args, kw, line)
            case Instance() as instance:
                for name in _CALLED:
                    if name in instance.made.members:
                        return self.call_value(self.member(func, name, line), args, kw, line)
            case Builtin(name=name):
                if kw:
                    raise StopError(f"keywords of `{name}` are not evaluated")
                return self._builtin(name, args, line)
        raise StopError("what is called here is not evaluated", line)

    def _in_place(self, call: Call, owner: Val, args: list[Val], kw: dict[str, Val], line: int) -> Val:
        """A method whose name ends with an underscore: the result is written into its tensor."""
        found = self.library_call(call, [owner, *args], kw, line)
        self.overwrite(owner, found, line, f"{call.name}_")
        return owner

    def overwrite(self, owner: Val, found: Val, line: int, name: str) -> None:
        """Write a result into the tensor of ``owner``, which becomes its value."""
        self.writes(owner, line, name)
        before = self.snapshot(owner)
        args = tuple(before if a is owner else a for a in found.args)
        failing(lambda: owner.value.copy_(found.value) if isinstance(owner.value, Tensor) else np.copyto(owner.value, found.value), line)
        self.became(owner, Val(owner.value, found.op, args, line, name=found.name))

    def snapshot(self, owner: Val) -> Val:
        """The value as it was, for the trace, before it is modified."""
        self.budget.room(plain_bound([owner.value]))
        old = owner.value.clone() if isinstance(owner.value, Tensor) else owner.value.copy()
        before = Val(old, owner.op, owner.args, owner.line, owner.index, owner.name, owner.varies, owner.handed, owner.flow, owner.data)
        for val in self.trace.vals[owner.index + 1 :]:  # what was computed from it, was computed from the old value
            if any(a is owner for a in val.args):
                val.args = tuple(before if a is owner else a for a in val.args)
                val.flow = before if val.flow is owner else val.flow
        self.trace.vals[owner.index] = before
        return before

    def became(self, owner: Val, made: Val) -> None:
        """Add what a value became to the trace, under its old identity."""
        self.trace.add(made)
        owner.value, owner.op, owner.args, owner.line, owner.name = made.value, made.op, made.args, made.line, made.name
        owner.index, owner.varies, owner.handed, owner.flow, owner.data = made.index, made.varies, made.handed, made.flow, made.data
        self.trace.vals[made.index] = owner

    def _on_list(self, name: str, owner: Val, args: list[Val], line: int) -> Val:
        if name in ("append", "extend"):
            added = args if name == "append" else [i for a in args for i in self.items(a)]
            if len(owner.value) + len(added) > bounds.MOST_ITEMS or (name == "append" and len(args) != 1):
                raise StopError(f"a list here would have more than {bounds.MOST_ITEMS:,} items")
            owner.value.extend(added)
            owner.varies = owner.varies or any(a.varies for a in added)
            owner.args = (*owner.args, *added)
            return self.trace.add(Val(None, line=line))
        if name == "get":
            key = args[0].value if args else None
            if not isinstance(key, int | float | str | torch.dtype):
                raise StopError("a key here is neither a number nor a word")
            found = owner.value.get(key)
            return found or (args[1] if len(args) > 1 else self.trace.add(Val(None, line=line)))
        keys = [self.trace.add(Val(k, line=line)) for k in owner.value]
        values: list[Val] = list(owner.value.values())
        pairs = [self.trace.add(Val((k, v), "pack", (k, v), line)) for k, v in zip(keys, values, strict=True)]
        items = {"keys": keys, "values": values, "items": pairs}[name]
        return self.trace.add(Val(items, "pack", tuple(items), line))

    def call_function(self, function: Function, args: list[Val], kw: dict[str, Val], line: int) -> Val:
        """Call a function of the pasted code.

        Raises:
            StopError: the arguments do not fit, or the calls are nested too deeply.
        """
        node, scope = function.node, Scope(function.scope)
        function.calls += 1
        self.bind(function, args, kw, scope)
        if self.depth >= bounds.MOST_CALLS:
            raise StopError(f"more than {bounds.MOST_CALLS} calls are nested here")
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body, scope)
            self.run_body(node.body, scope)
        except ReturnSignal as signal:
            return signal.value
        finally:
            self.depth -= 1
            self.last = scope.names
        return self.trace.add(Val(None, line=line))

    last: dict[str, Val]

    def bind(self, function: Function, args: list[Val], kw: dict[str, Val], scope: Scope) -> None:
        """Bind the parameters of a function.

        Raises:
            StopError: one is missing or unknown.
        """
        spec, names = function.node.args, function.parameters
        positional = names[: len(spec.posonlyargs) + len(spec.args)]
        if len(args) > len(positional):
            if spec.vararg is None:
                raise StopError(f"`{function.name}` is called with too many arguments", refused=False)
            scope.names[spec.vararg.arg] = self.trace.add(Val(tuple(args[len(positional) :]), "pack", tuple(args[len(positional) :])))
        elif spec.vararg is not None:
            scope.names[spec.vararg.arg] = self.trace.add(Val(()))
        scope.names |= dict(zip(positional, args, strict=False))
        for name, value in kw.items():
            if name not in names or name in scope.names:
                raise StopError(f"`{function.name}` has no parameter `{name[:40]}`, or it is given twice", refused=False)
            scope.names[name] = value
        for name in names:
            if name not in scope.names:
                if name not in function.defaults:
                    raise StopError(f"`{function.name}` is called without its argument `{name[:40]}`", refused=False)
                scope.names[name] = function.defaults[name]

    def _instance(self, made: Class, args: list[Val], kw: dict[str, Val], line: int) -> Val:
        made.calls += 1
        instance = self.trace.add(Val(Instance(made), line=line))
        start = made.members.get("__init__")
        if start is not None and isinstance(start.value, Function):
            self.call_function(start.value, [instance, *args], kw, line)
        elif args or kw:
            raise StopError(f"`{made.name}` takes no arguments", refused=False)
        return instance

    def _builtin(self, name: str, args: list[Val], line: int) -> Val:
        make = getattr(self, f"_do_{name}", None)
        if name in ("print", "super"):
            return self.trace.add(Val(Builtin("super") if name == "super" else None, line=line))
        if make is not None:
            found = make(args, line)
            assert isinstance(found, Val)
            return found
        given = [raw(a, self.budget) for a in args]
        if not given or not all(isinstance(g, (bool, int, float, *ARRAYS)) for g in given):
            raise StopError(f"`{name}` is evaluated for numbers and tensors only")
        if name == "pow":
            bounds.check_power(*given[:2])
        self.budget.room(plain_bound(given))
        found = failing(lambda: getattr(builtins, name)(*given), line)
        op = {"round": "round", "abs": "abs", "pow": "pow"}.get(name, "item")
        if name == "int":
            op = "cast"
        return self.trace.add(Val(found, op, tuple(args), line, name=name))

    def _do_len(self, args: list[Val], line: int) -> Val:
        value = args[0].value if len(args) == 1 else None
        if not isinstance(value, list | tuple | dict | range | Tensor | np.ndarray):
            raise StopError("`len` is evaluated for lists and tensors only")
        return self.trace.add(Val(failing(lambda: len(value), line), "size", (), line))

    def _do_range(self, args: list[Val], line: int) -> Val:
        given = [raw(a, self.budget) for a in args]
        given = [int(g) if isinstance(g, Tensor | np.generic) and g.ndim == 0 else g for g in given]
        if not all(isinstance(g, int) for g in given):
            raise StopError("`range` is evaluated for integers only")
        return self.trace.add(Val(failing(lambda: range(*given), line), "number", (), line))

    def _do_sum(self, args: list[Val], line: int) -> Val:
        total = args[1] if len(args) > 1 else self.trace.add(Val(0, line=line))
        for item in self.items(args[0]) if args else ():
            self.budget.step(line)
            total = self.operator("Add", total, item, line)
        return total

    def _do_zip(self, args: list[Val], line: int) -> Val:
        columns = [self.items(a) for a in args]
        rows = [self.trace.add(Val(row, "pack", row, line)) for row in zip(*columns, strict=False)]
        return self.trace.add(Val(rows, "pack", tuple(rows), line))

    def _do_enumerate(self, args: list[Val], line: int) -> Val:
        numbers = [self.trace.add(Val(i, line=line)) for i in range(len(self.items(args[0])))] if args else []
        return self._do_zip([self.trace.add(Val(numbers, line=line)), *args[:1]], line)

    def _do_list(self, args: list[Val], line: int) -> Val:
        items = [i for a in args[:1] for i in self.items(a)]
        return self.trace.add(Val(items, "pack", tuple(items), line))

    def _do_tuple(self, args: list[Val], line: int) -> Val:
        items = tuple(i for a in args[:1] for i in self.items(a))
        return self.trace.add(Val(items, "pack", items, line))

    def _do_reversed(self, args: list[Val], line: int) -> Val:
        items = [i for a in args[:1] for i in self.items(a)][::-1]
        return self.trace.add(Val(items, "pack", tuple(items), line))

    def _do_sorted(self, args: list[Val], line: int) -> Val:
        items = self.items(args[0]) if args else []
        if not all(isinstance(i.value, int | float) for i in items):
            raise StopError("`sorted` is evaluated for numbers only")
        items = sorted(items, key=lambda i: i.value)
        return self.trace.add(Val(items, "pack", tuple(items), line))

    def _do_isinstance(self, args: list[Val], line: int) -> Val:
        if len(args) != 2:
            raise StopError("`isinstance` takes two arguments", refused=False)
        kinds = args[1].value if isinstance(args[1].value, tuple) else (args[1],)
        types = [_TYPES.get(k.value.name) if isinstance(k.value, Builtin) else k.value for k in kinds]
        if not all(isinstance(t, type) for t in types):
            raise StopError("`isinstance` is evaluated for types of numbers and tensors only")
        return self.trace.add(Val(isinstance(args[0].value, tuple(types)), "size", (), line))

    def _do_min(self, args: list[Val], line: int) -> Val:
        return self._extreme(args, line, "Lt", "min")

    def _do_max(self, args: list[Val], line: int) -> Val:
        return self._extreme(args, line, "Gt", "max")

    def _extreme(self, args: list[Val], line: int, op: str, name: str) -> Val:
        items: Sequence[Val] = self.items(args[0]) if len(args) == 1 else args
        if not items or not all(isinstance(i.value, (bool, int, float, *ARRAYS)) for i in items):
            raise StopError(f"`{name}` is evaluated for numbers and tensors only")
        best: Any = items[0]
        for item in items[1:]:
            if self.truth(self.trace.add(Val(failing(lambda a=item, b=best: a.value < b.value if op == "Lt" else a.value > b.value, line), "binary", (item, best), line))):  # type: ignore[misc]  # fmt: skip
                best = item
        return self.trace.add(Val(best.value, "pick", tuple(items), line, name=name))
