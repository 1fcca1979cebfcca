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
from quantcore.pasted.bounds import OverLimitError, StopError, indexed
from quantcore.pasted.evaluate import UNREAD, Class, Expressions, Function, Names
from quantcore.pasted.names import BUILTINS, MODULES, OPERATORS
from quantcore.pasted.trace import NUMBERS, Override, Val, Vals, is_mask

_SCALE = re.compile(r"(\w+_)?(s|scales?|step|step_size|delta)|qscale", re.I)
_ZERO = re.compile(r"(\w+_)?(z|zp|zeros?|zero_?points?|offset)", re.I)
_BITS = re.compile(r"\w*bits?|bit_?width", re.I)
_NO_TENSOR = re.compile(
    r"\w*(min|max|low|high|level|size|dim|axis|eps|bound|limit|range|dtype|device|mode|name|path|file|config|args|model"
    r"|group|block)\w*|lo|hi|[nkij]|lr|alpha|beta|gamma|self|cls|ctx|_\w*", re.I,
)  # fmt: skip
_SECOND = re.compile(
    r"[xwyt]|\w*(weight|input|tensor|data|image|img|matrix|array)\w*", re.I
)  # besides a first tensor
_CODES = re.compile(r"q|codes?|\w*quantized\w*|\w*_q|q_\w+|[xw]q|q[xw]", re.I)
_FLAG = re.compile(r"\w*(sym|signed|narrow)\w*", re.I)
_HARMLESS = (
    "torch.no_grad()",
    "torch.inference_mode()",
    "staticmethod",
    "nn.Module",
    "torch.nn.Module",
    "object",
)


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


class _Signal(Exception):
    """A return with its value, or a break or continue, was reached."""

    def __init__(self, node: ast.stmt, value: Val):
        super().__init__()
        self.node, self.value = node, value


@dataclass(eq=False)
class Walk(Expressions):
    """One evaluation of the code. ``bound``: what stands for names that it does not define; ``flags``: the boolean
    parameters of functions that nobody calls; ``made``: what the last of these returned, by name."""

    tree: ast.Module = field(kw_only=True)
    given: Given = field(kw_only=True)
    bound: dict[str, Val] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    made: dict[str, Val] = field(default_factory=dict)
    entered: set[ast.AST] = field(default_factory=set)
    depth: int = 0

    def run(self) -> None:
        """Run the code, then what it only defines; what can't be evaluated goes to ``trace.unread``."""
        names = self.space()
        for node in self.tree.body:
            if not self._attempt(self.statement, node, names):
                stored = (
                    n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                )
                names.update(dict.fromkeys(stored, UNREAD))
        for val in list(names.values()):
            if isinstance(val.value, Function) and val.value.node not in self.entered:
                self._attempt(self._use, val, val.value)
            elif isinstance(val.value, Class) and not any(
                isinstance(v.value, Class) and v.value.is_instance for v in self.trace.vals
            ):
                self._attempt(self._use_class, val)

    def _attempt(self, run: Callable[..., Any], *args: Any) -> bool:
        try:
            run(*args)
        except StopError as stop:
            if stop.why:
                self.trace.unread.append((self.budget.line, stop.why, stop.refused))
            return False
        except _Signal:
            self.trace.unread.append((self.budget.line, "this has no function or loop around it", False))
            return False
        except RecursionError:
            raise OverLimitError(
                "The code is nested too deeply; paste only the lines that quantize."
            ) from None
        return True

    # what the code does not define

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
        self.budget.spend(elements=x.numel())
        val = self.bound[name] = self.note(x.numpy() if self.given.numpy else x, "input", name=name)
        val.varies = val.data = True
        return val

    def _use_class(self, val: Val) -> None:
        start = val.value.names.get("__init__")
        has_start = start is not None and isinstance(start.value, Function)
        instance = self.call(val, self._arguments(start.value, 1, None) if has_start else [], {})
        for name, member in list(val.value.names.maps[0].items()):
            if isinstance(member.value, Function) and member.value.node not in self.entered:
                self._use(self.member(instance, name), member.value)

    def _use(self, val: Val, function: Function) -> None:
        """Call a function that nobody calls."""
        own = int(val.value.owner is not None)
        args = self._arguments(function, own, 0)
        self.bound |= {n: v for n, v in zip(function.parameters[own:], args, strict=False) if v.op == "input"}
        returned = self.call(val, args, {})
        values = list(returned.value) if isinstance(returned.value, tuple) else [returned]
        ends = [n.value for n in ast.walk(function.node) if isinstance(n, ast.Return) and n.value is not None]
        parts = [part for end in ends[-1:] for part in (end.elts if isinstance(end, ast.Tuple) else [end])]
        self.made = {**{getattr(p, "id", ""): v for p, v in zip(parts, values, strict=False)}, "": values[0]}

    def _arguments(self, function: Function, own: int, tensor: int | None) -> list[Val]:
        """What to call a function with: the tensor in place ``tensor``, what the function before it returned, what the
        code is given, and defaults."""
        found: list[Val] = []
        for i, name in enumerate(function.parameters[own:]):
            default = function.defaults.get(name)
            if isinstance(default.value, bool) if default is not None else _FLAG.fullmatch(name):
                self.flags.add(name)
                default = self.note(dict(self.given.flags).get(name, default.value if default else True))
            earlier = self.made.get(name) or (
                self.made.get("") if i == tensor and _CODES.fullmatch(name) else None
            )
            val = default or (earlier if i != tensor or _CODES.fullmatch(name) else None) or self.free(name)
            val = val or (self._tensor(name) if i == tensor else None)
            if val is None:
                raise StopError(f"the argument `{name[:40]}` has no value here")
            found.append(val)
        return found

    # statements

    def statement(self, node: ast.stmt, names: Names) -> None:
        """Run a statement."""
        self.budget.spend(node.lineno)
        match node:
            case ast.Pass() | ast.AnnAssign(value=None):
                pass
            case ast.Expr(value=value):
                self.evaluate(value, names)
            case ast.Assign(targets=targets, value=value):
                found = self.evaluate(value, names)
                for target in targets:
                    self.assign(target, found, names)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self.assign(target, self.evaluate(value, names), names)
            case ast.AugAssign():
                self._augmented(node, names)
            case ast.Return(value=value):
                raise _Signal(node, self.evaluate(value, names) if value else self.note(None))
            case ast.Break() | ast.Continue():
                raise _Signal(node, UNREAD)
            case ast.If(test=test, body=body, orelse=orelse):
                main = ast.unparse(test).startswith("__name__ ==")
                self.block(body if main or self.truth(self.evaluate(test, names)) else orelse, names)
            case ast.For(target=target, iter=value, body=body):
                for item in self.items(self.evaluate(value, names)):
                    self.assign(target, item, names)
                    if self._ends(body, names):
                        break
            case ast.While(test=test, body=body):
                while self.truth(self.evaluate(test, names)) and not self._ends(body, names):
                    self.budget.spend()
            case ast.With(items=items, body=body) if all(ast.unparse(i) in _HARMLESS for i in items):
                self.block(body, names)
            case ast.Assert(test=test):
                if not self.truth(self.evaluate(test, names)):
                    raise StopError("this assertion fails", refused=False)
            case ast.Import() | ast.ImportFrom():
                self._import(node, names)
            case ast.FunctionDef() | ast.ClassDef():
                self._define(node, names)
            case _:
                raise StopError("this statement is not evaluated")

    def block(self, body: list[ast.stmt], names: Names) -> None:
        """Run the statements of a block."""
        for node in body:
            self.statement(node, names)

    def _ends(self, body: list[ast.stmt], names: Names) -> bool:
        """Run the body of a loop once; whether the loop ends with it."""
        try:
            self.block(body, names)
        except _Signal as signal:
            if isinstance(signal.node, ast.Return):
                raise
            return isinstance(signal.node, ast.Break)
        return False

    def _define(self, node: ast.FunctionDef | ast.ClassDef, names: Names) -> None:
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        if isinstance(node, ast.ClassDef):
            marks += [ast.unparse(base) for base in (*node.bases, *(k.value for k in node.keywords))]
        if not set(marks) <= set(_HARMLESS):
            raise StopError("this decorator or base is not evaluated")
        if isinstance(node, ast.FunctionDef):
            made = Function(node, names, self.defaults(node.args, names), "staticmethod" in marks)
            names[node.name] = self.note(made)
        else:
            members = self.space(names)
            names[node.name] = self.note(Class(members))
            self.block(node.body, members)

    def _import(self, node: ast.Import | ast.ImportFrom, names: Names) -> None:
        for alias in node.names:
            name, home = alias.asname or alias.name.partition(".")[0], None
            path = alias.name
            if isinstance(node, ast.ImportFrom):
                home, path = MODULES.get(node.module or ""), f"{node.module}.{path}"
            elif not alias.asname and path in MODULES:
                path = name
            if home is not None and path not in MODULES:
                names[name] = self.member(self.note(home), alias.name)
            elif path in MODULES:
                names[name] = self.note(MODULES[path])
            else:
                names[name] = UNREAD
                raise StopError(
                    f"the import of `{(getattr(node, 'module', '') or path)[:40]}` is not evaluated"
                )

    def enter(self, function: Function, args: list[Val], kw: dict[str, Val]) -> Val:
        """Call a function of the pasted code."""
        node, parameters = function.node, function.parameters
        self.entered.add(node)
        found = function.defaults | dict(zip(parameters, args, strict=False)) | kw
        starred = node.args.vararg or node.args.kwarg
        if starred or len(args) > len(parameters) or found.keys() != set(parameters):
            raise StopError("the arguments of this call are not those of the function", refused=False)
        if self.depth >= bounds.MOST_CALLS:
            raise StopError(f"more than {bounds.MOST_CALLS} calls are nested here")
        names = self.space(function.names)
        names.update(found)
        self.depth += 1
        try:
            if isinstance(node, ast.Lambda):
                return self.evaluate(node.body, names)
            self.block(node.body, names)
        except _Signal as signal:
            return signal.value
        finally:
            self.depth -= 1
        return self.note(None)

    def assign(self, target: ast.expr, value: Val, names: Names) -> None:
        """Bind a name, an attribute of an instance, an element of a tensor or list, or several of them."""
        match target:
            case ast.Name(id=name):
                names[name] = value
                self.trace.assigned.append((target.lineno, name, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = self.items(value)
                if len(items) != len(parts):
                    raise StopError(f"{len(parts)} names are given {len(items)} values", refused=False)
                for part, item in zip(parts, items, strict=True):
                    self.assign(part, item, names)
            case ast.Attribute(value=base, attr=name) if not name.startswith("__"):
                owner = self.evaluate(base, names).value
                if not isinstance(owner, Class) or not owner.is_instance:
                    raise StopError("attributes are only set on the code's own objects")
                owner.names[name] = value
            case ast.Subscript(value=base):
                self._set_item(self.evaluate(base, names), *self.index(target.slice, names), value)
            case _:
                raise StopError("this target of an assignment is not evaluated")

    def _set_item(self, owner: Val, index: Any, vals: Vals, value: Val) -> None:
        items = owner.value
        if isinstance(items, list) and isinstance(index, int) and -len(items) <= index < len(items):
            items[index] = value
            return
        if not isinstance(items, Tensor | np.ndarray) or not isinstance(value.value, NUMBERS):
            raise StopError("only elements of tensors are set")
        if indexed([items, index]) > bounds.MOST_ELEMENTS:
            raise StopError(f"more than {bounds.MOST_ELEMENTS:,} elements are set here")
        op = "mask" if any(is_mask(v.value) for v in vals) else "setitem"
        args = (owner, value, *vals)
        self.overwrite(owner, lambda x: x.__setitem__(index, value.value), op, args, "an assignment")

    def _augmented(self, node: ast.AugAssign, names: Names) -> None:
        old, value = self.evaluate(node.target, names), self.evaluate(node.value, names)
        found = self.operator(node.op, old, value)
        if isinstance(old.value, Tensor | np.ndarray) and isinstance(node.target, ast.Name):
            into = Tensor.copy_ if isinstance(old.value, Tensor) else np.copyto
            op, name = OPERATORS[type(node.op).__name__].op, f"`{ast.unparse(node)[:40]}`"
            self.overwrite(old, lambda x: into(x, found.value), op, (old, value), name)
        else:
            self.assign(node.target, found, names)

    def overwrite(self, owner: Val, change: Callable[[Any], Any], op: str, args: Vals, name: str) -> Val:
        """Modify a tensor in place. Its value so far stays in the trace; all names of it have the new one."""
        if any(v.is_array and _share(v.value, owner.value) for v in self.bound.values()):
            self.trace.written.append((self.budget.line, name))
        live, is_tensor = owner.value, isinstance(owner.value, Tensor)
        owner.value = live.clone() if is_tensor else live.copy()
        self.budget.spend(elements=live.numel() if is_tensor else live.size)
        self.compute(lambda: change(live) is None, "binary", ())
        made = self.note(live, op, args, name.removesuffix("_"))
        for names in (self.bound, *(space.maps[0] for space in self.spaces)):
            names.update({n: made for n, v in names.items() if v is owner})
        return made


def _share(a: Any, b: Any) -> bool:
    """Whether two arrays share memory."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def evaluate(tree: ast.Module, given: Given, overrides: dict[int, Override] | None = None) -> Walk:
    """Evaluate parsed code on a tensor; ``overrides`` replaces the results of some operations."""
    walk = Walk(tree=tree, given=given)
    walk.trace.overrides = overrides or {}
    walk.budget.end = min(walk.budget.end, given.end)
    walk.run()
    return walk
