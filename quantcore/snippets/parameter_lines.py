"""How a torch script computes scale and zero point: the lines of the scheme's program, written in torch.

Of a line that changes nothing on this tensor nothing is written: a bound that no block exceeds, a branch that
no block takes.
"""

import operator
import re
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from quantcore.expressions import (
    ADD,
    CLAMP,
    DEFINITIONS,
    MAXIMUM,
    MINIMUM,
    SUBTRACT,
    Applied,
    Expression,
    Let,
    Name,
    Number,
    Where,
    run,
    written,
)
from quantcore.numerics import decimal
from quantcore.programs import HALF, Program, ProgramLine, range_program
from quantcore.qparams import ranges
from quantcore.quantization import Quantized
from quantcore.tensors import WIDTH

_OWN = {"s": "scale", "z": "zero_point", "1/s": "inverse"}
_IDENTIFIERS = _OWN | {"max|x|": "largest", "-low": "minus_low", "low on the grid": "low_on_grid"}
_MAY_CHANGE_NOTHING = (MAXIMUM, MINIMUM, CLAMP, ADD, SUBTRACT)
_CASTS = {
    torch.float32: ".float()", torch.float64: ".double()", torch.bfloat16: ".bfloat16()",
    torch.float16: ".half()", torch.int32: ".int()",
}  # fmt: skip
_LARGEST = decimal(torch.finfo(torch.float32).max)
_WORDS = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class ParameterLines:
    """Lines that bind scale, zero_point and inverse from the ranges of blocks, one number per block.

    ``starts``: what they start from, "low" and "high", or "largest" alone. ``zero_point``: "" if it is 0,
    "one" if it is one number for all blocks, else "blocks". ``has_inverse``: whether they bind inverse.
    ``functions``: definitions of roundings that torch does not have.
    """

    lines: list[str]
    starts: tuple[str, ...]
    zero_point: str
    has_inverse: bool
    functions: str


def parameters_of(result: Quantized, dtype: torch.dtype, scale_dtype: torch.dtype) -> ParameterLines | None:
    """Return the lines of a result's parameters; None if the program of its scheme does not give them.

    Args:
        dtype: of low and high in the script.
        scale_dtype: of the scale in the script.
    """
    scheme, params = result.computed, result.params
    setting = scheme.range_setting
    if setting.gives_parameters or setting.searches_codes or setting.moves_zero_point or result.scales:
        return None
    program = range_program(scheme)
    low, high = ranges(result.x, scheme)
    writer = _Writer(program, scheme.format.qmin, scheme.format.qmax)
    starts: tuple[str, ...] = ("low", "high")
    if scheme.symmetric and program.of_magnitude:
        starts = ("largest",)
    writer.start({"low": low, "high": high}, dtype)
    wanted = ("s", "z", *(["1/s"] if params.inverse is not None else []))
    for line, value in program.results(wanted, {"low": low, "high": high}):
        if starts == ("largest",) and line.name == "max|x|" and line.of.names == {"low", "high"}:
            writer.bind(line, value, "largest", dtype)
        elif not writer.write(line, value):
            return None
    stored = [params.scale, params.zero_point, *([] if params.inverse is None else [params.inverse])]
    if not all(_same(writer.values[name], own) for name, own in zip(wanted, stored, strict=True)):
        return None
    for name, own in zip("sz", stored, strict=False):
        if name == "z" and "z" in program.integers and scale_dtype != torch.float32:
            writer.cast("z", torch.int32)  # integers take the dtype of what they are added to
        elif writer.dtypes.get(name) != scale_dtype and _same(own, own.to(scale_dtype)):
            writer.cast(name, scale_dtype)
    zero_point = writer.values["z"]
    kind = "blocks" if isinstance(zero_point, Tensor) else "one" if zero_point else ""
    absent = () if kind else ("z",)
    lines = writer.finished([name for name in wanted if name not in absent])
    used = [name for name in DEFINITIONS if re.search(rf"\b{name}\(", "\n".join(lines))]
    functions = "\n\n".join(DEFINITIONS[name].strip() for name in used)
    return ParameterLines(lines, starts, kind, "1/s" in wanted, functions)


def _same(value: Any, stored: Tensor) -> bool:
    found = torch.as_tensor(value).to(torch.float64).expand(stored.shape)
    own = stored.to(torch.float64)
    return bool(((found == own) | (found.isnan() & own.isnan())).all())


@dataclass
class _Writer:
    """Writes lines one after another, and knows under which name and in which dtype each result stands."""

    program: Program
    qmin: int
    qmax: int
    names: dict[str, str] = field(default_factory=dict)
    dtypes: dict[str, torch.dtype] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    found: list[tuple[str, str, str]] = field(default_factory=list)

    def start(self, numbers: dict[str, Tensor], dtype: torch.dtype) -> None:
        """Bind what the lines start from."""
        for name, value in self.program.constants.items():
            self.names[name], self.values[name] = written(_number(value)), value
        self.names["qmin"] = "qmin"
        if self.program.constants["N"] == self.qmax - self.qmin:
            self.names["N"] = "(qmax - qmin)"
        for name, number in numbers.items():
            self.names[name], self.values[name], self.dtypes[name] = name, number, dtype

    def bind(self, line: ProgramLine, value: Any, name: str, dtype: torch.dtype | None) -> None:
        """Bind a result to a name of the script."""
        self.names[line.name], self.values[line.name] = name, value
        if dtype is None:
            self.dtypes.pop(line.name, None)
        else:
            self.dtypes[line.name] = dtype

    def write(self, line: ProgramLine, value: Any) -> bool:
        """Write a line, or take another name for its result; whether torch has all its operations."""
        plain = _without_lets(line.of)
        of = self._taken(plain)
        # a branch that is not taken has no reason, and a note on a named part no place
        why = line.why if of is line.of or (of is plain and isinstance(of, Where)) else ""
        kept = self._unchanged(of, value)
        dtype = line.dtype or self._dtype_of(of)
        if kept is not None and self.dtypes.get(kept) == dtype:
            self.bind(line, value, self.names[kept], dtype)
            return True
        # its shortest decimal lies above it, where torch expects a float32
        text = self._text(of, line).replace(_LARGEST, "torch.finfo(torch.float32).max")
        if re.search(r"exponent|\bfma\(|\.item\(\)", text):
            return False
        name = _IDENTIFIERS.get(line.name, line.name)
        self.found.append((name, text, why))
        self.bind(line, value, name, dtype)
        return True

    def _dtype_of(self, of: Expression) -> torch.dtype | None:
        """Return the dtype of a test's result, or of what it chooses among: that of the numbers it is of."""
        other = of.otherwise if isinstance(of, Where) else of
        return self.dtypes.get(other.name) if isinstance(other, Name) else None

    def _taken(self, of: Expression) -> Expression:
        """Return what is left of a branch that no block takes."""
        if not isinstance(of, Where):
            return of
        tested = torch.as_tensor(run(of.test, {name: self.values[name] for name in of.test.names}))
        return of if bool((tested.bool() == bool(of.value)).any()) else of.otherwise

    def _unchanged(self, of: Expression, value: Any) -> str | None:
        """Return the name whose number this is, if the line leaves it as it is."""
        first: Expression = of.otherwise if isinstance(of, Where) else of
        if isinstance(of, Applied) and of.operation in _MAY_CHANGE_NOTHING:
            first = of.operands[0]
        if not isinstance(first, Name):
            return None
        now, before = (torch.as_tensor(one) for one in (value, self.values[first.name]))
        return first.name if now.shape == before.shape and _same(now, before) else None

    def _text(self, of: Expression, line: ProgramLine) -> str:
        names = {}
        for name in of.names:
            is_cast = line.dtype is not None and not line.is_mixed and name in self.dtypes
            cast = _CASTS[line.dtype] if is_cast and self.dtypes[name] != line.dtype else ""  # type: ignore[index]
            names[name] = self.names[name] + cast
        if not isinstance(of, Where):
            return self._test(of) if line.dtype is None else written(of, "torch", names)
        test = self._test(of.test)
        branches = [written(one, "torch", names) for one in (of.then, of.otherwise)]
        return f"torch.where({test}, {', '.join(branches if of.value else branches[::-1])})"

    def _test(self, of: Expression) -> str:
        """Write a test, of numbers as they are: torch would round a constant to the 16 bits of the other."""
        is_wide = not any(isinstance(operand, Number) for operand in getattr(of, "operands", ()))
        halves = () if is_wide else [name for name in of.names if self.dtypes.get(name) in HALF]
        names = {name: self.names[name] + ".float()" * (name in halves) for name in of.names}
        return written(of, "torch", names)

    def cast(self, name: str, dtype: torch.dtype) -> None:
        """Bring a result to a dtype that holds its numbers."""
        if isinstance(self.values[name], Tensor):
            self.found.append((_IDENTIFIERS[name], self.names[name] + _CASTS[dtype], ""))
            self.names[name] = _IDENTIFIERS[name]

    def finished(self, wanted: list[str]) -> list[str]:
        """Return the lines that lead to some results, each of which bears its own name at the end."""
        for name in wanted:
            own, bound = _OWN[name], self.names[name]
            if bound == own:
                continue
            if bound in (line[0] for line in self.found) and own not in (line[0] for line in self.found):
                self.found = [tuple(_renamed(part, bound, own) for part in line) for line in self.found]  # type: ignore[misc]
            else:
                self.found.append((own, bound, ""))
        live, lines = {_OWN[name] for name in wanted}, []
        for name, text, why in reversed(self.found):
            if name in live:
                live = (live - {name}) | set(_WORDS.findall(text))
                lines.append(_with_comment(f"{name} = {text}", why))
        return [line for pair in reversed(lines) for line in pair]


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b", new, text)


def _with_comment(line: str, why: str) -> list[str]:
    if not why:
        return [line]
    return [f"{line}  # {why}"] if len(line) + len(why) + 4 <= WIDTH else [f"# {why}", line]


def _without_lets(of: Expression) -> Expression:
    """Return an expression whose named parts stand where they are read."""
    if isinstance(of, Let):
        return _without_lets(of.of)
    if isinstance(of, Where):
        test, then, otherwise = map(_without_lets, (of.test, of.then, of.otherwise))
        return replace(of, test=test, then=then, otherwise=otherwise)
    if not isinstance(of, Applied):
        return of
    operands = [*map(_without_lets, of.operands)]
    return of if all(map(operator.is_, operands, of.operands)) else of.operation(*operands)


def _number(value: float) -> Expression:
    return Number(int(value) if value == int(value) else value)
