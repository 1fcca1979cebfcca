"""The compact text form of a choice: ``per_group(32, axis=0)``, ``percentile(99)``.

Every choice is a frozen dataclass; its text is its name in snake case and the arguments that
differ from the defaults. Links, files and table rows carry this text.
"""

import ast
import dataclasses
import functools
import math
import re
from numbers import Real
from typing import Any, TypeVar

from quantcore import syntax
from quantcore.errors import QuantError, UnknownNameError
from quantcore.wording import nearest, passed

Record = TypeVar("Record")
MAX_CHARS = 100_000  # enough for the given parameters of a few thousand blocks


class NamedRecords(dict[str, Record]):
    """A dictionary of records by name, which suggests a name that resembles an unknown one."""

    def __missing__(self, name: object) -> Record:
        near = nearest(name, self) if isinstance(name, str) else None
        some = f"did you mean {near!r}?" if near else f"for example {', '.join(list(self)[:4])}."
        what = repr(name[:40]) if isinstance(name, str) else passed(name)
        raise UnknownNameError(f"There is no {what} among these {len(self)} names; {some}")


@functools.lru_cache(1024)  # asked for the same few classes, thousands of times in a search
def snake_case(name: str) -> str:
    """``PerGroup`` -> ``per_group``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def write_value(value: object) -> str:
    """Write one argument so that `parse_call` reads the same value."""
    if isinstance(value, tuple):
        return "[" + ",".join(write_value(v) for v in value) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def write_call(choice: Any, name: str | None = None, skip: tuple[str, ...] = ()) -> str:
    """Write a dataclass instance; arguments without a default come first, without their names.

    Fields with ``repr=False`` are left out.
    """
    arguments = []
    for field in dataclasses.fields(choice):
        if not field.repr:
            continue
        value = getattr(choice, field.name)
        required = field.default is dataclasses.MISSING
        if field.name in skip or (not required and value == field.default):
            continue
        arguments.append(write_value(value) if required else f"{field.name}={write_value(value)}")
    head = name or snake_case(type(choice).__name__)
    return f"{head}({', '.join(arguments)})" if arguments else head


def split_words(text: str) -> list[str]:
    """Split at spaces and middle dots outside brackets."""
    if len(text) > MAX_CHARS:
        raise QuantError(f"The scheme has {len(text):,} characters; the limit is {MAX_CHARS:,}.")
    words, depth, word = [], 0, ""
    for char in text:
        depth += (char in "([") - (char in ")]")
        if depth == 0 and (char.isspace() or char == "·"):
            words.append(word)
            word = ""
        else:
            word += char
    return [w for w in [*words, word] if w]


def parse_call(word: str) -> tuple[str, list[Any], dict[str, Any]]:
    """Read ``name(1, key=2)`` into its name, arguments and keyword arguments.

    Raises:
        QuantError: the word is not of that form, or an argument is not a number, a word or a list of them.
    """
    name, bracket, rest = word.partition("(")
    dotted = re.fullmatch(r"[A-Za-z]\w*(\.\w+)+", name)
    try:  # names such as aimet.2024.Quantize are not valid Python
        node = syntax.expression("dotted" + bracket + rest if dotted else word)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise QuantError(f"{_short(word)} can't be read; write a name, or name(value, key=value).") from None
    if isinstance(node, ast.Name):
        return name if dotted else node.id, [], {}
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        raise QuantError(f"{_short(word)} is not a choice; write a name, or name(value, key=value).")
    arguments = [_value(a, word) for a in node.args]
    keywords = {k.arg or "": _value(k.value, word) for k in node.keywords}
    if len(keywords) < len(node.keywords):
        raise QuantError(f"{_short(word)} names an argument twice; leave one out.")
    return name if dotted else node.func.id, arguments, keywords


def build(kind: type, arguments: list[Any], keywords: dict[str, Any], word: str) -> Any:
    """Make a dataclass from what `parse_call` read in ``word``."""
    try:
        return kind(*arguments, **keywords)
    except TypeError:
        fields = ", ".join(f.name for f in dataclasses.fields(kind))
        name = snake_case(kind.__name__)
        raise QuantError(f"{_short(word)} does not match the arguments of {name}({fields}).") from None


def integer(value: object, what: str) -> int:
    """Return ``value`` as an int if it is an integer (2.0 is)."""
    if not _is_finite(value, what) or value % 1:  # type: ignore[operator]
        raise QuantError(f"{what} must be an integer, not {_short(str(value))}.")
    return int(float(value)) if isinstance(value, float) else int(value)  # type: ignore[call-overload]


def read_numbers(choice: Any, **called: str) -> None:
    """Turn the fields of a frozen dataclass that are annotated as int or float into such numbers.

    ``called``: what errors call a field, if not by its name.
    """
    for field in dataclasses.fields(choice):
        if field.type in (int, float):
            read = integer if field.type is int else finite
            value = read(getattr(choice, field.name), called.get(field.name, field.name))
            object.__setattr__(choice, field.name, value)


def finite(value: object, what: str) -> float:
    """Return ``value`` as a float if it is a finite number."""
    if not _is_finite(value, what):
        raise QuantError(f"{what} must be a finite number, not {_short(str(value))}.")
    return float(value)  # type: ignore[arg-type]


def _is_finite(value: object, what: str) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        raise QuantError(f"{what} is larger than any float64, 1.8e308.") from None


def _value(node: ast.expr, word: str) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        # a single sign, before a number: a chain of signs would recurse as deep as the text is long
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=name):
            return {"true": True, "false": False}.get(name.lower(), name)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, word) for part in parts)
    raise QuantError(f"In {_short(word)}, an argument is not a number, a word or a list of them.")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")
