"""Evaluates the syntax tree of pasted code: statements, and what they bind."""

import ast
import re
from collections import ChainMap
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from quantcore import syntax
from quantcore.pasted.bounds import StopError, require
from quantcore.pasted.calls import Calls
from quantcore.pasted.lanes import is_scalar
from quantcore.pasted.names import LIBRARIES, LIBRARY_TABLES, MODULES, Module
from quantcore.pasted.objects import (
    BASES,
    DECORATORS,
    UNREAD,
    Class,
    Function,
    Signal,
)
from quantcore.pasted.values import Names, Val

_MODEL, _FEATURES = re.compile(r"\w*(model|net|network|llm)", re.I), 8
_HARMLESS = {"torch.no_grad()", "torch.inference_mode()", "torch.autograd.no_grad()"}
# of these, code takes what it writes in annotations and decorators
_SILENT = {
    "typing", "enum", "dataclasses", "abc", "__future__", "collections.abc", "typing_extensions", "numbers",
}  # fmt: skip
_LIBRARY_TEXT = syntax.module("".join(of.TEXT for of in LIBRARIES))


@dataclass(eq=False)
class Interpreter(Calls):
    """One evaluation of the code. ``begun``: the index of the first value of the statement that runs;
    ``libraries``: what calls of libraries do, once one is met."""

    begun: int = 0
    libraries: Names = field(default_factory=ChainMap)

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
            case ast.If():
                self._branch(node, [], names)
            case ast.For(target=target, iter=value, body=body):
                items = self.items(self.evaluate(value, names))
                for item in items[: self.given.turns] if self._only_repeats(node) else items:
                    self.assign(target, item, names)
                    if self._ends(body, names):
                        break
            case ast.While(test=test, body=body):
                while self.truth(self.evaluate(test, names)) and not self._ends(body, names):
                    self.spend()
            case ast.With(items=items, body=body) if {ast.unparse(i) for i in items} <= _HARMLESS:
                self.block(body, names)
            case ast.Try():
                self._tried(node, names)
            case ast.Raise(exc=error):
                name = ast.unparse(error).partition("(")[0] if error else "an error"
                raise StopError(f"this raises {name[:40]}", refused=False)
            case ast.Assert(test=test, msg=message):
                why = "this assertion fails"
                if self.within:
                    own = message.value if isinstance(message, ast.Constant) else ""
                    why = str(own or "this call with these arguments is not evaluated")
                require(self.truth(self.evaluate(test, names)), why, refused=bool(self.within))
            case ast.Import() | ast.ImportFrom():
                self._import(node, names)
            case ast.FunctionDef() | ast.ClassDef():
                self._define(node, names)
            case _:
                raise StopError("this statement is not evaluated")

    def block(self, body: list[ast.stmt], names: Names) -> None:
        """Run statements."""
        for i, node in enumerate(body):
            if not isinstance(node, ast.If):
                self.statement(node, names)
            elif self._branch(node, body[i + 1 :], names):
                break

    def _branch(self, node: ast.If, rest: list[ast.stmt], names: Names) -> bool:
        """Run a branch, of a test on an element both; tell whether ``rest``, which follows, was run too."""
        self.spend(node.lineno)
        main = ast.unparse(node.test).startswith("__name__ ==")
        test = self.note(True) if main else self.evaluate(node.test, names)
        leaves = [n for n in ast.walk(node) if isinstance(n, ast.Return | ast.Continue | ast.Break)]
        if not test.of_element or any(isinstance(n, ast.Break) for n in leaves):
            self.block(node.body if self.truth(test) else node.orelse, names)
            return False
        rest = rest if leaves else []
        ends = [
            self._run_branch(test, wanted, [*body, *rest], names)
            for wanted, body in ((True, node.body), (False, node.orelse))
        ]
        (first, appended), (second, others) = ends
        taken = bool(test.value)
        if [id(owner) for owner, _ in appended] == [id(owner) for owner, _ in others]:
            for (owner, a), (_, b) in zip(appended, others, strict=True):
                numbers = is_scalar(a) and is_scalar(b)
                self.append(owner, self.either(taken, a, b, (test,)) if numbers else a if taken else b)
        else:
            for owner, val in appended if taken else others:
                self.append(owner, val)
        signal, other = (first, second) if taken else (second, first)
        if signal is not None:
            both = other is not None and is_scalar(signal.value) and is_scalar(other.value)
            if both and isinstance(signal.node, ast.Return) and first is not None and second is not None:
                signal = Signal(signal.node, self.either(taken, first.value, second.value, (test,)))
            raise signal
        return bool(leaves)

    def _run_branch(
        self, test: Val, wanted: bool, body: list[ast.stmt], names: Names
    ) -> tuple[Signal | None, list[tuple[Val, Val]]]:
        """Run a branch of a test on an element; return how it ends, and what it appends to lists."""
        self.branches.append((test, wanted))
        self.appended.append([])
        signal = None
        try:
            self.block(body, names)
        except Signal as found:
            signal = found
        except StopError:
            if self.taken:
                raise
        finally:
            self.branches.pop()
            appended = self.appended.pop()
        return signal, appended

    def _only_repeats(self, node: ast.For) -> bool:
        """Tell whether a loop is to be shortened: one that refines a result, and never reads its turn."""
        turn, body = node.target, [part for statement in node.body for part in ast.walk(statement)]
        read = {part.id for part in body if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}
        return self.given.turns > 0 and isinstance(turn, ast.Name) and turn.id not in read

    def _ends(self, body: list[ast.stmt], names: Names) -> bool:
        """Run the body of a loop once; tell whether the loop ends with it."""
        try:
            self.block(body, names)
        except Signal as signal:
            if isinstance(signal.node, ast.Return):
                raise
            return isinstance(signal.node, ast.Break)
        return False

    def free(self, name: str) -> Val | None:
        """Return what stands for a name that the code does not define; a model has one layer, with x."""
        found = super().free(name)
        if found is None and _MODEL.fullmatch(name):
            size, none = self.note(_FEATURES), self.note(False)
            layer = self.call(self.library_call("Linear"), [size, size], {"bias": none})
            layer.value.names["weight"] = self.tensor(name)
            found = self.bound[name] = self.call(self.library_call("Sequential"), [layer], {})
        return found

    def library_call(self, name: str) -> Val:
        """Return a function or class of a library, as `quantcore.pasted.library_code` defines it."""
        if not self.libraries:
            self.within += 1
            self.libraries.update({name: self.note(call) for name, call in LIBRARY_TABLES.items()})
            for node in _LIBRARY_TEXT.body:
                self.statement(node, self.libraries)
            self.within -= 1
        return self.libraries[name]

    def _tried(self, node: ast.Try, names: Names) -> None:
        """Run statements, and what handles their failure."""
        try:
            self.block(node.body, names)
        except StopError as stop:
            if stop.refused or not node.handlers:
                raise
            self.block(node.handlers[0].body, names)
        else:
            self.block(node.orelse, names)
        self.block(node.finalbody, names)

    def _define(self, node: ast.FunctionDef | ast.ClassDef, names: Names) -> None:
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        known = {mark.partition("(")[0] if mark not in DECORATORS else mark for mark in marks}
        require(known <= DECORATORS, "this decorator is not evaluated")
        if isinstance(node, ast.FunctionDef):
            kind = next((m for m in marks if m in ("staticmethod", "classmethod", "property")), "")
            made_of = self.defaults(node.args, names)
            function = Function(node, names, made_of, kind, library=self.within > 0)
            names[node.name] = self.note(function)
            return
        bases, kinds = list[Class](), ["record"] if any("dataclass" in mark for mark in marks) else []
        for base in node.bases:
            text = ast.unparse(base)
            own = names.get(text)
            if own is not None and isinstance(own.value, Class):
                bases.append(own.value)
                kinds.append(own.value.kind)
            else:
                require(text in BASES, "this base is not evaluated")
                kinds.append(BASES[text])
        require(
            all(k.arg == "metaclass" and ast.unparse(k.value) == "ABCMeta" for k in node.keywords),
            "this base is not evaluated",
        )
        made = Class(self.space(names), tuple(bases), next((k for k in kinds if k), ""))
        made.library = self.within > 0
        fields = [
            n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
        ]
        made.fields = tuple(dict.fromkeys([*(name for base in bases for name in base.fields), *fields]))
        names[node.name] = self.note(made)
        self.block(node.body, made.names)
        for val in made.names.maps[0].values():
            if isinstance(val.value, Function):
                val.value.owner = made

    def _import(self, node: ast.Import | ast.ImportFrom, names: Names) -> None:
        home = f"{node.module or ''}." if isinstance(node, ast.ImportFrom) else ""
        unknown = ""
        for alias in node.names:
            name, path = alias.asname or alias.name.partition(".")[0], home + alias.name
            if path in MODULES:
                names[name] = self.note(MODULES[path if home or alias.asname else name])
            elif alias.name in MODULES.get(home[:-1], Module("", {})).members:
                names[name] = self.member(self.note(MODULES[home[:-1]]), alias.name)
            else:
                names[name] = UNREAD
                if (home[:-1] or path) not in _SILENT and alias.name not in DECORATORS | BASES.keys():
                    unknown = unknown or path
        whole = unknown if home and home[:-1] in MODULES else (home[:-1] or unknown)
        require(not unknown, f"the import of `{whole[:60]}` is not evaluated")

    def _augmented(self, node: ast.AugAssign, names: Names) -> None:
        old, value = self.evaluate(node.target, names), self.evaluate(node.value, names)
        found = self.operator(node.op, old, value)
        in_place = isinstance(old.value, Tensor | np.ndarray) and isinstance(node.target, ast.Name)
        if in_place and not (self.branches and is_scalar(old)):
            into = Tensor.copy_ if isinstance(old.value, Tensor) else np.copyto
            name = f"`{ast.unparse(node)[:40]}`"
            self.overwrite(old, lambda x: into(x, found.value), found.op, (old, value), name)
        else:
            self.assign(node.target, found, names)
