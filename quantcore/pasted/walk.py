"""Evaluates the statements of pasted code on a tensor, and calls the functions that it only defines."""

import ast
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import bounds
from quantcore.pasted.apply import failing, operate
from quantcore.pasted.bounds import Budget, OverLimitError, StopError
from quantcore.pasted.calls import Calls
from quantcore.pasted.names import BINARY, IN_PLACE, Module, bound_of_index, plain_bound
from quantcore.pasted.objects import BUILTINS, Class, Function, Instance, LoopSignal, ReturnSignal, Scope, Unread
from quantcore.pasted.trace import Override, Trace, Val

_SCALE = re.compile(r"(input_|weight_|w_|x_)?(s|scales?|step|step_size|delta|qscale|q_scale)", re.I)
_ZERO = re.compile(r"(input_|weight_|w_|x_)?(z|zp|zero|zeros|zero_?points?|zero_p|offset)", re.I)
_BITS = re.compile(r"(b|bits|n_?bits?|num_bits|bit_?width|w_?bits?|a_?bits?|nbit)", re.I)
_NO_TENSOR = re.compile(
    r".*(min|max|low|high|levels?|size|dim|axis|eps|bound|limit|range|dtype|device|symmetric|bits?|mode|name|path|file"
    r"|config|args|model|layer|loader|group|block)\w*|lo|hi|n|k|i|j|lr|alpha|beta|gamma|self|cls|ctx", re.I,
)  # fmt: skip
_CODES = re.compile(r"q|codes?|\w*quantized\w*|\w*_q|q_\w+|x_?q|w_?q|xq|wq|q_?x|q_?tensor", re.I)
_KNOWN_IMPORTS = {"torch": "torch", "numpy": "numpy", "math": "math", "torch.nn": "torch.nn", "torch.nn.functional": "torch.nn.functional"}


@dataclass(frozen=True)
class Given:
    """What the code is given: the tensor, float32, and what stands for a scale, zero point and bits it does not
    compute. ``flags``: values of boolean parameters of functions that nobody calls, by name."""

    x: Tensor
    scale: float
    zero_point: int
    bits: int = 8
    numpy: bool = False
    flags: tuple[tuple[str, bool], ...] = ()


@dataclass(eq=False)
class Walk(Calls):
    """One evaluation of the code."""

    given: Given
    trace: Trace = field(default_factory=Trace)
    budget: Budget = field(default_factory=Budget)
    bound: dict[str, Val] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    last: dict[str, Val] = field(default_factory=dict)

    def run(self, tree: ast.Module) -> None:
        """Run the code, then what it only defines; what can't be evaluated goes to ``trace.unread``.

        Raises:
            OverLimitError: it takes too many steps, elements or too much time.
        """
        scope = Scope()
        self._statements(tree.body, scope)
        self._uncalled(scope)

    def _statements(self, body: list[ast.stmt], scope: Scope) -> None:
        for node in body:
            try:
                self.statement(node, scope)
            except StopError as stop:
                self._not_read(stop, node, scope)
            except (ReturnSignal, LoopSignal):
                self._not_read(StopError("this has no function or loop around it", refused=False), node, scope)
            except RecursionError:
                raise OverLimitError("The code is nested too deeply; paste only the lines that quantize.") from None

    def _not_read(self, stop: StopError, node: ast.stmt, scope: Scope) -> None:
        line = stop.line or self.budget.line or node.lineno
        if stop.why:
            self.trace.unread.append((line, stop.why, stop.refused))
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                scope.names[inner.id] = Val(Unread())

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        """Run a statement.

        Raises:
            StopError: it can't be evaluated.
        """
        self.budget.step(node.lineno)
        found = getattr(self, f"_run_{type(node).__name__.lower()}", None)
        if found is None:
            raise StopError("this statement is not evaluated", node.lineno)
        found(node, scope)

    def run_body(self, body: list[ast.stmt], scope: Scope) -> None:
        """Run the statements of a function or block."""
        for node in body:
            self.statement(node, scope)

    # names that the code does not define

    def free(self, name: str) -> Val | None:
        """What stands for a name that the code does not define: the tensor, or what it is given."""
        if name not in self.bound:
            value: Any = None
            if _SCALE.fullmatch(name):
                value = torch.tensor(self.given.scale) if not self.given.numpy else np.float32(self.given.scale)
            elif _ZERO.fullmatch(name):
                value = self.given.zero_point
            elif _BITS.fullmatch(name):
                value = self.given.bits
            if value is not None:
                self.bound[name] = self.trace.add(Val(value, "handed", name=name, handed=not _BITS.fullmatch(name)))
            elif name not in BUILTINS and not _NO_TENSOR.fullmatch(name) and not name.startswith("_") and len(name) < 40:
                self.bound[name] = self.tensor(name)
        return self.bound.get(name)

    def tensor(self, name: str) -> Val:
        """A copy of the tensor under a name."""
        x = self.given.x.clone()
        return self.trace.add(Val(x.numpy() if self.given.numpy else x, "input", name=name, varies=True, data=True))

    def defines(self, name: str) -> bool:
        """Whether a name that the code does not define can be called."""
        return name in BUILTINS

    def writes(self, val: Val, line: int, name: str) -> None:
        """Note an operation that modifies the given tensor."""
        for given in self.bound.values():
            if given.op != "handed" and _share(given.value, val.value):
                self.trace.written.append((line, name))

    # functions that nobody calls

    def _uncalled(self, scope: Scope) -> None:
        """Call each function and class that the code defines and does not use."""
        found = [v for v in scope.names.values() if isinstance(v.value, Function | Class) and not v.value.calls]
        for val in found:
            line = self.budget.line = val.line
            try:
                if isinstance(val.value, Class):
                    self._use_class(val, val.value)
                elif not val.value.calls:
                    self._use_function(val, val.value, [])
            except StopError as stop:
                if stop.why:
                    self.trace.unread.append((stop.line or self.budget.line or line, stop.why, stop.refused))

    def _use_class(self, val: Val, made: Class) -> None:
        start = made.members.get("__init__")
        args = self._arguments(start.value, 1, of_tensor=False) if start and isinstance(start.value, Function) else []
        instance = self.call_value(val, args, {}, val.line)
        for name, member in made.members.items():
            if isinstance(member.value, Function) and not member.value.calls and name != "__init__" and isinstance(instance.value, Instance):
                self._use_function(self.member(instance, name, member.line), member.value, [] if member.value.static else [instance])

    def _use_function(self, val: Val, function: Function, own: list[Val]) -> None:
        returned = self.call_value(val, self._arguments(function, len(own)), {}, val.line)
        for node in ast.walk(function.node):
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Name | ast.Tuple):
                names = [node.value] if isinstance(node.value, ast.Name) else node.value.elts
                vals = list(returned.value) if isinstance(returned.value, tuple) else [returned]
                made = {n.id: v for n, v in zip(names, vals, strict=False) if isinstance(n, ast.Name)}
                self.made = {"": vals[0], **made}

    made: dict[str, Val] = field(default_factory=dict)

    def _arguments(self, function: Function, own: int, of_tensor: bool = True) -> list[Val]:
        """What to call a function with: the tensor, what the function before it returned, and what is given."""
        found: list[Val] = []
        positional = function.parameters[own : len(function.node.args.posonlyargs) + len(function.node.args.args)]
        for i, name in enumerate(positional):
            default, flags = function.defaults.get(name), dict(self.given.flags)
            if default is None or isinstance(default.value, bool):
                is_flag = default is not None or bool(re.fullmatch(r"\w*(sym|asym|signed|narrow|per_)\w*", name, re.I))
                if is_flag:
                    self.flags.add(name)
                    default = self.number(flags.get(name, default is None or default.value is True), function.node)
            if default is not None and not (i == 0 and of_tensor and default.value is None):
                found.append(default)
                continue
            val = self._codes_before(name, i) if of_tensor else None
            val = val or self.free(name) or (self.tensor(name) if i == 0 and of_tensor else None)
            if val is None:
                raise StopError(f"the argument `{name[:40]}` of `{function.name[:40]}` has no value here", function.node.lineno)
            if i == 0 and of_tensor:
                self.bound[name] = val
            found.append(val)
        return found

    def _codes_before(self, name: str, place: int) -> Val | None:
        """What a function that was called before returned under this name; codes under any name of codes."""
        if place == 0 and _CODES.fullmatch(name):
            return self.made.get(name) or self.made.get("")
        return self.made.get(name) if place else None

    # statements

    def _run_expr(self, node: ast.Expr, scope: Scope) -> None:
        self.evaluate(node.value, scope)

    def _run_pass(self, node: ast.Pass, scope: Scope) -> None:
        pass

    _run_global = _run_nonlocal = _run_pass

    def _run_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                place = f"{node.module}.{alias.name}"
                if place not in _KNOWN_IMPORTS and node.module in _KNOWN_IMPORTS and not alias.name.startswith("_"):
                    module = self.trace.add(Val(Module(_KNOWN_IMPORTS[node.module]), line=node.lineno))
                    scope.names[alias.asname or alias.name] = self.member(module, alias.name, node.lineno)
                    continue
            else:
                place = alias.name
            if place not in _KNOWN_IMPORTS:
                raise StopError(f"the import of `{place[:40]}` is not evaluated", node.lineno)
            name = alias.asname or alias.name.partition(".")[0]
            scope.names[name] = self.number(Module(_KNOWN_IMPORTS[place] if alias.asname or isinstance(node, ast.ImportFrom) else name), node)

    _run_importfrom = _run_import

    def _run_functiondef(self, node: ast.FunctionDef, scope: Scope) -> None:
        static = any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
        if any(ast.unparse(d) not in ("staticmethod", "torch.no_grad()", "torch.inference_mode()") for d in node.decorator_list):
            raise StopError("this decorator is not evaluated", node.lineno)
        scope.names[node.name] = self.number(Function(node, scope, self.defaults(node.args, scope), static), node)

    def _run_classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        if node.keywords or any(ast.unparse(b) not in ("nn.Module", "torch.nn.Module", "object") for b in node.bases) or node.decorator_list:
            raise StopError("this base or decorator of a class is not evaluated", node.lineno)
        inner = Scope(scope)
        self.run_body(node.body, inner)
        scope.names[node.name] = self.number(Class(node.name, node.lineno, inner.names), node)

    def _run_return(self, node: ast.Return, scope: Scope) -> None:
        raise ReturnSignal(self.evaluate(node.value, scope) if node.value else self.number(None, node))

    def _run_break(self, node: ast.Break, scope: Scope) -> None:
        raise LoopSignal(True)

    def _run_continue(self, node: ast.Continue, scope: Scope) -> None:
        raise LoopSignal(False)

    def _run_if(self, node: ast.If, scope: Scope) -> None:
        test = node.test
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__":
            self.run_body(node.body, scope)
            return
        self.run_body(node.body if self.truth(self.evaluate(test, scope)) else node.orelse, scope)

    def _run_while(self, node: ast.While, scope: Scope) -> None:
        while self.truth(self.evaluate(node.test, scope)):
            self.budget.step(node.lineno)
            if self._loop(node.body, scope):
                return
        self.run_body(node.orelse, scope)

    def _run_for(self, node: ast.For, scope: Scope) -> None:
        for item in self.items(self.evaluate(node.iter, scope)):
            self.budget.step(node.lineno)
            self.assign(node.target, item, scope)
            if self._loop(node.body, scope):
                return
        self.run_body(node.orelse, scope)

    def _loop(self, body: list[ast.stmt], scope: Scope) -> bool:
        """Run the body of a loop once; whether the loop ends with it."""
        try:
            self.run_body(body, scope)
        except LoopSignal as signal:
            return signal.ends
        return False

    def _run_with(self, node: ast.With, scope: Scope) -> None:
        if any(ast.unparse(i.context_expr) not in ("torch.no_grad()", "torch.inference_mode()") or i.optional_vars for i in node.items):
            raise StopError("this `with` is not evaluated", node.lineno)
        self.run_body(node.body, scope)

    def _run_assert(self, node: ast.Assert, scope: Scope) -> None:
        if not self.truth(self.evaluate(node.test, scope)):
            raise StopError("this assertion fails", node.lineno, refused=False)

    def _run_raise(self, node: ast.Raise, scope: Scope) -> None:
        raise StopError("the code raises an error here", node.lineno, refused=False)

    def _run_delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                raise StopError("only names are deleted", node.lineno)
            scope.names.pop(target.id, None)

    def _run_assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.evaluate(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def _run_annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value, scope), scope)

    def assign(self, target: ast.expr, value: Val, scope: Scope) -> None:
        """Bind a name, an attribute of an instance, an element of a tensor, or several of them."""
        match target:
            case ast.Name(id=name):
                scope.names[name] = value
                self.trace.assigned.append((target.lineno, name, value))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                items = self.items(value)
                if len(items) != len(parts) or any(isinstance(p, ast.Starred) for p in parts):
                    raise StopError(f"{len(parts)} names are given {len(items)} values", target.lineno, refused=False)
                for part, item in zip(parts, items, strict=True):
                    self.assign(part, item, scope)
            case ast.Attribute(value=base, attr=name):
                owner = self.evaluate(base, scope)
                if not isinstance(owner.value, Instance) or name.startswith("__"):
                    raise StopError("attributes are only set on the code's own objects", target.lineno)
                owner.value.fields[name] = value
            case ast.Subscript():
                self._set_item(target, value, scope)
            case _:
                raise StopError("this target of an assignment is not evaluated", target.lineno)

    def _set_item(self, target: ast.Subscript, value: Val, scope: Scope) -> None:
        owner = self.evaluate(target.value, scope)
        if isinstance(owner.value, dict):
            key = self.evaluate(target.slice, scope).value
            if not isinstance(key, int | float | str) or len(owner.value) >= bounds.MOST_ITEMS:
                raise StopError("a key here is neither a number nor a word", target.lineno)
            owner.value[key] = value
            return
        index, vals = self.index(target.slice, scope)
        if isinstance(owner.value, list) and isinstance(index, int) and -len(owner.value) <= index < len(owner.value):
            owner.value[index] = value
            return
        if not isinstance(owner.value, Tensor | np.ndarray) or not isinstance(value.value, (int, float, Tensor, np.ndarray, np.generic)):
            raise StopError("this can't be set", target.lineno)
        self.budget.room(bound_of_index(tuple(owner.value.shape), index))
        self.writes(owner, target.lineno, "an assignment")
        before = self.snapshot(owner)
        failing(lambda: owner.value.__setitem__(index, value.value), target.lineno)
        op = "mask" if any(v.value is not None and str(getattr(v.value, "dtype", "")).endswith("bool") for v in vals) else "setitem"
        self.became(owner, Val(owner.value, op, (before, value, *vals), target.lineno, name="setitem"))

    def _run_augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        load: Any = ast.copy_location(type(node.target)(**{**dict(ast.iter_fields(node.target)), "ctx": ast.Load()}), node.target)
        old, value, name = self.evaluate(load, scope), self.evaluate(node.value, scope), type(node.op).__name__
        op, _ = BINARY[name]
        if isinstance(old.value, Tensor | np.ndarray) and name in IN_PLACE and not isinstance(node.target, ast.Subscript):
            self.writes(old, node.lineno, f"`{ast.unparse(node)[:40]}`")
            before = self.snapshot(old)
            made = operate(op, IN_PLACE[name], Val(old.value), value, Trace(), self.budget, node.lineno, lambda a, k: plain_bound(a))
            self.became(old, Val(made.value, op, (before, value), node.lineno, name=op))
        else:
            self.assign(node.target, self.operator(name, old, value, node.lineno), scope)


def _share(a: Any, b: Any) -> bool:
    """Whether two values share memory."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def evaluate(tree: ast.Module, given: Given, overrides: dict[int, Override] | None = None, seconds: float = bounds.SECONDS) -> Walk:
    """Evaluate parsed code on a tensor; ``overrides`` replaces the results of some operations.

    Raises:
        OverLimitError: it takes too many steps, elements or too much time.
    """
    walk = Walk(given)
    walk.budget.end += seconds - bounds.SECONDS
    walk.trace.overrides = overrides or {}
    walk.run(tree)
    return walk
