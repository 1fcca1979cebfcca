"""Evaluates the statements of pasted code on a tensor, and calls the functions that it only defines."""

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.bounds import OverLimitError, StopError, elementwise, indexed
from quantcore.pasted.calls import Calls
from quantcore.pasted.expressions import BUILTINS, Class, Function, Instance, Scope, Unread
from quantcore.pasted.names import BINARY, MODULES
from quantcore.pasted.trace import NUMBERS, Override, Val, Vals, is_mask

_SCALE = re.compile(r"(\w+_)?(s|scales?|step|step_size|delta)|qscale", re.I)
_ZERO = re.compile(r"(\w+_)?(z|zp|zeros?|zero_?points?|offset)", re.I)
_BITS = re.compile(r"\w*bits?|bit_?width", re.I)
_NO_TENSOR = re.compile(
    r"\w*(min|max|low|high|level|size|dim|axis|eps|bound|limit|range|dtype|device|mode|name|path|file|config|args|model"
    r"|group|block)\w*|lo|hi|[nkij]|lr|alpha|beta|gamma|self|cls|ctx|_\w*", re.I,
)  # fmt: skip
_SECOND = re.compile(r"[xwyt]|\w*(weight|input|tensor|data|image|img|matrix|array)\w*", re.I)  # besides a first tensor
_CODES = re.compile(r"q|codes?|\w*quantized\w*|\w*_q|q_\w+|[xw]q|q[xw]", re.I)
_FLAG = re.compile(r"\w*(sym|signed|narrow)\w*", re.I)
_HARMLESS = ("torch.no_grad()", "torch.inference_mode()", "staticmethod", "nn.Module", "torch.nn.Module", "object")


@dataclass(frozen=True)
class Given:
    """What the code is given: the tensor, float32, and what stands for a scale, zero point and bits it does not
    compute. ``flags``: values of boolean parameters of functions that nobody calls, by name; ``end``: the processor
    time of this thread at which every evaluation ends."""

    x: Tensor
    scale: float
    zero_point: int
    bits: int = 8
    numpy: bool = False
    flags: tuple[tuple[str, bool], ...] = ()
    end: float = math.inf


class _Return(Exception):
    """A return statement was reached."""

    def __init__(self, value: Val):
        super().__init__()
        self.value = value


class _Loop(Exception):
    """A break, if it ``ends`` the loop, or a continue was reached."""

    def __init__(self, ends: bool):
        super().__init__()
        self.ends = ends


@dataclass(eq=False)
class Walk(Calls):
    """One evaluation of the code. ``bound``: what stands for names that it does not define; ``flags``: the boolean
    parameters of functions that nobody calls; ``made``: what the last of these returned, by name."""

    tree: ast.Module = field(kw_only=True)
    given: Given = field(kw_only=True)
    bound: dict[str, Val] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    made: dict[str, Val] = field(default_factory=dict)
    scopes: list[Scope] = field(default_factory=list)
    called: set[ast.AST] = field(default_factory=set)
    depth: int = 0

    def run(self) -> None:
        """Run the code, then what it only defines; what can't be evaluated goes to ``trace.unread``.

        Raises:
            OverLimitError: it takes too many steps, elements or too much time.
        """
        scope = self._scope(None)
        for node in self.tree.body:
            if not self._attempt(lambda node=node: self.statement(node, scope)):  # type: ignore[misc]
                names = (n for n in ast.walk(node) if isinstance(n, ast.Name))
                scope.names |= {n.id: Val(Unread()) for n in names if isinstance(n.ctx, ast.Store)}
        for val in list(scope.names.values()):
            if isinstance(val.value, Function) and val.value.node not in self.called:
                self._attempt(lambda val=val: self._use(val, val.value))  # type: ignore[misc]
            elif isinstance(val.value, Class) and not any(isinstance(v.value, Instance) for v in self.trace.vals):
                self._attempt(lambda val=val: self._use_class(val.value))  # type: ignore[misc]

    def _attempt(self, run: Callable[[], Any]) -> bool:
        try:
            run()
        except StopError as stop:
            if stop.why:
                self.trace.unread.append((self.budget.line, stop.why, stop.refused))
            return False
        except (_Return, _Loop):
            self.trace.unread.append((self.budget.line, "this has no function or loop around it", False))
            return False
        except RecursionError:
            raise OverLimitError("The code is nested too deeply; paste only the lines that quantize.") from None
        return True

    def _scope(self, outer: Scope | None) -> Scope:
        self.scopes.append(Scope(outer))
        return self.scopes[-1]

    # names that the code does not define

    def free(self, name: str) -> Val | None:
        """What stands for a name that the code does not define: the tensor, or what it is given."""
        if name not in self.bound and name not in BUILTINS:
            given, second = self.given, any(v.op == "input" for v in self.bound.values())
            if _SCALE.fullmatch(name):
                value: Any = np.float32(given.scale) if given.numpy else torch.tensor(given.scale)
            elif _ZERO.fullmatch(name) or _BITS.fullmatch(name):
                value = given.zero_point if _ZERO.fullmatch(name) else given.bits
            elif _NO_TENSOR.fullmatch(name) or (second and not _SECOND.fullmatch(name)):
                return None
            else:
                return self._tensor(name)
            self.bound[name] = self.note(value, "handed", name=name)
            self.bound[name].handed = not _BITS.fullmatch(name)
        return self.bound.get(name)

    def _tensor(self, name: str) -> Val:
        """A copy of the tensor under a name."""
        x = self.given.x.clone()
        self.budget.room(x.numel())
        val = self.bound[name] = self.note(x.numpy() if self.given.numpy else x, "input", name=name)
        val.varies = val.data = True
        return val

    def overwrite(self, owner: Val, change: Callable[[Any], Any], op: str, args: Vals, name: str) -> Val:
        """Modify a tensor in place. Its value so far stays in the trace; all names of it have the new one."""
        if any(v.is_array and _share(v.value, owner.value) for v in self.bound.values()):
            self.trace.written.append((self.budget.line, name))
        live, is_tensor = owner.value, isinstance(owner.value, Tensor)
        self.budget.room(elementwise([live]))
        owner.value = live.clone() if is_tensor else live.copy()
        self.compute(lambda: change(live) is None, "binary", (), name, 1)
        made = self.note(live, op, args, name.removesuffix("_"))
        for names in (self.bound, *(s.names for s in self.scopes)):
            names.update({n: made for n, v in names.items() if v is owner})
        return made

    # functions and classes of the code

    def call_function(self, function: Function, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a function of the pasted code.

        Raises:
            StopError: the arguments do not fit, or the calls are nested too deeply.
        """
        node, scope = function.node, self._scope(function.scope)
        self.called.add(node)
        names = _parameters(function)
        found = dict(zip(names, args, strict=False)) | kw
        missing = [n for n in names if n not in found and n not in function.defaults]
        starred = node.args.vararg or node.args.kwarg
        if missing or starred or len(args) > len(names) or not kw.keys() <= set(names):
            raise StopError("the arguments of this call are not those of the function", refused=False)
        scope.names = function.defaults | found
        if self.depth >= bounds.MOST_CALLS:
            raise StopError(f"more than {bounds.MOST_CALLS} calls are nested here")
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body, scope)
            self.run_body(node.body, scope)
        except _Return as signal:
            return signal.value
        finally:
            self.depth -= 1
        return self.note(None)

    def create(self, made: Class, args: list[Val], kw: dict[str, Val]) -> Val:
        """Make an instance of a pasted class."""
        instance = self.note(Instance(self._scope(made.members)))
        start = made.members.names.get("__init__")
        if start is not None and isinstance(start.value, Function):
            self.call_function(start.value, [instance, *args], kw)
        return instance

    def _use_class(self, made: Class) -> None:
        start = made.members.names.get("__init__")
        takes = start is not None and isinstance(start.value, Function)
        instance = self.create(made, self._arguments(start.value, 1, None) if start and takes else [], {})
        for name, member in list(made.members.names.items()):
            if isinstance(member.value, Function) and member.value.node not in self.called:
                self._use(self.member(instance, name), member.value)

    def _use(self, val: Val, function: Function) -> None:
        """Call a function that nobody calls."""
        own = int(isinstance(val.value, Function) and val.value.owner is not None)
        args = self._arguments(function, own, 0)
        self.bound |= {n: v for n, v in zip(_parameters(function)[own:], args, strict=False) if v.op == "input"}
        returned = self.call(val, args, {})
        values = list(returned.value) if isinstance(returned.value, tuple) else [returned]
        ends = [n.value for n in ast.walk(function.node) if isinstance(n, ast.Return) and n.value is not None]
        parts = [part for end in ends[-1:] for part in (end.elts if isinstance(end, ast.Tuple) else [end])]
        names = [getattr(part, "id", "") for part in parts]
        self.made = {**dict(zip(names, values, strict=False)), "": values[0]}

    def _arguments(self, function: Function, own: int, tensor: int | None) -> list[Val]:
        """What to call a function with: the tensor in place ``tensor``, what the function before it returned, what the
        code is given, and defaults."""
        found: list[Val] = []
        for i, name in enumerate(_parameters(function)[own:]):
            default = function.defaults.get(name)
            if isinstance(default.value, bool) if default is not None else _FLAG.fullmatch(name):
                self.flags.add(name)
                usual = default.value if default is not None else True
                default = self.note(dict(self.given.flags).get(name, usual))
            earlier = self.made.get(name) or (self.made.get("") if i == tensor and _CODES.fullmatch(name) else None)
            val = default or (earlier if i != tensor or _CODES.fullmatch(name) else None) or self.free(name)
            if val is None and i == tensor:
                val = self._tensor(name)
            if val is None:
                raise StopError(f"the argument `{name[:40]}` has no value here")
            found.append(val)
        return found

    # statements

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        """Run a statement.

        Raises:
            StopError: it can't be evaluated.
        """
        self.budget.step(node.lineno)
        match node:
            case ast.Expr(value=value):
                self.evaluate(value, scope)
            case ast.Assign(targets=targets, value=value):
                found = self.evaluate(value, scope)
                for target in targets:
                    self.assign(target, found, scope)
            case ast.Pass() | ast.AnnAssign(value=None):
                pass
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, self.evaluate(value, scope), scope)
            case ast.AugAssign():
                self._augmented(node, scope)
            case ast.Return(value=value):
                raise _Return(self.note(None) if value is None else self.evaluate(value, scope))
            case ast.If(test=test, body=body, orelse=orelse):
                main = ast.unparse(test).startswith("__name__ ==")
                self.run_body(body if main or self.truth(self.evaluate(test, scope)) else orelse, scope)
            case ast.For(target=target, iter=value, body=body):
                for item in self.items(self.evaluate(value, scope)):
                    self.assign(target, item, scope)
                    if self._ends(body, scope):
                        break
            case ast.While(test=test, body=body):
                while self.truth(self.evaluate(test, scope)) and not self._ends(body, scope):
                    self.budget.step()
            case ast.Break() | ast.Continue():
                raise _Loop(isinstance(node, ast.Break))
            case ast.With(items=items, body=body) if all(ast.unparse(i) in _HARMLESS for i in items):
                self.run_body(body, scope)
            case ast.Assert(test=test):
                if not self.truth(self.evaluate(test, scope)):
                    raise StopError("this assertion fails", refused=False)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.FunctionDef() | ast.ClassDef():
                self._define(node, scope)
            case _:
                raise StopError("this statement is not evaluated")

    def _define(self, node: ast.FunctionDef | ast.ClassDef, scope: Scope) -> None:
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        if isinstance(node, ast.FunctionDef):
            made: Any = Function(node, scope, self.defaults(node.args, scope), "staticmethod" in marks)
        else:
            marks += [ast.unparse(base) for base in (*node.bases, *(k.value for k in node.keywords))]
            made = Class(node.name, self._scope(scope))
        if not set(marks) <= set(_HARMLESS):
            raise StopError("this decorator or base is not evaluated")
        scope.names[node.name] = self.note(made)
        if isinstance(made, Class):
            self.run_body(node.body, made.members)

    def run_body(self, body: list[ast.stmt], scope: Scope) -> None:
        """Run the statements of a block."""
        for node in body:
            self.statement(node, scope)

    def _ends(self, body: list[ast.stmt], scope: Scope) -> bool:
        """Run the body of a loop once; whether the loop ends with it."""
        try:
            self.run_body(body, scope)
        except _Loop as signal:
            return signal.ends
        return False

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            name, path = alias.asname or alias.name.partition(".")[0], alias.name
            home = None
            if isinstance(node, ast.ImportFrom):
                home, path = MODULES.get(node.module or ""), f"{node.module}.{alias.name}"
            module = MODULES.get(path)
            if module is not None and isinstance(node, ast.Import) and not alias.asname:
                module = MODULES[name]
            elif module is None and home is not None:
                scope.names[name] = self.member(self.note(home), alias.name)
                continue
            scope.names[name] = Val(Unread()) if module is None else self.note(module)
            if module is None:
                raise StopError(f"the import of `{(getattr(node, 'module', '') or path)[:40]}` is not evaluated")

    def assign(self, target: ast.expr, value: Val, scope: Scope) -> None:
        """Bind a name, an attribute of an instance, an element of a tensor or list, or several of them."""
        match target:
            case ast.Name(id=name):
                scope.names[name] = value
                self.trace.assigned.append((target.lineno, name, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = self.items(value)
                if len(items) != len(parts):
                    raise StopError(f"{len(parts)} names are given {len(items)} values", refused=False)
                for part, item in zip(parts, items, strict=True):
                    self.assign(part, item, scope)
            case ast.Attribute(value=base, attr=name) if not name.startswith("__"):
                owner = self.evaluate(base, scope).value
                if not isinstance(owner, Instance):
                    raise StopError("attributes are only set on the code's own objects")
                owner.fields.names[name] = value
            case ast.Subscript(value=base):
                self._set_item(self.evaluate(base, scope), *self.index(target.slice, scope), value)
            case _:
                raise StopError("this target of an assignment is not evaluated")

    def _set_item(self, owner: Val, index: Any, vals: Vals, value: Val) -> None:
        items = owner.value
        if isinstance(items, list) and isinstance(index, int) and -len(items) <= index < len(items):
            items[index] = value
            return
        if not isinstance(owner.value, Tensor | np.ndarray) or not isinstance(value.value, NUMBERS):
            raise StopError("only elements of tensors are set")
        self.budget.room(indexed(tuple(owner.value.shape), index))
        op = "mask" if any(is_mask(v.value) for v in vals) else "setitem"
        args = (owner, value, *vals)
        self.overwrite(owner, lambda x: x.__setitem__(index, value.value), op, args, "an assignment")

    def _augmented(self, node: ast.AugAssign, scope: Scope) -> None:
        load = ast.parse(ast.unparse(node.target), mode="eval").body
        load = ast.fix_missing_locations(ast.copy_location(load, node))
        old, value = self.evaluate(load, scope), self.evaluate(node.value, scope)
        found = self.operator(type(node.op).__name__, old, value)
        if isinstance(old.value, Tensor | np.ndarray) and isinstance(node.target, ast.Name):
            into = Tensor.copy_ if isinstance(old.value, Tensor) else np.copyto
            op, name = BINARY[type(node.op).__name__][0], f"`{ast.unparse(node)[:40]}`"
            self.overwrite(old, lambda x: into(x, found.value), op, (old, value), name)
        else:
            self.assign(node.target, found, scope)


def _parameters(function: Function) -> list[str]:
    args = function.node.args
    return [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)]


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays share memory."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def evaluate(tree: ast.Module, given: Given, overrides: dict[int, Override] | None = None) -> Walk:
    """Evaluate parsed code on a tensor; ``overrides`` replaces the results of some operations.

    Raises:
        OverLimitError: it takes too many steps, elements or too much time.
    """
    walk = Walk(tree=tree, given=given)
    walk.trace.overrides = overrides or {}
    walk.budget.end = min(walk.budget.end, given.end)
    walk.run()
    return walk
