"""What an expression stands for: constants folded, names followed, calls of torch and numpy recognised."""

import ast
import dataclasses
from dataclasses import dataclass, field
from typing import Any

from quantcore.code_reading import arithmetic, operations
from quantcore.code_reading.guesses import guess, item_of
from quantcore.code_reading.operations import KINDS, OPERATIONS, Call, placed, rounded
from quantcore.code_reading.values import (
    Back,
    Codes,
    Data,
    Function,
    Info,
    Kind,
    Many,
    Module,
    Nothing,
    Num,
    Param,
    Real,
    Seq,
    Steps,
    Text,
    Unknown,
    Value,
)
from quantcore.errors import QuantError

UNKNOWN = Unknown()
MAX_STEPS = 20_000
Names = dict[str, Value]
_TRACKED = Codes | Back | Data | Real | Steps
_LIBRARIES = ("torch", "numpy", "jax.numpy", "cupy")
_KNOWN_NAMES = {"torch": "torch", "np": "numpy", "numpy": "numpy", "F": "torch.nn.functional", "math": "math"}


@dataclass
class Reading:
    """``codes``, ``backs``: all that were made; ``unread``: (line, source) of calls that are not recognised;
    ``written``: tensors of the caller that were written into, with the line; ``library``: calls that quantize
    by themselves, with the line."""

    codes: list[Codes] = field(default_factory=list)
    backs: list[Back] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    unread: dict[tuple[int, str], None] = field(default_factory=dict)
    written: list[tuple[int, Data]] = field(default_factory=list)
    library: list[tuple[int, str]] = field(default_factory=list)
    steps: int = 0
    forks: int = 0

    def tick(self, node: ast.AST) -> None:
        """Count a step.

        Raises:
            QuantError: there are too many.
        """
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise QuantError(
                f"Line {getattr(node, 'lineno', 0)}: the code branches too often to be followed; paste only the "
                "lines that quantize."
            )

    def call(self, function: Function, args: list[Value], named: Names, names: Names, line: int) -> Value:
        """Follow a call of a function of the snippet."""
        raise NotImplementedError

    def bind(self, target: ast.expr, value: Value, names: Names) -> None:
        """Give names to a value."""
        raise NotImplementedError

    def changed(self, value: Value, node: ast.AST) -> Value:
        """Note a tensor of the caller that was written into."""
        if isinstance(value, Data) and value.caller:
            self.written.append((getattr(node, "lineno", 0), value))
        return value

    def made(self, value: Value, *used: Value) -> Value:
        """Keep codes and dequantized values; those that they were made of are no longer the last of their chain."""
        if isinstance(value, Codes) and not any(value is u for u in used):
            self.codes.append(value)
            self.used |= {id(u) for u in used if isinstance(u, Codes)}
        elif isinstance(value, Back) and not any(value is u for u in used):
            self.backs.append(value)
            self.used |= {id(u) for u in used if isinstance(u, Codes | Back)}
        elif isinstance(value, Unknown) and not any(isinstance(u, Data) for u in used):
            # added to something unknown: nothing is said of it. Taken from x, it is the error
            self.used |= {id(u) for u in used if isinstance(u, Back)}
        return value


def evaluate(node: ast.expr, names: Names, reading: Reading) -> Value:
    """Return what an expression stands for; unknown where it is not recognised."""
    reading.tick(node)
    match node:
        case ast.Constant():
            return _constant(node)
        case ast.Name():
            return _name(node.id, names)
        case ast.UnaryOp():
            return _unary(node, names, reading)
        case ast.BinOp():
            return _binary(node, names, reading)
        case ast.Tuple() | ast.List():
            return Seq(tuple(evaluate(item, names, reading) for item in node.elts))
        case ast.Attribute():
            return _attribute(node, names, reading)
        case ast.Subscript():
            return _subscript(node, names, reading)
        case ast.Call():
            return _call(node, names, reading)
        case ast.Compare():
            return _compare(node, names, reading)
        case ast.BoolOp():
            return _all_or_any(node, names, reading)
        case ast.IfExp():
            test = evaluate(node.test, names, reading)
            ways = [evaluate(way, names, reading) for way in (node.body, node.orelse)]
            if isinstance(test, Num):
                return ways[0] if test.value else ways[1]
            real, other = ways if isinstance(ways[0], Real) else ways[::-1]
            if isinstance(real, Real) and isinstance(other, Num) and isinstance(node.test, ast.Compare):
                return dataclasses.replace(real, guard=True)
            return ways[0] if ways[0] == ways[1] else UNKNOWN
        case ast.ListComp() | ast.GeneratorExp():
            return _comprehension(node, names, reading)
        case ast.NamedExpr():
            value = evaluate(node.value, names, reading)
            names[node.target.id] = value
            return value
    return UNKNOWN


def _constant(node: ast.Constant) -> Value:
    value = node.value
    if value is None:
        return Nothing()
    if isinstance(value, str):
        return Text(value[:40])
    if isinstance(value, bool | int | float):
        return arithmetic.number(value, node.lineno)
    return UNKNOWN


def _name(name: str, names: Names) -> Value:
    if name in names:
        return names[name]
    if name in _KNOWN_NAMES:
        return Module(_KNOWN_NAMES[name])
    if name in ("True", "False"):
        return Num(name == "True")
    found = guess(name)
    if isinstance(found, Data):
        found = names[name] = dataclasses.replace(found, caller=True)
    return found


def _unary(node: ast.UnaryOp, names: Names, reading: Reading) -> Value:
    value = evaluate(node.operand, names, reading)
    if isinstance(node.op, ast.USub):
        return arithmetic.negative(value)
    if isinstance(node.op, ast.Not):
        return Num(not value.value) if isinstance(value, Num) else UNKNOWN
    return value if isinstance(node.op, ast.UAdd) else UNKNOWN


_WHOLE = {ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>"}


def _binary(node: ast.BinOp, names: Names, reading: Reading) -> Value:
    a, b = evaluate(node.left, names, reading), evaluate(node.right, names, reading)
    return reading.made(_of_two(node.op, a, b, node.lineno), a, b)


def _of_two(op: ast.operator, a: Value, b: Value, line: int) -> Value:
    if isinstance(op, ast.Add):
        return arithmetic.add(a, b, 1, line)
    if isinstance(op, ast.Sub):
        return arithmetic.add(a, b, -1, line)
    if isinstance(op, ast.Mult):
        return arithmetic.multiply(a, b, line)
    if isinstance(op, ast.Div):
        return arithmetic.divide(a, b, line)
    if isinstance(op, ast.Pow):
        return arithmetic.power(a, b)
    if isinstance(op, ast.FloorDiv) and not (isinstance(a, Num) and isinstance(b, Num)):
        quotient = arithmetic.divide(a, b, line)
        if isinstance(quotient, Codes) and quotient.ops[-1].name == "divide":
            last = dataclasses.replace(quotient.ops[-1], name="floor_divide")  # not quite floor(x / s)
            quotient = dataclasses.replace(quotient, ops=(*quotient.ops[:-1], last))
        return rounded(quotient, "floor", line) if isinstance(quotient, Codes | Steps) else UNKNOWN
    return arithmetic.whole(_WHOLE[type(op)], a, b) if type(op) in _WHOLE else UNKNOWN


def _compare(node: ast.Compare, names: Names, reading: Reading) -> Value:
    values = [evaluate(v, names, reading) for v in (node.left, *node.comparators)]
    if len(values) != 2:
        return UNKNOWN
    a, b = values
    op = node.ops[0]
    if isinstance(op, ast.Is | ast.IsNot) and isinstance(b, Nothing) and not isinstance(a, Unknown | Param):
        return Num(isinstance(a, Nothing) == isinstance(op, ast.Is))
    same = type(a) is type(b) and isinstance(a, Num | Text | Kind)
    if same and isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        return Num((a == b) == isinstance(op, ast.Eq | ast.Is))
    if isinstance(a, Num) and isinstance(b, Num):
        order = {
            ast.Lt: a.value < b.value,
            ast.LtE: a.value <= b.value,
            ast.Gt: a.value > b.value,
            ast.GtE: a.value >= b.value,
        }
        return Num(order[type(op)]) if type(op) in order else UNKNOWN
    return UNKNOWN


def _all_or_any(node: ast.BoolOp, names: Names, reading: Reading) -> Value:
    values = [evaluate(v, names, reading) for v in node.values]
    ends = isinstance(node.op, ast.Or)
    for value in values:
        if not isinstance(value, Num):
            return UNKNOWN
        if bool(value.value) == ends:
            return value
    return values[-1]


def _attribute(node: ast.Attribute, names: Names, reading: Reading) -> Value:
    whole = ast.unparse(node) if isinstance(node.value, ast.Name) else ""
    if whole in names:
        return names[whole]
    value = evaluate(node.value, names, reading)
    match value:
        case Module() if value.name.partition(".")[0] in ("torch", "numpy") and node.attr in KINDS:
            return KINDS[node.attr]
        case Module() if value.name in ("torch", "numpy", "math") and node.attr == "pi":
            return Num(3.141592653589793)
        case Module():
            return Module(f"{value.name}.{node.attr}")
        case Info():
            found = {"min": value.kind.low, "max": value.kind.high, "bits": value.kind.bits}.get(node.attr)
            return UNKNOWN if found is None else Num(found)
        case Seq() if node.attr in ("values", "min", "max") and value.items:
            return value.items[-1 if node.attr == "max" else 0]
    if node.attr == "T":
        return placed(value, "transpose")
    if node.attr == "data" or (node.attr == "values" and not isinstance(value, Unknown)):
        return value
    if node.attr in ("min", "max") and isinstance(value, Kind):
        return UNKNOWN
    return UNKNOWN


def _subscript(node: ast.Subscript, names: Names, reading: Reading) -> Value:
    value = evaluate(node.value, names, reading)
    if isinstance(value, Seq):
        place = evaluate(node.slice, names, reading) if not isinstance(node.slice, ast.Slice) else UNKNOWN
        if (
            isinstance(place, Num)
            and isinstance(place.value, int)
            and -len(value.items) <= place.value < len(value.items)
        ):
            return value.items[place.value]
        return UNKNOWN
    if isinstance(value, Many):
        return value.item
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    new = [i for i, item in enumerate(items) if _is_new_axis(item)]
    if new:
        front = new[0] if not isinstance(items[0], ast.Constant) or new[0] == 0 else -1
        last = isinstance(items[0], ast.Constant) and items[0].value is ...
        return placed(value, f"unsqueeze:{-1 if last else front}")
    if isinstance(node.slice, ast.Compare):
        return UNKNOWN
    return (
        placed(value, "part")
        if isinstance(value, Data | Real)
        else value
        if isinstance(value, Codes)
        else UNKNOWN
    )


def _is_new_axis(item: ast.expr) -> bool:
    return (isinstance(item, ast.Constant) and item.value is None) or (
        isinstance(item, ast.Attribute) and item.attr == "newaxis"
    )


def _comprehension(node: ast.ListComp | ast.GeneratorExp, names: Names, reading: Reading) -> Value:
    if len(node.generators) != 1:
        return UNKNOWN
    inner = dict(names)
    reading.bind(node.generators[0].target, item_of(evaluate(node.generators[0].iter, names, reading)), inner)
    return Many(evaluate(node.elt, inner, reading))


def _call(node: ast.Call, names: Names, reading: Reading) -> Value:
    args = [evaluate(a.value if isinstance(a, ast.Starred) else a, names, reading) for a in node.args]
    named = {k.arg: evaluate(k.value, names, reading) for k in node.keywords if k.arg}
    method, numpy, of = False, False, list[Value]()
    name = ""
    if isinstance(node.func, ast.Name):
        function = _name(node.func.id, names) if node.func.id in names else None
        if isinstance(function, Function):
            return reading.call(function, args, named, names, node.lineno)
        name = function.name.rpartition(".")[2] if isinstance(function, Module) else node.func.id
        if function is None:
            built_in = _built_in(name, args, named, node)
            if built_in is not None:
                return reading.made(built_in, *args)
            name = (
                name if name in ("relu", "clamp", "deepcopy", "display") or name in operations.QUIET else ""
            )
        if isinstance(function, Kind):
            return reading.made(operations.cast(args[0], function, node.lineno), *args) if args else UNKNOWN
    elif isinstance(node.func, ast.Attribute):
        owner = evaluate(node.func.value, names, reading)
        name = node.func.attr
        if isinstance(owner, Module):
            numpy = owner.name.startswith("numpy")
            if owner.name.startswith(_LIBRARIES) and name in ("iinfo", "finfo") and args:
                kind = KINDS.get(args[0].text) if isinstance(args[0], Text) else args[0]
                return Info(kind) if isinstance(kind, Kind) and not kind.floating else UNKNOWN
            if owner.name.partition(".")[0] not in (
                "torch",
                "numpy",
                "math",
                "random",
                "copy",
                "plt",
                "matplotlib",
            ):
                name = f"{owner.name}.{name}"
        elif isinstance(owner, Function):
            return UNKNOWN
        else:
            method, of = True, [owner]
    call = Call(name, (*of, *args), named, node.lineno, method, numpy)
    return _operate(call, node, names, reading)


def _operate(call: Call, node: ast.Call, names: Names, reading: Reading) -> Value:
    operation = OPERATIONS.get(call.name)
    tracked = any(isinstance(arithmetic.single(v), _TRACKED) for v in (*call.args, *call.named.values()))
    if operation is None:
        if tracked and not call.name.startswith(("plt.", "matplotlib")):
            reading.unread[node.lineno, ast.unparse(node)[:60]] = None
        return UNKNOWN
    try:
        found = operation(call)
    except IndexError:
        found = UNKNOWN  # called without what it needs
    if call.name in operations.LIBRARY:
        reading.library.append((node.lineno, call.name))
    if call.name in operations.QUIET or call.name in operations.LIBRARY:
        return UNKNOWN
    if isinstance(found, Unknown) and tracked and not isinstance(found, Seq):
        reading.unread[node.lineno, ast.unparse(node)[:60]] = None
    if call.name.endswith("_") and isinstance(found, Data):
        reading.changed(found, node)
    return reading.made(found, *map(arithmetic.single, call.args))


def _built_in(name: str, args: list[Value], named: Names, node: ast.Call) -> Value | None:
    """Python's own functions; None where it is another."""
    line = node.lineno
    first: Any = args[0] if args else UNKNOWN
    match name, len(args):
        case ("int", 1):
            return operations.cast(first, Kind(64), line, python=True)
        case ("float", 1):
            return operations.cast(first, Kind(64, True, True), line, python=True)
        case ("round", 1):
            found = rounded(first, "half_even", line)
            return (
                dataclasses.replace(found, python=True)
                if isinstance(found, Steps) and found.python
                else found
            )
        case ("abs", 1):
            return arithmetic.magnitude(first)
        case ("max" | "min", 2):
            return arithmetic.larger(first, args[1], name)
        case ("max" | "min", 3):
            value: Value = first
            for other in args[1:]:
                value = arithmetic.larger(value, other, name)
            return value
        case ("range", _):
            return Many(UNKNOWN)
        case ("zip", _):
            return Many(Seq(tuple(a.item if isinstance(a, Many) else UNKNOWN for a in args)))
        case ("enumerate", 1):
            return Many(Seq((UNKNOWN, item_of(first))))
        case ("pow", 2):
            return arithmetic.power(first, args[1])
        case ("tuple" | "list", 1):
            return first if isinstance(first, Seq | Many) else UNKNOWN
        case ("len" | "print" | "str" | "isinstance" | "bool" | "sum" | "type", _):
            return UNKNOWN
    return None
