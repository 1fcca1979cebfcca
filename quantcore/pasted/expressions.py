"""Evaluates expressions: names, operators, indices, attributes and comprehensions."""

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.apply import apply, failing, operate, raw, record
from quantcore.pasted.bounds import Budget, StopError
from quantcore.pasted.names import (
    ARRAY,
    ARRAY_PROPERTIES,
    BINARY,
    COMPARED,
    MEMBERS,
    QUANTIZED,
    TENSOR,
    TENSOR_PROPERTIES,
    Call,
    Module,
    Row,
    bound_of_index,
    bound_of_operator,
    plain_bound,
)
from quantcore.pasted.objects import BUILTINS, Bound, Builtin, Class, Function, Instance, Scope, Unread, plain
from quantcore.pasted.trace import ARRAYS, Trace, Val

_UNARY = {"USub": "neg", "UAdd": "copy", "Invert": "binary"}
_INFO = ("min", "max", "bits", "eps", "tiny")
_INFOS = (torch.iinfo, torch.finfo, np.iinfo, np.finfo)
_MODULES = {"torch": Module("torch"), "np": Module("numpy"), "numpy": Module("numpy"), "math": Module("math"),
            "F": Module("torch.nn.functional"), "nn": Module("torch.nn")}  # fmt: skip
_ON_LISTS = {list: ("append", "extend"), dict: ("get", "items", "keys", "values")}


class Expressions:
    """Evaluates expressions; the statements and calls are in `Walk`."""

    trace: Trace
    budget: Budget

    def evaluate(self, node: ast.expr, scope: Scope) -> Val:
        """The value of an expression.

        Raises:
            StopError: it can't be evaluated.
        """
        self.budget.step(node.lineno)
        found = getattr(self, f"_{type(node).__name__.lower()}", None)
        if found is None:
            raise StopError("this expression is not evaluated", node.lineno)
        value = found(node, scope)
        assert isinstance(value, Val)
        return value

    def free(self, name: str) -> Val | None:
        """The value of a name that the code does not define."""
        raise NotImplementedError

    def call_value(self, func: Val, args: list[Val], kw: dict[str, Val], line: int) -> Val:
        """Call a value."""
        raise NotImplementedError

    def number(self, value: Any, node: ast.AST, op: str = "number", args: tuple[Val, ...] = ()) -> Val:
        """A value that is no array, as part of the trace."""
        return self.trace.add(Val(value, op, args, getattr(node, "lineno", 0)))

    def _constant(self, node: ast.Constant, scope: Scope) -> Val:
        if isinstance(node.value, int) and node.value.bit_length() > bounds.MOST_BITS:
            raise StopError(f"an integer here has more than {bounds.MOST_BITS:,} bits")
        if not (plain(node.value) or node.value is Ellipsis):
            raise StopError("this constant is not evaluated")
        return self.number(node.value, node)

    def _name(self, node: ast.Name, scope: Scope) -> Val:
        found = scope.find(node.id)
        if found is None and node.id in _MODULES:
            return self.number(_MODULES[node.id], node)
        if found is None and node.id in BUILTINS:
            return self.number(Builtin(node.id), node)
        found = found or self.free(node.id)
        if found is None:
            raise StopError(f"`{node.id[:40]}` is not known here", node.lineno)
        if isinstance(found.value, Unread):
            raise StopError("", node.lineno)
        return found

    def _binop(self, node: ast.BinOp, scope: Scope) -> Val:
        a, b = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        return self.operator(type(node.op).__name__, a, b, node.lineno)

    def operator(self, name: str, a: Val, b: Val, line: int) -> Val:
        """The result of a binary operator, by the name of its syntax node."""
        op, run = BINARY[name]
        return operate(op, run, a, b, self.trace, self.budget, line, bound_of_operator.get(name, lambda args, kw: plain_bound(args)))

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Val:
        val = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return self.number(not self.truth(val), node, "binary", (val,))
        if not isinstance(val.value, (int, float, *ARRAYS)):
            raise StopError("an operator is applied here to what is neither a number nor a tensor")
        x, op = val.value, type(node.op)
        self.budget.room(plain_bound([x]))
        found = failing(lambda: -x if op is ast.USub else +x if op is ast.UAdd else ~x, node.lineno)
        return self.trace.add(Val(found, _UNARY[op.__name__], (val,), node.lineno, name=_UNARY[op.__name__]))

    def truth(self, val: Val) -> bool:
        """Whether a value counts as true."""
        value = val.value
        if isinstance(value, ARRAYS):
            return bool(failing(lambda: bool(value), self.budget.line))
        return bool(value) if plain(value) else True

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Val:
        wanted = isinstance(node.op, ast.Or)
        for part in node.values:
            val = self.evaluate(part, scope)
            if self.truth(val) == wanted:
                break
        return val

    def _compare(self, node: ast.Compare, scope: Scope) -> Val:
        left, found = self.evaluate(node.left, scope), None
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, scope)
            one = self._compared(op, left, right, node)
            found = one if found is None else self.number(self.truth(found) and self.truth(one), node, "binary", (found, one))
            left = right
        assert found is not None
        return found

    def _compared(self, op: ast.cmpop, a: Val, b: Val, node: ast.Compare) -> Val:
        x, y = a.value, b.value
        if isinstance(op, ast.Is | ast.IsNot):
            same = x is y or (plain(x) and plain(y) and x is None and y is None)
            return self.number(same == isinstance(op, ast.Is), node, "binary", (a, b))
        if isinstance(op, ast.In | ast.NotIn):
            items = [raw(item, self.budget) if not isinstance(item.value, str) else item.value for item in self.items(b)]
            if isinstance(x, ARRAYS) or not plain(x) or any(isinstance(i, ARRAYS) for i in items):
                raise StopError("`in` is evaluated for numbers only")
            return self.number((x in items) == isinstance(op, ast.In), node, "binary", (a, b))
        simple = (bool, int, float, str, torch.dtype, type, type(None), *ARRAYS)
        if isinstance(x, list | tuple) and isinstance(y, list | tuple):
            x, y = raw(a, self.budget), raw(b, self.budget)
            if any(isinstance(i, ARRAYS) for i in (*x, *y)):
                raise StopError("lists of tensors are not compared")
        elif not (isinstance(x, simple) and isinstance(y, simple)):
            raise StopError("this comparison is not evaluated")
        self.budget.room(plain_bound([v for v in (x, y) if isinstance(v, ARRAYS)]))
        found = failing(lambda: COMPARED[type(op).__name__](x, y), node.lineno)
        return self.trace.add(Val(found, "binary", (a, b), node.lineno))

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Val:
        return self.evaluate(node.body if self.truth(self.evaluate(node.test, scope)) else node.orelse, scope)

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Val:
        scope.names[node.target.id] = found = self.evaluate(node.value, scope)
        return found

    def _tuple(self, node: ast.Tuple | ast.List, scope: Scope) -> Val:
        items: list[Val] = []
        for part in node.elts:
            items += self.items(self.evaluate(part.value, scope)) if isinstance(part, ast.Starred) else [self.evaluate(part, scope)]
        if len(items) > bounds.MOST_ITEMS:
            raise StopError(f"a list here would have more than {bounds.MOST_ITEMS:,} items")
        return self.number(items if isinstance(node, ast.List) else tuple(items), node, "pack", tuple(items))

    _list = _tuple

    def _dict(self, node: ast.Dict, scope: Scope) -> Val:
        found: dict[Any, Val] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                raise StopError("`**` in a dict is not evaluated")
            name = self.evaluate(key, scope).value
            if not isinstance(name, int | float | str | torch.dtype | type(None)):
                raise StopError("a key here is neither a number nor a word")
            found[name] = self.evaluate(value, scope)
        return self.number(found, node, "pack", tuple(found.values()))

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Val:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.evaluate(part.value, scope)
        return self.number("", node)  # a text is never computed with

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Val:
        return self.number(Function(node, scope, self.defaults(node.args, scope)), node)

    def defaults(self, args: ast.arguments, scope: Scope) -> dict[str, Val]:
        """The default values of parameters."""
        names = [a.arg for a in (*args.posonlyargs, *args.args)]
        found = zip(names[len(names) - len(args.defaults) :], args.defaults, strict=True)
        keyword = ((a.arg, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d is not None)
        return {name: self.evaluate(default, scope) for name, default in (*found, *keyword)}

    def items(self, val: Val) -> list[Val]:
        """What a loop over a value visits.

        Raises:
            StopError: it can't be looped over, or has too many items.
        """
        value = val.value
        if isinstance(value, list | tuple):
            return list(value)
        if isinstance(value, dict):
            return [self.trace.add(Val(k, line=val.line)) for k in value]
        if isinstance(value, range):
            if len(value) > bounds.MOST_ITEMS:
                raise StopError(f"a loop here would run more than {bounds.MOST_ITEMS:,} times")
            return [self.trace.add(Val(i, "number", (val,), val.line)) for i in value]
        if isinstance(value, Tensor | np.ndarray) and value.ndim:
            self.budget.room(plain_bound([value]))
            return [self.trace.add(Val(value[i], "getitem", (val,), val.line)) for i in range(value.shape[0])]
        raise StopError("this can't be looped over")

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Val:
        inner = Scope(scope)
        found = [self.evaluate(node.elt, inner) for _ in self._generated(node.generators, inner)]
        return self.number(found, node, "pack", tuple(found))

    _generatorexp = _listcomp

    def _generated(self, generators: list[ast.comprehension], scope: Scope) -> Iterator[None]:
        first, rest = generators[0], generators[1:]
        if first.is_async:
            raise StopError("async is not evaluated")
        for item in self.items(self.evaluate(first.iter, scope)):
            self.budget.step(0)
            self.assign(first.target, item, scope)
            if all(self.truth(self.evaluate(test, scope)) for test in first.ifs):
                if rest:
                    yield from self._generated(rest, scope)
                else:
                    yield

    def assign(self, target: ast.expr, value: Val, scope: Scope) -> None:
        """Bind a target."""
        raise NotImplementedError

    def index(self, node: ast.expr, scope: Scope) -> tuple[Any, tuple[Val, ...]]:
        """An index, as Python takes it, and the values in it."""
        if isinstance(node, ast.Tuple):
            parts = [self.index(part, scope) for part in node.elts]
            return tuple(p for p, _ in parts), tuple(v for _, vals in parts for v in vals)
        if isinstance(node, ast.Slice):
            ends = [self.evaluate(e, scope) if e is not None else None for e in (node.lower, node.upper, node.step)]
            numbers = [e and raw(e, self.budget) for e in ends]
            numbers = [int(n) if isinstance(n, Tensor | np.generic) and n.ndim == 0 else n for n in numbers]
            if not all(n is None or isinstance(n, int) for n in numbers):
                raise StopError("a slice has ends that are no integers")
            return slice(*numbers), tuple(e for e in ends if e)
        val = self.evaluate(node, scope)
        return (val.value if val.value is Ellipsis else raw(val, self.budget)), (val,)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Val:
        val = self.evaluate(node.value, scope)
        value = val.value
        if isinstance(value, dict):
            key = self.evaluate(node.slice, scope).value
            if not isinstance(key, int | float | str | torch.dtype) or key not in value:
                raise StopError("this dict has no such key", node.lineno, refused=False)
            return value[key]
        index, vals = self.index(node.slice, scope)
        if isinstance(value, list | tuple):
            return self._of_list(value, index, node)
        if not isinstance(value, Tensor | np.ndarray):
            raise StopError("this can't be indexed", node.lineno)
        self.budget.room(bound_of_index(tuple(value.shape), index))
        found = failing(lambda: value[index], node.lineno)
        return record(found, "getitem", (val, *vals), "getitem", self.trace, node.lineno)

    def _of_list(self, value: Any, index: Any, node: ast.Subscript) -> Val:
        if isinstance(index, slice):
            found = list(value)[index]
            return self.number(found if isinstance(value, list) else tuple(found), node, "pack", tuple(found))
        if not isinstance(index, int) or not -len(value) <= index < len(value):
            raise StopError(f"this list has no item {index!s:.20}", node.lineno, refused=False)
        item = value[index]
        assert isinstance(item, Val)
        return item

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Val:
        base = node.value
        if isinstance(base, ast.Name) and scope.find(base.id) is None and base.id not in _MODULES and node.attr not in {**TENSOR, **ARRAY, **TENSOR_PROPERTIES, **ARRAY_PROPERTIES} and not (node.attr.endswith("_") and node.attr[:-1] in TENSOR):  # fmt: skip
            raise StopError(f"`{base.id[:40]}.{node.attr[:40]}` is not evaluated", node.lineno)
        return self.member(self.evaluate(base, scope), node.attr, node.lineno)

    def member(self, val: Val, name: str, line: int) -> Val:
        """An attribute of a value, by the value's type and its name.

        Raises:
            StopError: the white list does not have it.
        """
        value = val.value
        if isinstance(value, Module) and name in MEMBERS[value.name]:
            return self.trace.add(Val(MEMBERS[value.name][name], line=line, name=name))
        if isinstance(value, Tensor | np.ndarray | np.generic):
            return self._of_array(val, name, line)
        if isinstance(value, Row) and name in value.names:
            item = value[value.names.index(name)]
            assert isinstance(item, Val)
            return item
        if isinstance(value, _INFOS) and name in _INFO:
            return self.trace.add(Val(_plain_number(getattr(value, name)), line=line, name=name))
        if isinstance(value, Instance) and (name in value.fields or name in value.made.members):
            return value.fields.get(name) or self._of_class(val, value, name, line)
        if isinstance(value, Class) and name in value.members:
            return value.members[name]
        for kind, names in _ON_LISTS.items():
            if type(value) is kind and name in names:
                return self.trace.add(Val(Bound(name, val), line=line, name=name))
        if isinstance(value, Builtin) and value.name == "super" and name == "__init__":
            return self.trace.add(Val(Builtin("print"), line=line))
        raise StopError(f"`{name[:40]}` of {_kind(value)} is not evaluated", line)

    def _of_class(self, val: Val, value: Instance, name: str, line: int) -> Val:
        found = value.made.members[name]
        if isinstance(found.value, Function) and not found.value.static:
            return self.trace.add(Val(Bound(found.value, val), line=line, name=name))
        return found

    def _of_array(self, val: Val, name: str, line: int) -> Val:
        value, is_tensor = val.value, isinstance(val.value, Tensor)
        properties = TENSOR_PROPERTIES if is_tensor else ARRAY_PROPERTIES
        if is_tensor and value.is_quantized:
            calls = QUANTIZED
        else:
            calls = TENSOR if is_tensor else ARRAY
            if name in properties:
                op, get = properties[name]
                return record(failing(lambda: get(value), line), op, (val,), name, self.trace, line)
        in_place = is_tensor and name.endswith("_") and not name.endswith("__") and name[:-1] in calls
        if name in calls or in_place:
            call: Call = calls[name[:-1] if in_place else name]
            return self.trace.add(Val(Bound(call, val), "method", (val,), line, name=name))
        raise StopError(f"`{name[:40]}` of {_kind(value)} is not evaluated", line)

    def library_call(self, call: Call, args: list[Val], kw: dict[str, Val], line: int) -> Val:
        """A call of the white list."""
        if call.op == "library":
            self.trace.library.append((line, call.name))
        return apply(call, args, kw, self.trace, self.budget, line)


def _plain_number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _kind(value: Any) -> str:
    if isinstance(value, Module):
        return value.name
    if isinstance(value, Tensor | np.ndarray):
        return "a tensor" if isinstance(value, Tensor) else "an array"
    if isinstance(value, Class | Instance | Function | Bound | Builtin):
        return "this object"
    return f"a {'number' if isinstance(value, int | float) else 'text' if isinstance(value, str) else 'value'}"
