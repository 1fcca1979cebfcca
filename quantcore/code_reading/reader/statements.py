"""Walk the statements of a snippet and track the value of each name. Nothing is executed."""

import ast
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from quantcore.code_reading.reader.expressions import evaluate
from quantcore.code_reading.reader.reading import Reading
from quantcore.code_reading.values.names import Names, guess, item_of
from quantcore.code_reading.values.python import UNKNOWN, Function, Many, Module, Num, Seq, Unknown, Value
from quantcore.code_reading.values.quantities import Codes, Data, Dequantized, Real, Steps
from quantcore.code_reading.values.steps import clamp, placed

MAX_INLINE = 5


@dataclass
class Reader(Reading):
    """See `Reading`; ``called``: functions of the snippet that were followed."""

    called: set[str] = field(default_factory=set)
    depth: int = 0

    def run(self, tree: ast.Module) -> None:
        """Read the statements, then the functions that were never called."""
        names: Names = {}
        self.block(tree.body, names)
        functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in functions:
            if node.name not in self.called:
                self.call(Function(node), [], {}, names, node.lineno, alone=True)

    def evaluate(self, node: ast.expr, names: Names) -> Value:
        """Return the value of an expression; unknown if it is not recognized."""
        return evaluate(node, names, self)

    def block(self, statements: Sequence[ast.stmt], names: Names) -> list[Value]:
        """Read statements in order; return the possible return values. Both branches of an unknown condition are read."""
        for place, statement in enumerate(statements):
            self.tick(statement)
            if isinstance(statement, ast.Return):
                return [self._returned(statement, names)]
            if isinstance(statement, ast.Raise | ast.Break | ast.Continue):
                return []
            if isinstance(statement, ast.If):
                test = evaluate(statement.test, names, self)
                rest = statements[place + 1 :]
                if isinstance(test, Num):
                    return self.block([*(statement.body if test.value else statement.orelse), *rest], names)
                if self.forks < 6:
                    self.forks += 1
                    found = self.block([*statement.body, *rest], dict(names))
                    found += self.block([*statement.orelse, *rest], names)
                    self.forks -= 1
                    return found
                self.block(statement.body, dict(names))
                forget([*statement.body, *statement.orelse], names)
                continue
            found = self.statement(statement, names)
            if found:
                return found
        return []

    def _returned(self, statement: ast.Return, names: Names) -> Value:
        return UNKNOWN if statement.value is None else evaluate(statement.value, names, self)

    def statement(self, node: ast.stmt, names: Names) -> list[Value]:
        """Read one statement; return its possible return values."""
        match node:
            case ast.Import() | ast.ImportFrom():
                _import(node, names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names[node.name] = Function(node)
            case ast.ClassDef():
                names[node.name] = UNKNOWN
            case ast.Assign():
                value = evaluate(node.value, names, self)
                for target in node.targets:
                    self.bind(target, value, names)
            case ast.AnnAssign() if node.value is not None:
                self.bind(node.target, evaluate(node.value, names, self), names)
            case ast.AugAssign():
                sum_of_both = ast.BinOp(_loaded(node.target), node.op, node.value)
                ast.copy_location(sum_of_both, node)
                self.bind(node.target, evaluate(sum_of_both, names, self), names)
            case ast.Expr():
                self._expression(node.value, names)
            case ast.For() | ast.AsyncFor():
                self.bind(node.target, item_of(evaluate(node.iter, names, self)), names)
                return self.block(node.body, names)
            case ast.With() | ast.AsyncWith():
                return self.block(node.body, names)
            case ast.While():
                return self.block(node.body, names)
            case ast.Try():
                return self.block([*node.body, *node.orelse, *node.finalbody], names)
            case ast.Match():
                forget([node], names)
        return []

    def _expression(self, node: ast.expr, names: Names) -> None:
        """An expression statement: an in-place method rebinds its tensor."""
        value = evaluate(node, names, self)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return
        if node.func.attr.endswith("_") and isinstance(node.func.value, ast.Name):
            names[node.func.value.id] = value

    def bind(self, target: ast.expr, value: Value, names: Names) -> None:
        """Bind names to a value."""
        match target:
            case ast.Name():
                if isinstance(value, Data) and value.root.startswith("tensor in line"):
                    value = dataclasses.replace(value, root=target.id)
                names[target.id] = value
            case ast.Tuple() | ast.List():
                items: Sequence[Value] = value.items if isinstance(value, Seq) else ()
                same = len(items) == len(target.elts) and not any(
                    isinstance(t, ast.Starred) for t in target.elts
                )
                for i, inner in enumerate(target.elts):
                    item = items[i] if same else item_of(value) if isinstance(value, Many) else UNKNOWN
                    self.bind(inner.value if isinstance(inner, ast.Starred) else inner, item, names)
            case ast.Subscript(value=ast.Name(id=name)):
                names[name] = self._stored(target, value, names)
            case ast.Attribute():
                names[ast.unparse(target)[:100]] = value

    def _stored(self, target: ast.Subscript, value: Value, names: Names) -> Value:
        """The tensor after ``tensor[where] = value``: clamped, guarded against 0, or filled in parts."""
        assert isinstance(target.value, ast.Name)
        old, where = names.get(target.value.id, UNKNOWN), target.slice
        if isinstance(where, ast.Compare) and len(where.ops) == 1 and isinstance(where.left, ast.Name):
            if where.left.id == target.value.id:
                if isinstance(old, Real) and isinstance(where.ops[0], ast.Eq | ast.Lt | ast.LtE):
                    return dataclasses.replace(old, guard=True)
                limit = evaluate(where.comparators[0], names, self)
                same = limit == value or isinstance(limit, Unknown) == isinstance(value, Unknown) is True
                if same and isinstance(where.ops[0], ast.Lt | ast.LtE):
                    return self.changed(clamp(old, limit, None, target.lineno, in_place=True), target)
                if same and isinstance(where.ops[0], ast.Gt | ast.GtE):
                    return self.changed(clamp(old, None, limit, target.lineno, in_place=True), target)
            return UNKNOWN
        if isinstance(where, ast.Compare):
            return UNKNOWN
        if isinstance(old, Num | Real | Unknown | Codes | Data) and isinstance(
            value, Real | Codes | Steps | Dequantized
        ):
            return placed(value, "stacked")
        return old if isinstance(old, Num) and old == value else UNKNOWN

    def call(
        self,
        function: Function,
        args: list[Value],
        named: Names,
        names: Names,
        line: int,
        alone: bool = False,
    ) -> Value:
        """Follow a call of a function of the snippet; ``alone``: it is never called, its arguments are unknown."""
        node = function.node
        if self.depth >= MAX_INLINE:
            return UNKNOWN
        self.called.add(node.name)
        inner = dict(names)
        self._arguments(node.args, args, named, inner, alone)
        self.depth += 1
        found = self.block(node.body, inner)
        self.depth -= 1
        first = found[0] if found else UNKNOWN
        return first if all(_alike(first, other) for other in found[1:]) else UNKNOWN

    def _arguments(
        self, spec: ast.arguments, args: list[Value], named: Names, inner: Names, alone: bool
    ) -> None:
        known = [*spec.posonlyargs, *spec.args]
        defaults = dict(
            zip([a.arg for a in known][len(known) - len(spec.defaults) :], spec.defaults, strict=True)
        )
        defaults |= {
            a.arg: d for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None
        }
        for place, argument in enumerate([*known, *spec.kwonlyargs]):
            name = argument.arg
            if place < len(args) and place < len(known):
                value = args[place]
            elif name in named:
                value = named[name]
            elif name in defaults:
                value = evaluate(defaults[name], inner, self)
            else:
                value = (
                    guess(name, first=place == 0 or (place == 1 and known[0].arg == "self"))
                    if alone
                    else UNKNOWN
                )
            if isinstance(value, Data):
                value = dataclasses.replace(value, caller=True)
            inner[name] = value
        for extra in (spec.vararg, spec.kwarg):
            if extra is not None:
                inner[extra.arg] = UNKNOWN


def forget(statements: Sequence[ast.AST], names: Names) -> None:
    """Mark every name that these statements may have bound as unknown."""
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names[node.id] = UNKNOWN


def _alike(a: Value, b: Value) -> bool:
    if isinstance(a, Seq) and isinstance(b, Seq):
        return len(a.items) == len(b.items) and all(map(_alike, a.items, b.items))
    return a is b or (a == b and not isinstance(a, Codes | Dequantized))


def _loaded(target: ast.expr) -> ast.expr:
    """The target of ``a += b`` as an expression."""
    found = type(target)(**{**{f: getattr(target, f) for f in target._fields}, "ctx": ast.Load()})
    return ast.copy_location(found, target)


def _import(node: ast.Import | ast.ImportFrom, names: Names) -> None:
    for alias in node.names:
        if isinstance(node, ast.Import):
            names[alias.asname or alias.name.partition(".")[0]] = Module(
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
        else:
            names[alias.asname or alias.name] = Module(f"{node.module or ''}.{alias.name}")
