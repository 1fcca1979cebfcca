"""Evaluates the syntax tree of pasted code: expressions, statements, calls, functions and classes."""

import ast
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import NUMBERS, StopError, check_integers, indexed, is_mask, require
from quantcore.pasted.evaluation import Evaluation, Names, Val, Vals, ValuesAndIndices
from quantcore.pasted.names import ABBREVIATED, BUILTINS, METHODS, MODULES, Allowed, Module, kind_of

_INFINITE = ("inf", "-inf", "nan")
_HARMLESS = {
    "torch.no_grad()", "torch.inference_mode()", "staticmethod", "nn.Module", "torch.nn.Module", "object",
}  # fmt: skip
UNREAD = Val(None)  # what a statement that could not be evaluated would have given


@dataclass(eq=False)
class Function:
    """A function of the pasted code. ``static``: as a method, it takes no instance."""

    node: ast.FunctionDef | ast.Lambda
    names: Names
    defaults: dict[str, Val]
    static: bool = False

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


class Signal(Exception):
    """A return with its value, or a break or continue, was reached."""

    def __init__(self, node: ast.stmt, value: Val):
        super().__init__()
        self.node, self.value = node, value


@dataclass(eq=False)
class Interpreter(Evaluation):
    """One evaluation of the code. ``entered``: the functions called; ``depth``: calls in one another;
    ``begun``: the index of the first value of the statement that runs."""

    entered: set[ast.AST] = field(default_factory=set)
    depth: int = 0
    begun: int = 0

    # expressions

    def evaluate(self, node: ast.expr, names: Names) -> Val:
        """Evaluate an expression."""
        self.spend(node.lineno)
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
                return self.item(self.evaluate(base, names), *self._index(part, names))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                val = self.evaluate(operand, names)
                return self.note(not self.truth(val), "binary", (val,))
            case ast.UnaryOp(op=op, operand=operand):
                return self.operator(op, self.evaluate(operand, names))
            case ast.Compare():
                return self._compared(node, names)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = tuple(self.evaluate(part, names) for part in parts)
                return self.note(list(items) if isinstance(node, ast.List) else items, "pack", items)
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
                return self.note(Function(node, names, self._defaults(args, names)))
            case ast.ListComp() | ast.GeneratorExp():
                inner = self.space(names)
                items = tuple(self.evaluate(node.elt, inner) for _ in self._generated(node.generators, inner))
                return self.note(list(items), "pack", items)
        raise StopError("this expression is not evaluated")

    def _compared(self, node: ast.Compare, names: Names) -> Val:
        left, found = self.evaluate(node.left, names), self.note(True)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(part, names)
            found = self.operator(op, left, right)
            if len(node.ops) > 1 and not self.truth(found):
                break
            left = right
        return found

    def _generated(self, generators: list[ast.comprehension], names: Names) -> Iterator[None]:
        first, *rest = generators
        for item in self.items(self.evaluate(first.iter, names)):
            self.assign(first.target, item, names)
            if all(self.truth(self.evaluate(test, names)) for test in first.ifs):
                yield from self._generated(rest, names) if rest else (None,)

    def _index(self, node: ast.expr, names: Names) -> tuple[Any, Vals]:
        """Return an index, as Python takes it, and the values in it."""
        if isinstance(node, ast.Tuple):
            parts = [self._index(part, names) for part in node.elts]
            return tuple(p for p, _ in parts), tuple(v for _, vals in parts for v in vals)
        if isinstance(node, ast.Slice):
            ends = [self.evaluate(e, names) if e else Val(None) for e in (node.lower, node.upper, node.step)]
            given = tuple(e for e in ends if e.value is not None)
            whole = all(isinstance(e.value, int) for e in given)
            require(whole, "a slice here has ends that are no integers")
            return slice(*(e.value for e in ends)), given
        val = self.evaluate(node, names)
        return (val.value if val.value is Ellipsis else self.raw(val)), (val,)

    # names and attributes

    def _named(self, name: str, names: Names) -> Val:
        found = names.get(name)
        if found is None and (name in ABBREVIATED or name in BUILTINS):
            return self.note(ABBREVIATED.get(name) or BUILTINS[name])
        found = found or self.free(name)
        if found is None or found is UNREAD:
            raise StopError(f"`{name[:40]}` is not known here" if found is None else "")
        return found

    def _attribute(self, node: ast.Attribute, names: Names) -> Val:
        base, name = node.value, node.attr
        unknown = isinstance(base, ast.Name) and base.id not in ABBREVIATED and base.id not in names
        if unknown and not any(name.removesuffix("_") in known for known in METHODS.values()):
            raise StopError(f"`{ast.unparse(node)[:60]}` is not evaluated")
        return self.member(self.evaluate(base, names), name)

    def member(self, val: Val, name: str) -> Val:
        """Return an attribute of a value, by the value's type and its name."""
        value, kind = val.value, kind_of(val.value)
        if isinstance(value, Class) and name in value.names:
            found = value.names[name]
            is_method = value.is_instance and isinstance(found.value, Function) and not found.value.static
            return self.note(found.value, "method", (val,)) if is_method else found
        if isinstance(value, Module) and name in value.members:
            return self.note(value.members[name], name=name)
        if isinstance(value, ValuesAndIndices) and name in ("values", "indices"):
            return value[name == "indices"]
        call = METHODS.get(kind, {}).get(name.removesuffix("_"))
        if call is not None and not call.most:
            return self.compute(lambda: call.run(value), call.op, (val,), name)
        if call is not None:
            return self.note(call, "method", (val,), name)
        if isinstance(value, Allowed) and (value.name, name) == ("super", "__init__"):
            return self.note(BUILTINS["print"])
        raise StopError(
            f"`{name[:40]}` of {value.name if isinstance(value, Module) else kind} is not evaluated"
        )

    # calls

    def _called(self, node: ast.Call, names: Names) -> Val:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name and name not in BUILTINS and name not in names:
            raise StopError(f"`{ast.unparse(node)[:60]}` is not recognized")
        func = self.evaluate(node.func, names)
        named = all(k.arg is not None for k in node.keywords)
        require(named and len(node.args) <= 64, "`**` in a call is not evaluated")
        args = [self.evaluate(a, names) for a in node.args]
        kw = {str(k.arg): self.evaluate(k.value, names) for k in node.keywords}
        self.line = node.lineno
        return self.call(func, args, kw)

    def call(self, func: Val, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a value; an operation "method" has it with its owner."""
        owner = func.args if func.op == "method" else ()
        text = args[0].value if args and isinstance(args[0].value, str) else ""
        match func.value:
            case Allowed(name=name, run=None):
                return self.python(name, args, kw)
            case Allowed(name="float") if text in _INFINITE:
                return self.note(float(text))
            case Allowed(name="append") if len(args) == 1 and not kw:
                owner[0].value.append(args[0])
                owner[0].args, owner[0].varies = (*owner[0].args, args[0]), owner[0].varies or args[0].varies
                return self.note(None)
            case Allowed() as call:
                found = self.apply(call, [*owner, *args], kw)
                if not owner or func.name == call.name:
                    return found
                value, op = found.value, found.op
                return self.overwrite(owner[0], lambda x: x.copy_(value), op, found.args, func.name)
            case Function() as function:
                return self._enter(function, [*owner, *args], kw)
            case Class(is_instance=True):
                return self.call(self.member(func, "forward"), args, kw)
            case Class(names=members):
                instance = self.note(Class(self.space(members), True))
                if "__init__" in members:
                    self.call(self.member(instance, "__init__"), args, kw)
                return instance
        raise StopError("what is called here is not evaluated")

    def _defaults(self, args: ast.arguments, names: Names) -> dict[str, Val]:
        """Return the default values of parameters."""
        placed = zip([*args.posonlyargs, *args.args][::-1], args.defaults[::-1], strict=False)
        pairs = [*placed, *zip(args.kwonlyargs, args.kw_defaults, strict=True)]
        return {a.arg: self.evaluate(default, names) for a, default in pairs if default is not None}

    def _enter(self, function: Function, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a function of the pasted code."""
        node, parameters = function.node, function.parameters
        self.entered.add(node)
        found = function.defaults | dict(zip(parameters, args, strict=False)) | kw
        fits = not (node.args.vararg or node.args.kwarg or len(args) > len(parameters))
        fits &= found.keys() == set(parameters)
        require(fits, "the arguments of this call are not those of the function", refused=False)
        require(self.depth < bounds.MOST_CALLS, f"more than {bounds.MOST_CALLS} calls are nested here")
        names = self.space(function.names)
        names.update(found)
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body, names)
            self._block(node.body, names)
        except Signal as signal:
            return signal.value
        finally:
            self.depth -= 1
        return self.note(None)

    # statements

    def statement(self, node: ast.stmt, names: Names) -> None:
        """Run a statement."""
        self.spend(node.lineno)
        self.begun = len(self.vals)
        match node:
            case ast.Pass() | ast.AnnAssign(value=None):
                pass
            case ast.Expr(value=value):
                self.evaluate(value, names)
            case ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value):
                found = self.evaluate(value, names)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self.assign(target, found, names)
            case ast.AugAssign():
                self._augmented(node, names)
            case ast.Return(value=ast.expr() as value):
                raise Signal(node, self.evaluate(value, names))
            case ast.Return() | ast.Break() | ast.Continue():
                raise Signal(node, self.note(None))
            case ast.If(test=test, body=body, orelse=orelse):
                main = ast.unparse(test).startswith("__name__ ==")
                self._block(body if main or self.truth(self.evaluate(test, names)) else orelse, names)
            case ast.For(target=target, iter=value, body=body):
                for item in self.items(self.evaluate(value, names)):
                    self.assign(target, item, names)
                    if self._ends(body, names):
                        break
            case ast.While(test=test, body=body):
                while self.truth(self.evaluate(test, names)) and not self._ends(body, names):
                    self.spend()
            case ast.With(items=items, body=body) if {ast.unparse(i) for i in items} <= _HARMLESS:
                self._block(body, names)
            case ast.Assert(test=test):
                require(self.truth(self.evaluate(test, names)), "this assertion fails", refused=False)
            case ast.Import() | ast.ImportFrom():
                self._import(node, names)
            case ast.FunctionDef() | ast.ClassDef():
                self._define(node, names)
            case _:
                raise StopError("this statement is not evaluated")

    def _block(self, body: list[ast.stmt], names: Names) -> None:
        for node in body:
            self.statement(node, names)

    def _ends(self, body: list[ast.stmt], names: Names) -> bool:
        """Run the body of a loop once; tell whether the loop ends with it."""
        try:
            self._block(body, names)
        except Signal as signal:
            if isinstance(signal.node, ast.Return):
                raise
            return isinstance(signal.node, ast.Break)
        return False

    def _define(self, node: ast.FunctionDef | ast.ClassDef, names: Names) -> None:
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            marks += [ast.unparse(base) for base in (*node.bases, *(k.value for k in node.keywords))]
        require(set(marks) <= _HARMLESS, "this decorator or base is not evaluated")
        if isinstance(node, ast.FunctionDef):
            made = Function(node, names, self._defaults(node.args, names), "staticmethod" in marks)
            names[node.name] = self.note(made)
        else:
            members = self.space(names)
            names[node.name] = self.note(Class(members))
            self._block(node.body, members)

    def _import(self, node: ast.Import | ast.ImportFrom, names: Names) -> None:
        home = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name, path = alias.asname or alias.name.partition(".")[0], home + alias.name
            if path in MODULES:
                names[name] = self.note(MODULES[path if home or alias.asname else name])
            elif home[:-1] in MODULES:
                names[name] = self.member(self.note(MODULES[home[:-1]]), alias.name)
            else:
                names[name] = UNREAD
                raise StopError(f"the import of `{(home[:-1] or path)[:40]}` is not evaluated")

    def assign(self, target: ast.expr, value: Val, names: Names) -> None:
        """Bind a name, an attribute of an instance, an element of a tensor or list, or several of them."""
        match target:
            case ast.Name(id=name):
                names[name] = value
                self.assigned.append((target.lineno, name, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = self.items(value)
                fits = len(items) == len(parts)
                require(fits, f"{len(parts)} names are given {len(items)} values", refused=False)
                for part, item in zip(parts, items, strict=True):
                    self.assign(part, item, names)
            case ast.Attribute(value=base, attr=name) if not name.startswith("__"):
                owner = self.evaluate(base, names).value
                own = isinstance(owner, Class) and owner.is_instance
                require(own, "attributes are only set on the code's own objects")
                owner.names[name] = value
            case ast.Subscript(value=base):
                self._set_item(self.evaluate(base, names), *self._index(target.slice, names), value)
            case _:
                raise StopError("this target of an assignment is not evaluated")

    def _set_item(self, owner: Val, index: Any, vals: Vals, value: Val) -> None:
        items = owner.value
        if isinstance(items, list) and isinstance(index, int) and -len(items) <= index < len(items):
            items[index] = value
            return
        numbers = isinstance(items, Tensor | np.ndarray) and isinstance(value.value, NUMBERS)
        require(numbers, "only elements of tensors are set")
        few = indexed([items, index]) <= bounds.MOST_ELEMENTS
        require(few, f"more than {bounds.MOST_ELEMENTS:,} elements are set here")
        op = "mask" if any(is_mask(v.value) for v in vals) else "setitem"
        args = (owner, value, *vals)
        self.overwrite(owner, lambda x: x.__setitem__(index, value.value), op, args, "an assignment")

    def _augmented(self, node: ast.AugAssign, names: Names) -> None:
        old, value = self.evaluate(node.target, names), self.evaluate(node.value, names)
        found = self.operator(node.op, old, value)
        if isinstance(old.value, Tensor | np.ndarray) and isinstance(node.target, ast.Name):
            into = Tensor.copy_ if isinstance(old.value, Tensor) else np.copyto
            name = f"`{ast.unparse(node)[:40]}`"
            self.overwrite(old, lambda x: into(x, found.value), found.op, (old, value), name)
        else:
            self.assign(node.target, found, names)

    def overwrite(self, owner: Val, change: Callable[[Any], Any], op: str, args: Vals, name: str) -> Val:
        """Modify a tensor in place. Its value so far stays what it was; all names of it have the new one."""
        if any(_share(v.value, owner.value) for v in self.bound.values()):
            self.written.append((self.line, name))
        live, is_tensor = owner.value, isinstance(owner.value, Tensor)
        owner.value = live.clone() if is_tensor else live.copy()
        self.spend(elements=math.prod(live.shape))
        self.compute(lambda: change(live) is None, "binary", ())
        made = self.note(live, op, args, name.removesuffix("_"))
        for names in (self.bound, *(space.maps[0] for space in self.spaces)):
            names.update({n: made for n, v in names.items() if v is owner})
        return made


def _share(a: Any, b: Any) -> bool:
    """Tell whether two arrays share memory."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)
