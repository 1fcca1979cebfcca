"""Evaluates expressions and calls of pasted code, each value with the operation that made it.

What can't be evaluated raises `StopError`; what exceeds the budget, `OverLimitError`.
"""

import ast
import math
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import Budget, StopError, check_integers, flat, indexed, shape_of
from quantcore.pasted.names import (
    ABBREVIATED,
    BUILTINS,
    KEYWORDS,
    METHODS,
    ON_LISTS,
    ON_NUMBERS,
    OPERATORS,
    TYPES,
    WORDS,
    Call,
    Module,
    kind_of,
)
from quantcore.pasted.trace import ARRAYS, NUMBERS, Trace, Val, Vals

_OWN_DATA = ("tensor", "as_tensor", "array", "asarray", "randn")  # a tensor that the code makes itself
_DEEPEST = 12  # of lists in lists
_FAILURES = (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, AttributeError, MemoryError)
_INFINITE = ("inf", "-inf", "nan")
_NOT_REAL = ("64j", "complex64", "complex128", "object")
Names = ChainMap[str, Val]  # of a function, a class or an instance, then of what is around it
UNREAD = Val(None)  # what a statement that could not be evaluated would have given


@dataclass(eq=False)
class Function:
    """A function of the pasted code. ``owner``: the instance that it is called on; ``static``: it takes none."""

    node: ast.FunctionDef | ast.Lambda
    names: Names
    defaults: dict[str, Val]
    static: bool = False
    owner: Val | None = None

    @property
    def parameters(self) -> list[str]:
        """Their names."""
        args = self.node.args
        return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


@dataclass(eq=False)
class Class:
    """A class of the pasted code, or an instance of one."""

    names: Names
    is_instance: bool = False


@dataclass(frozen=True, eq=False)
class Method:
    """A method of the white list, with its owner."""

    name: str
    owner: Val


@dataclass(frozen=True)
class Python:
    """One of Python's own functions that are not computed on numbers alone."""

    name: str


class Row(tuple[Val, ...]):
    """A tuple with ``values`` and ``indices``, as torch.max with an axis returns."""


@dataclass(eq=False)
class Expressions:
    """Evaluates expressions; the statements are in `Walk`."""

    trace: Trace = field(default_factory=Trace)
    budget: Budget = field(default_factory=Budget)
    spaces: list[Names] = field(default_factory=list)

    def space(self, *around: Names) -> Names:
        """Names within others."""
        self.spaces.append(around[0].new_child() if around else ChainMap())
        return self.spaces[-1]

    def evaluate(self, node: ast.expr, names: Names) -> Val:
        """The value of an expression."""
        self.budget.spend(node.lineno)
        match node:
            case ast.Name(id=name):
                return self._named(name, names)
            case ast.Attribute():
                return self._attribute(node, names)
            case ast.Call():
                return self._called(node, names)
            case ast.Constant(value=value) if not isinstance(value, bytes | complex):
                check_integers("mul", [value])
                return self.note(value)
            case ast.BinOp(left=left, right=right):
                return self.operator(node.op, self.evaluate(left, names), self.evaluate(right, names))
            case ast.Subscript(value=base, slice=part):
                return self._item(self.evaluate(base, names), *self.index(part, names))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                val = self.evaluate(operand, names)
                return self.note(not self.truth(val), "binary", (val,))
            case ast.UnaryOp(op=op, operand=operand):
                return self.apply(OPERATORS[type(op).__name__], [self.evaluate(operand, names)], {})
            case ast.Compare():
                return self._compared(node, names)
            case ast.Tuple(elts=parts):
                return self._pack([self.evaluate(part, names) for part in parts], tuple)
            case ast.List(elts=parts):
                return self._pack([self.evaluate(part, names) for part in parts], list)
            case ast.BoolOp(op=op, values=parts):
                val = self.evaluate(parts[0], names)
                for part in parts[1:]:
                    val = val if self.truth(val) == isinstance(op, ast.Or) else self.evaluate(part, names)
                return val
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.evaluate(body if self.truth(self.evaluate(test, names)) else orelse, names)
            case ast.JoinedStr(values=parts):
                for part in parts:
                    if isinstance(part, ast.FormattedValue):
                        self.evaluate(part.value, names)
                return self.note("")  # a text is only printed
            case ast.Lambda(args=args):
                return self.note(Function(node, names, self.defaults(args, names)))
            case ast.ListComp() | ast.GeneratorExp():
                inner = self.space(names)
                items = [self.evaluate(node.elt, inner) for _ in self._generated(node.generators, inner)]
                return self._pack(items, list)
        raise StopError("this expression is not evaluated")

    def note(self, value: Any, op: str = "number", args: Vals = (), name: str = "") -> Val:
        """Add a value to the trace."""
        return self.trace.add(value, op, args, self.budget.line, name)

    def compute(self, run: Callable[[], Any], op: str, args: Vals, name: str = "", bound: float = 1) -> Val:
        """Compute a result of at most ``bound`` elements, and add it to the trace."""
        if not bound <= bounds.MOST_ELEMENTS:
            raise StopError(f"a result here would have more than {bounds.MOST_ELEMENTS:,} elements")
        try:
            with np.errstate(all="ignore"):
                found = run()
        except _FAILURES as error:
            why = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:160]
            raise StopError(f"this fails: {why}", refused=False) from None
        return self._noted(found, op, args, name)

    def _noted(self, found: Any, op: str, args: Vals, name: str) -> Val:
        """A result in the trace; the items of a list each on its own."""
        if isinstance(found, Val):
            return found
        if isinstance(found, list | tuple):
            self.budget.spend(steps=len(found))
            kind = list if isinstance(found, list) else Row if hasattr(found, "indices") else tuple
            return self._pack([self._noted(item, op, args, name) for item in found], kind, name)
        is_array = isinstance(found, ARRAYS)
        large = is_array and found.ndim > bounds.MOST_AXES
        if isinstance(found, complex) or large or (is_array and str(found.dtype).endswith(_NOT_REAL)):
            raise StopError("a result here is not a tensor of real numbers")
        self.budget.spend(elements=math.prod(found.shape) if is_array else 0)
        val = self.note(found, op, args, name)
        if name in _OWN_DATA and is_array and found.ndim:
            val.varies = val.data = True
        return val

    def _pack(self, items: list[Val], kind: Callable[[list[Val]], Any], name: str = "") -> Val:
        return self.note(kind(items), "pack", tuple(items), name)

    def raw(self, val: Val, depth: int = 0) -> Any:
        """A value as torch or NumPy take it: a number, an array, a type, a known word, or a list of them."""
        value = val.value
        if isinstance(value, list | tuple) and depth < _DEEPEST:
            self.budget.spend(steps=len(value))
            items = [self.raw(item, depth + 1) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, Call) and value.name in TYPES and value.run is TYPES[value.name]:
            return value.run
        is_type = isinstance(value, type) and issubclass(value, np.number)
        is_word = isinstance(value, str) and value in WORDS
        if is_type or is_word or isinstance(value, (*NUMBERS, torch.dtype, np.dtype, type(None))):
            return value
        raise StopError("an argument here is neither a number nor a tensor")

    def items(self, val: Val) -> list[Val]:
        """What a loop over a value visits."""
        value = val.value
        if isinstance(value, list | tuple):
            return list(value)
        if not isinstance(value, Tensor | np.ndarray) or not value.ndim:
            raise StopError("this can't be looped over")
        self.budget.spend(steps=len(value))
        return [self.note(item, "getitem", (val,)) for item in value]

    def truth(self, val: Val) -> bool:
        """Whether a value counts as true."""
        return bool(self.compute(lambda: bool(val.value), "binary", (val,), "bool").value)

    def operator(self, node: ast.operator | ast.cmpop, a: Val, b: Val) -> Val:
        """The result of a binary operator."""
        call = OPERATORS.get(type(node).__name__)
        if call is None:
            raise StopError("this comparison is not evaluated")
        lists = isinstance(a.value, list | tuple) + isinstance(b.value, list | tuple)
        if lists and (call.op, lists) in (("mul", 1), ("add", 2)):
            times = max([v.value for v in (a, b) if isinstance(v.value, int)], default=1)
            self.budget.spend(steps=max(times, 0) * sum(math.prod(shape_of(v.value)[:1]) for v in (a, b)))
            return self.compute(lambda: call.run(a.value, b.value), "pack", (a, b))
        texts = [isinstance(v.value, str) or v.value is Ellipsis for v in (a, b)]
        if any(texts) and isinstance(node, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return self.compute(lambda: call.run(a.value, b.value) is True, "binary", (a, b))
        return self.apply(call, [a, b], {})

    def _compared(self, node: ast.Compare, names: Names) -> Val:
        left, found = self.evaluate(node.left, names), self.note(True)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, names)
            found = self.operator(op, left, right)
            if len(node.ops) > 1 and not self.truth(found):
                break
            left = right
        return found

    def defaults(self, args: ast.arguments, names: Names) -> dict[str, Val]:
        """The default values of parameters."""
        placed = zip([*args.posonlyargs, *args.args][::-1], args.defaults[::-1], strict=False)
        pairs = [*placed, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        return {a.arg: self.evaluate(default, names) for a, default in pairs if default is not None}

    def _generated(self, generators: list[ast.comprehension], names: Names) -> Iterator[None]:
        first, *rest = generators
        for item in self.items(self.evaluate(first.iter, names)):
            self.assign(first.target, item, names)
            if all(self.truth(self.evaluate(test, names)) for test in first.ifs):
                yield from self._generated(rest, names) if rest else (None,)

    # names, attributes and items

    def _named(self, name: str, names: Names) -> Val:
        found = names.get(name)
        if found is None and name in ABBREVIATED:
            return self.note(ABBREVIATED[name])
        if found is None and name in BUILTINS:
            return self.note(ON_NUMBERS.get(name, Python(name)))
        found = found or self.free(name)
        if found is None or found is UNREAD:
            raise StopError(f"`{name[:40]}` is not known here" if found is None else "")
        return found

    def index(self, node: ast.expr, names: Names) -> tuple[Any, Vals]:
        """An index, as Python takes it, and the values in it."""
        if isinstance(node, ast.Tuple):
            parts = [self.index(part, names) for part in node.elts]
            return tuple(p for p, _ in parts), tuple(v for _, vals in parts for v in vals)
        if isinstance(node, ast.Slice):
            ends = [self.evaluate(e, names) if e else Val(None) for e in (node.lower, node.upper, node.step)]
            if not all(e.value is None or isinstance(e.value, int) for e in ends):
                raise StopError("a slice here has ends that are no integers")
            return slice(*(e.value for e in ends)), tuple(e for e in ends if e.value is not None)
        val = self.evaluate(node, names)
        return (val.value if val.value is Ellipsis else self.raw(val)), (val,)

    def _item(self, val: Val, index: Any, vals: Vals) -> Val:
        value = val.value
        if not isinstance(value, list | tuple | Tensor | np.ndarray):
            raise StopError("this can't be indexed")
        bound = indexed([value, index]) if val.is_array else 1
        return self.compute(lambda: value[index], "getitem", (val, *vals), "[]", bound)

    def _attribute(self, node: ast.Attribute, names: Names) -> Val:
        base, name = node.value, node.attr
        unknown = isinstance(base, ast.Name) and base.id not in ABBREVIATED and base.id not in names
        if unknown and not any(name.removesuffix("_") in known for known in METHODS.values()):
            raise StopError(f"`{ast.unparse(node)[:60]}` is not evaluated")
        return self.member(self.evaluate(base, names), name)

    def member(self, val: Val, name: str) -> Val:
        """An attribute of a value, by the value's type and its name."""
        value, kind = val.value, kind_of(val.value)
        if isinstance(value, Class) and name in value.names:
            found = value.names[name]
            is_method = value.is_instance and isinstance(found.value, Function) and not found.value.static
            return self.note(replace(found.value, owner=val)) if is_method else found
        if isinstance(value, Module) and name in value.members:
            return self.note(value.members[name], name=name)
        if isinstance(value, Row) and name in ("values", "indices"):
            return value[name == "indices"]
        call = METHODS.get(kind, {}).get(name.removesuffix("_"))
        if call is not None and not call.most:
            return self.compute(lambda: call.run(value), call.op, (val,), name)
        if call is not None:
            return self.note(Method(name, val), name=name)
        if isinstance(value, Python) and (value.name, name) == ("super", "__init__"):
            return self.note(Python("print"))
        owner = value.name if isinstance(value, Module) else kind
        raise StopError(f"`{name[:40]}` of {owner} is not evaluated")

    # calls

    def _called(self, node: ast.Call, names: Names) -> Val:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name and name not in BUILTINS and name not in names:
            raise StopError(f"`{ast.unparse(node)[:60]}` is not recognized")
        func = self.evaluate(node.func, names)
        if any(k.arg is None for k in node.keywords) or len(node.args) > 64:
            raise StopError("`**` in a call is not evaluated")
        args = [self.evaluate(a, names) for a in node.args]
        kw = {str(k.arg): self.evaluate(k.value, names) for k in node.keywords}
        self.budget.line = node.lineno
        return self.call(func, args, kw)

    def call(self, func: Val, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a value."""
        match func.value:
            case Python(name=name):
                return self._python(name, args, kw)
            case Call(name="float") if args and isinstance(args[0].value, str) and args[0].value in _INFINITE:
                return self.note(float(args[0].value))
            case Call() as call:
                return self.apply(call, args, kw)
            case Method(owner=Val(value=list()) as owner) if len(args) == 1 and not kw:  # only append
                owner.value.append(args[0])
                owner.args, owner.varies = (*owner.args, args[0]), owner.varies or args[0].varies
                return self.note(None)
            case Method(name=name, owner=owner) if not isinstance(owner.value, list):
                methods = METHODS[kind_of(owner.value)]
                found = self.apply(methods.get(name) or methods[name[:-1]], [owner, *args], kw)
                if name in methods:
                    return found
                return self.overwrite(owner, lambda x: x.copy_(found.value), found.op, found.args, name)
            case Function() as function:
                return self.enter(function, [function.owner, *args] if function.owner else args, kw)
            case Class(is_instance=True):
                return self.call(self.member(func, "forward"), args, kw)
            case Class(names=members):
                instance = self.note(Class(self.space(members), True))
                start = members.get("__init__")
                if start is not None:
                    self.call(self.member(instance, "__init__"), args, kw)
                return instance
        raise StopError("what is called here is not evaluated")

    def apply(self, call: Call, args: list[Val], kw: dict[str, Val]) -> Val:
        """A call of the white list: arguments checked, the result bounded, then computed."""
        if len(args) > call.most or not kw.keys() <= KEYWORDS or (call.op == "clamp" and not args):
            other = next((n for n in kw if n not in KEYWORDS), "these arguments")
            raise StopError(f"`{call.name}` with {other[:40]} is not evaluated")
        given, named = [self.raw(a) for a in args], {n: self.raw(v) for n, v in kw.items()}
        if isinstance(named.get("dtype"), NUMBERS):  # a bound would take it for a size
            raise StopError("a number is given as a type here")
        values = [*given, *named.values()]
        if len({isinstance(a, Tensor) for a in flat(values) if isinstance(a, ARRAYS)}) > 1:
            raise StopError("torch tensors and NumPy arrays are mixed here")
        check_integers(call.op, values)
        if call.op == "library":
            self.trace.library.append((self.budget.line, call.name))
        parts = _clamp_parts(call.name, args, kw) if call.op == "clamp" else _flat([*args, *kw.values()])
        return self.compute(lambda: call.run(*given, **named), call.op, parts, call.name, call.bound(values))

    def _python(self, name: str, args: list[Val], kw: dict[str, Val]) -> Val:
        """A call of one of Python's own functions that are not computed on numbers alone."""
        if name in ("print", "super"):
            return self.note(Python(name) if name == "super" else None)
        if not kw.keys() <= {"strict"} or not args or len(args) > 64:
            raise StopError(f"this `{name}` is not evaluated")
        if name == "len":
            return self.compute(lambda: len(args[0].value), "size", ())
        if name == "range":
            given = [self.raw(a) for a in args]

            def counted() -> list[int]:
                ends = (int(g) if isinstance(g, ARRAYS) else g for g in given)
                return list(range(*ends)[: bounds.MOST_STEPS + 1])

            return self.compute(counted, "number", ())
        if name in ON_LISTS:
            lists = [self.items(a) for a in args]
            return self.compute(lambda: list(ON_LISTS[name](*lists)), "number", ())
        items = self.items(args[0]) if len(args) == 1 else args
        found = self.note(0) if name == "sum" else items[0] if items else self.note(None)
        for item in items[name != "sum" :]:
            if name == "sum":
                found = self.operator(ast.Add(), found, item)
            else:
                better = self.truth(self.operator(ast.Lt() if name == "min" else ast.Gt(), item, found))
                chosen, rest = (item, found) if better else (found, item)
                found = self.note(chosen.value, "pick", (chosen, rest), name)
        return found

    # what statements do

    def free(self, name: str) -> Val | None:
        """The value of a name that the code does not define."""
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Val, names: Names) -> None:
        """Bind a target."""
        raise NotImplementedError

    def enter(self, function: Function, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a function of the pasted code."""
        raise NotImplementedError

    def overwrite(self, owner: Val, change: Callable[[Any], Any], op: str, args: Vals, name: str) -> Val:
        """Modify a tensor in place."""
        raise NotImplementedError


def _flat(vals: list[Val], depth: int = 0) -> Vals:
    """The values in arguments, also in lists."""
    found: list[Val] = []
    for val in vals:
        listed = isinstance(val.value, list | tuple) and depth < _DEEPEST
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
