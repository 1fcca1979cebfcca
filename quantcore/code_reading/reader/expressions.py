"""The value of an expression: constants are folded, names followed, PyTorch and NumPy calls recognized."""

import ast
import dataclasses

from quantcore.code_reading.reader.calls import call
from quantcore.code_reading.reader.reading import Reading
from quantcore.code_reading.values import arithmetic, operators
from quantcore.code_reading.values.names import Names, item_of, name_of
from quantcore.code_reading.values.python import (
    UNKNOWN,
    DType,
    Info,
    Many,
    Module,
    Nothing,
    Num,
    Param,
    Seq,
    Text,
    Unknown,
    Value,
)
from quantcore.code_reading.values.quantities import Codes, Data, Real, Steps
from quantcore.code_reading.values.steps import DTYPES, placed, rounded


def evaluate(node: ast.expr, names: Names, reading: Reading) -> Value:
    """Return the value of an expression; unknown if it is not recognized."""
    reading.tick(node)
    match node:
        case ast.Constant():
            return _constant(node)
        case ast.Name():
            return name_of(node.id, names)
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
            return call(node, names, reading)
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


def _unary(node: ast.UnaryOp, names: Names, reading: Reading) -> Value:
    value = evaluate(node.operand, names, reading)
    if isinstance(node.op, ast.USub):
        return arithmetic.negative(value)
    if isinstance(node.op, ast.Not):
        return Num(not value.value) if isinstance(value, Num) else UNKNOWN
    return value if isinstance(node.op, ast.UAdd) else UNKNOWN


_INTEGER_OPERATIONS = {ast.FloorDiv: "//", ast.Mod: "%", ast.LShift: "<<", ast.RShift: ">>"}


def _binary(node: ast.BinOp, names: Names, reading: Reading) -> Value:
    a, b = evaluate(node.left, names, reading), evaluate(node.right, names, reading)
    found = _combined(node.op, a, b, node.lineno)
    values = [arithmetic.single(v) for v in (a, b)]
    lost = isinstance(found, Unknown) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div)
    tracked = any(isinstance(v, Data | Codes) for v in values) and any(
        isinstance(v, Unknown | Real) for v in values
    )
    if lost and tracked and not reading.unread:  # an earlier unrecognized line makes what follows unknown
        reading.unread[node.lineno, ast.unparse(node)[:60]] = None
    return reading.made(found, a, b)


def _combined(op: ast.operator, a: Value, b: Value, line: int) -> Value:
    if isinstance(op, ast.Add):
        return operators.add(a, b, 1, line)
    if isinstance(op, ast.Sub):
        return operators.add(a, b, -1, line)
    if isinstance(op, ast.Mult):
        return operators.multiply(a, b, line)
    if isinstance(op, ast.Div):
        return operators.divide(a, b, line)
    if isinstance(op, ast.Pow):
        return arithmetic.power(a, b)
    if isinstance(op, ast.FloorDiv) and not (isinstance(a, Num) and isinstance(b, Num)):
        quotient = operators.divide(a, b, line)
        if isinstance(quotient, Codes) and quotient.ops[-1].name == "divide":
            last = dataclasses.replace(
                quotient.ops[-1], name="floor_divide"
            )  # differs from floor(x / s) by rounding
            quotient = dataclasses.replace(quotient, ops=(*quotient.ops[:-1], last))
        return rounded(quotient, "floor", line) if isinstance(quotient, Codes | Steps) else UNKNOWN
    return (
        arithmetic.integer_operation(_INTEGER_OPERATIONS[type(op)], a, b)
        if type(op) in _INTEGER_OPERATIONS
        else UNKNOWN
    )


def _compare(node: ast.Compare, names: Names, reading: Reading) -> Value:
    values = [evaluate(v, names, reading) for v in (node.left, *node.comparators)]
    if len(values) != 2:
        return UNKNOWN
    a, b = values
    op = node.ops[0]
    if isinstance(op, ast.Is | ast.IsNot) and isinstance(b, Nothing) and not isinstance(a, Unknown | Param):
        return Num(isinstance(a, Nothing) == isinstance(op, ast.Is))
    same = type(a) is type(b) and isinstance(a, Num | Text | DType)
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
    decides = isinstance(node.op, ast.Or)
    for value in values:
        if not isinstance(value, Num):
            return UNKNOWN
        if bool(value.value) == decides:
            return value
    return values[-1]


def _attribute(node: ast.Attribute, names: Names, reading: Reading) -> Value:
    dotted = ast.unparse(node) if isinstance(node.value, ast.Name) else ""
    if dotted in names:
        return names[dotted]
    value = evaluate(node.value, names, reading)
    match value:
        case Module() if value.name.partition(".")[0] in ("torch", "numpy") and node.attr in DTYPES:
            return DTYPES[node.attr]
        case Module() if value.name in ("torch", "numpy", "math") and node.attr == "pi":
            return Num(3.141592653589793)
        case Module():
            return Module(f"{value.name}.{node.attr}")
        case Info():
            found = {"min": value.dtype.low, "max": value.dtype.high, "bits": value.dtype.bits}.get(node.attr)
            return UNKNOWN if found is None else Num(found)
        case Seq() if node.attr in ("values", "min", "max") and value.items:
            return value.items[-1 if node.attr == "max" else 0]
    if node.attr == "T":
        return placed(value, "transpose")
    if node.attr == "data" or (node.attr == "values" and not isinstance(value, Unknown)):
        return value
    if node.attr in ("min", "max") and isinstance(value, DType):
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
