"""Evaluates expressions: names, operators, indices, attributes, and calls of the white list."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import Budget, StopError, arrays, elementwise, indexed, product
from quantcore.pasted.names import (
    BINARY,
    METHODS,
    MODULES,
    PROPERTIES,
    TYPE_NAMES,
    UNARY,
    WORDS,
    Module,
    Row,
    kind_of,
)  # fmt: skip
from quantcore.pasted.trace import ARRAYS, NUMBERS, Trace, Val, Vals

_OWN_DATA = ("tensor", "as_tensor", "array", "asarray", "randn")  # a tensor that the code makes itself
DEEPEST = 12  # of lists in lists
_ABBREVIATED = MODULES | {"np": MODULES["numpy"], "F": MODULES["torch.nn.functional"], "nn": MODULES["torch.nn"]}
ON_LISTS: dict[str, Callable[..., Any]] = {
    "zip": zip, "enumerate": enumerate, "list": list, "tuple": tuple, "reversed": reversed,
}  # fmt: skip
ON_NUMBERS: dict[str, tuple[str, Callable[..., Any]]] = {
    "abs": ("abs", abs), "round": ("round", round), "int": ("cast", int), "float": ("copy", float),
    "bool": ("binary", bool), "pow": ("pow", pow),
}  # fmt: skip
BUILTINS = frozenset([*ON_LISTS, *ON_NUMBERS, "len", "range", "sum", "min", "max", "print", "super"])
_FAILURES = (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, AttributeError, MemoryError)
_NOT_REAL = ("64j", "complex64", "complex128", "object")


@dataclass(eq=False)
class Scope:
    """Names and their values, of a function, a class or an instance; ``outer``: where else to look."""

    outer: "Scope | None" = None
    names: dict[str, Val] = field(default_factory=dict)

    def find(self, name: str) -> Val | None:
        """The value of a name here or further out."""
        return self.names.get(name) or (self.outer.find(name) if self.outer is not None else None)


@dataclass(eq=False)
class Function:
    """A function of the pasted code. ``owner``: the instance that it is called on; ``static``: it takes none."""

    node: ast.FunctionDef | ast.Lambda
    scope: Scope
    defaults: dict[str, Val]
    static: bool = False
    owner: Val | None = None


@dataclass(eq=False)
class Class:
    """A class of the pasted code."""

    name: str
    members: Scope


@dataclass(eq=False)
class Instance:
    """An instance of a pasted class; its fields, and outside of them those of its class."""

    fields: Scope


@dataclass(frozen=True, eq=False)
class Method:
    """A method of the white list, or a list's append, with its owner."""

    name: str
    owner: Val


@dataclass(frozen=True)
class Builtin:
    """One of Python's own functions."""

    name: str


class Unread:
    """The value of a name whose statement could not be evaluated."""


@dataclass(eq=False)
class Expressions:
    """Evaluates expressions; the statements are in `Walk`."""

    trace: Trace = field(default_factory=Trace)
    budget: Budget = field(default_factory=Budget)

    def evaluate(self, node: ast.expr, scope: Scope) -> Val:
        """The value of an expression.

        Raises:
            StopError: it can't be evaluated.
        """
        self.budget.step(node.lineno)
        found = getattr(self, f"_{type(node).__name__.lower()}", None)
        if found is None:
            raise StopError("this expression is not evaluated")
        value = found(node, scope)
        assert isinstance(value, Val)
        return value

    def free(self, name: str) -> Val | None:
        """The value of a name that the code does not define."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Val, scope: Scope) -> None:
        """Bind a target."""
        raise NotImplementedError

    def note(self, value: Any, op: str = "number", args: Vals = (), name: str = "") -> Val:
        """Add a value to the trace."""
        return self.trace.add(value, op, args, self.budget.line, name)

    def compute(self, run: Callable[[], Any], op: str, args: Vals, name: str, elements: float) -> Val:
        """Reserve room for a result, compute it, and add it to the trace.

        Raises:
            StopError: the result is too large or no number, or the computation fails.
        """
        self.budget.room(elements)
        try:
            with np.errstate(all="ignore"):
                found = run()
        except _FAILURES as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:160]
            raise StopError(f"this fails: {why}", refused=False) from None
        return self._packed(found, op, args, name)

    def _packed(self, found: Any, op: str, args: Vals, name: str) -> Val:
        """A result in the trace; the items of a list each on its own."""
        if isinstance(found, Val):
            return found
        if isinstance(found, list | tuple):
            self.budget.step(count=len(found))
            items = [self._packed(item, op, args, name) for item in found]
            kind = list if isinstance(found, list) else Row if hasattr(found, "indices") else tuple
            return self.note(kind(items), "pack", tuple(items), name)
        is_array = isinstance(found, ARRAYS)
        large = is_array and found.ndim > bounds.MOST_AXES
        if isinstance(found, complex) or large or (is_array and str(found.dtype).endswith(_NOT_REAL)):
            raise StopError("a result here is not a tensor of real numbers")
        val = self.note(found, op, args, name)
        if name in _OWN_DATA and is_array and found.ndim:
            val.varies = val.data = True
        return val

    def raw(self, val: Val, depth: int = 0) -> Any:
        """A value as torch or NumPy take it: a number, an array, a type, a known word, or a list of them.

        Raises:
            StopError: it is anything else.
        """
        value = val.value
        if isinstance(value, list | tuple) and depth < DEEPEST:
            self.budget.step(count=len(value))
            items = [self.raw(item, depth + 1) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Builtin) and value.name in TYPE_NAMES:
            return {"int": int, "float": float, "bool": bool}[value.name]
        is_type = isinstance(value, type) and issubclass(value, np.number)
        is_word = isinstance(value, str) and value in WORDS
        if is_type or is_word or isinstance(value, (*NUMBERS, torch.dtype, np.dtype, type(None))):
            return value
        raise StopError("an argument here is neither a number nor a tensor")

    def items(self, val: Val) -> list[Val]:
        """What a loop over a value visits.

        Raises:
            StopError: it can't be looped over, or has too many items.
        """
        value = val.value
        if isinstance(value, list | tuple):
            return list(value)
        if not isinstance(value, range) and not (isinstance(value, Tensor | np.ndarray) and value.ndim):
            raise StopError("this can't be looped over")
        if len(value) > bounds.MOST_ITEMS:
            raise StopError(f"a loop here would run more than {bounds.MOST_ITEMS:,} times")
        self.budget.step(count=len(value))
        return [self.note(item, "getitem", (val,)) for item in value]

    def truth(self, val: Val) -> bool:
        """Whether a value counts as true."""
        self.compute(lambda: bool(val.value), "binary", (val,), "bool", 1)
        return bool(val.value)

    # expressions

    def _constant(self, node: ast.Constant, scope: Scope) -> Val:
        bounds.check_operands("mul", node.value, 1)
        if not (node.value in (None, Ellipsis) or isinstance(node.value, bool | int | float | str)):
            raise StopError("this constant is not evaluated")
        return self.note(node.value)

    def _name(self, node: ast.Name, scope: Scope) -> Val:
        found = scope.find(node.id)
        if found is None and node.id in _ABBREVIATED:
            return self.note(_ABBREVIATED[node.id])
        if found is None and node.id in BUILTINS:
            return self.note(Builtin(node.id))
        found = found or self.free(node.id)
        if found is None:
            raise StopError(f"`{node.id[:40]}` is not known here")
        if isinstance(found.value, Unread):
            raise StopError("")
        return found

    def _binop(self, node: ast.BinOp, scope: Scope) -> Val:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        return self.operator(type(node.op).__name__, left, right)

    def operator(self, name: str, a: Val, b: Val) -> Val:
        """The result of a binary operator, by the name of its syntax node.

        Raises:
            StopError: the operands are not numbers or tensors, or the result would be too large.
        """
        if name not in BINARY:
            raise StopError("this comparison is not evaluated")
        op, run = BINARY[name]
        bounds.check_operands(op, a.value, b.value)
        lists = [isinstance(v.value, list | tuple) for v in (a, b)]
        if any(lists) and (op, sum(lists)) in (("mul", 1), ("add", 2)):
            return self.compute(lambda: run(a.value, b.value), "pack", (a, b), op, 1)
        if name not in ("Eq", "NotEq", "Is", "IsNot") and any(isinstance(v.value, str) for v in (a, b)):
            raise StopError("texts are not computed with")
        x, y = self.raw_word(a), self.raw_word(b)
        self._one_library([x, y])
        bound = product if op == "matmul" else elementwise
        return self.compute(lambda: run(x, y), op, (a, b), name, bound([x, y]))

    def raw_word(self, val: Val) -> Any:
        """`raw`, or any text, which is only compared."""
        return val.value if isinstance(val.value, str) or val.value is Ellipsis else self.raw(val)

    def _one_library(self, values: list[Any]) -> None:
        if len({isinstance(a, Tensor) for a in arrays(values)}) > 1:
            raise StopError("torch tensors and NumPy arrays are mixed here")

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Val:
        val = self.evaluate(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return self.note(not self.truth(val), "binary", (val,))
        x, name = self.raw(val), type(node.op).__name__
        op, run = UNARY[name]
        return self.compute(lambda: run(x), op, (val,), name, elementwise([x]))

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Val:
        val = self.evaluate(node.values[0], scope)
        for part in node.values[1:]:
            if self.truth(val) == isinstance(node.op, ast.Or):
                break
            val = self.evaluate(part, scope)
        return val

    def _compare(self, node: ast.Compare, scope: Scope) -> Val:
        left, found = self.evaluate(node.left, scope), self.note(True)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, scope)
            found = self.operator(type(op).__name__, left, right)
            if len(node.ops) > 1 and not self.truth(found):
                break
            left = right
        return found

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Val:
        return self.evaluate(node.body if self.truth(self.evaluate(node.test, scope)) else node.orelse, scope)

    def _tuple(self, node: ast.Tuple | ast.List, scope: Scope) -> Val:
        items = [self.evaluate(part, scope) for part in node.elts]
        return self.note(items if isinstance(node, ast.List) else tuple(items), "pack", tuple(items))

    _list = _tuple

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Val:
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.evaluate(part.value, scope)
        return self.note("")  # a text is only printed

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Val:
        return self.note(Function(node, scope, self.defaults(node.args, scope)))

    def defaults(self, args: ast.arguments, scope: Scope) -> dict[str, Val]:
        """The default values of parameters."""
        placed = zip([*args.posonlyargs, *args.args][::-1], args.defaults[::-1], strict=False)
        pairs = [*placed, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        return {a.arg: self.evaluate(default, scope) for a, default in pairs if default is not None}

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Val:
        inner = Scope(scope)
        found = [self.evaluate(node.elt, inner) for _ in self._generated(node.generators, inner)]
        return self.note(found, "pack", tuple(found))

    _generatorexp = _listcomp

    def _generated(self, generators: list[ast.comprehension], scope: Scope) -> Iterator[None]:
        first, rest = generators[0], generators[1:]
        for item in self.items(self.evaluate(first.iter, scope)):
            self.assign(first.target, item, scope)
            if all(self.truth(self.evaluate(test, scope)) for test in first.ifs):
                yield from self._generated(rest, scope) if rest else (None,)

    def index(self, node: ast.expr, scope: Scope) -> tuple[Any, tuple[Val, ...]]:
        """An index, as Python takes it, and the values in it."""
        if isinstance(node, ast.Tuple):
            parts = [self.index(part, scope) for part in node.elts]
            return tuple(p for p, _ in parts), tuple(v for _, vals in parts for v in vals)
        if isinstance(node, ast.Slice):
            ends = [self.evaluate(e, scope) if e else Val(None) for e in (node.lower, node.upper, node.step)]
            if not all(e.value is None or isinstance(e.value, int) for e in ends):
                raise StopError("a slice here has ends that are no integers")
            return slice(*(e.value for e in ends)), tuple(e for e in ends if e.value is not None)
        val = self.evaluate(node, scope)
        return (val.value if val.value is Ellipsis else self.raw(val)), (val,)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Val:
        val = self.evaluate(node.value, scope)
        index, vals = self.index(node.slice, scope)
        if not isinstance(val.value, list | tuple | Tensor | np.ndarray):
            raise StopError("this can't be indexed")
        value: Any = val.value
        elements = indexed(tuple(value.shape), index) if val.is_array else 1
        return self.compute(lambda: value[index], "getitem", (val, *vals), "[]", elements)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Val:
        base, name = node.value, node.attr
        known: list[dict[str, Any]] = [PROPERTIES, *METHODS.values()]
        unknown = isinstance(base, ast.Name) and base.id not in _ABBREVIATED and scope.find(base.id) is None
        if unknown and not any(name.removesuffix("_") in names for names in known):
            raise StopError(f"`{ast.unparse(node)[:60]}` is not evaluated")
        return self.member(self.evaluate(base, scope), name)

    def member(self, val: Val, name: str) -> Val:
        """An attribute of a value, by the value's type and its name.

        Raises:
            StopError: the white list does not have it.
        """
        value = val.value
        if isinstance(value, Module) and name in value.members:
            return self.note(value.members[name], name=name)
        if isinstance(value, Class | Instance):
            found = (value.members if isinstance(value, Class) else value.fields).find(name)
            function = found.value if found is not None and isinstance(value, Instance) else None
            if isinstance(function, Function) and not function.static:
                return self.note(replace(function, owner=val))
            if found is not None:
                return found
        if isinstance(value, ARRAYS) and name in PROPERTIES:
            op, get = PROPERTIES[name]
            return self.compute(lambda: get(value), op, (val,), name, 1)
        floats = isinstance(value, torch.finfo | np.finfo)
        if name in ("min", "max", "bits", "eps", "tiny") and (floats or isinstance(value, torch.iinfo | np.iinfo)):
            return self.note((float if floats else int)(getattr(value, name)))
        if isinstance(value, Row) and name in ("values", "indices"):
            return value[name == "indices"]  # type: ignore[no-any-return]
        methods = METHODS.get(kind_of(value), {"append": None} if isinstance(value, list) else {})
        if name in methods or (name.endswith("_") and name[:-1] in methods):
            return self.note(Method(name, val), name=name)
        if isinstance(value, Builtin) and value.name == "super" and name == "__init__":
            return self.note(Builtin("print"))
        where = value.name if isinstance(value, Module) else kind_of(value)
        raise StopError(f"`{name[:40]}` of {where} is not evaluated")
