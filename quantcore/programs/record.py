"""A program: lines that bind names, run on tensors or read on the numbers of one block."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantcore.expressions import (
    ATOM,
    CLAMP,
    LOOSE,
    MAXIMUM,
    PRODUCT,
    WRAP,
    Applied,
    BlockStep,
    Element,
    Expression,
    Name,
    Term,
    Text,
    Value,
    Where,
    bind,
    in_dtype,
    named,
    of_number,
    placed,
    run,
    step_of,
    text_of,
    to,
    without,
    written,
)

_Steps = list[tuple[str, BlockStep, tuple[str, ...]]]
_Known = Callable[[str], Term | None]
HALF = (torch.bfloat16, torch.float16)
_BOUNDS = (MAXIMUM, CLAMP, WRAP)
_ON_NUMBERS: Mapping[torch.dtype, type] = {torch.float32: np.float32, torch.float64: np.float64}


@dataclass(frozen=True, eq=False)
class ProgramLine:
    """A name for the result of an expression of names that are given or bound before.

    ``dtype``: that its operands are brought to and each of its operations is rounded to; None for a test, of
    numbers as they are. ``why``: why it is there; ``source``: where the library does so, empty where nobody
    recorded it. ``is_mixed``: whether operands keep the dtype that they have, as torch takes a scale of
    another dtype.
    """

    name: str
    of: Expression
    dtype: torch.dtype | None = torch.float32
    why: str = ""
    source: str = ""
    is_mixed: bool = False

    def __str__(self) -> str:
        said = ", ".join(
            filter(None, (self.why, "" if self.dtype in (None, torch.float32) else f"in {self.dtype}"))
        )
        of = written(self.of)
        if isinstance(self.of, Where):
            branches = written(self.of.then), of
            taken, other = branches if self.of.value else branches[::-1]
            of = f"{taken} if {written(self.of.test)} else {other}"
        return f"{self.name} = {of}" + (f"  # {said.replace('torch.', '')}" if said else "")


class ReadLine(NamedTuple):
    """A line read for one element: as it is written, with its result in float32, and that in its dtype."""

    line: ProgramLine
    term: Term
    value: Value

    @property
    def name(self) -> str:
        """What the line binds."""
        return self.line.name

    @property
    def text(self) -> str:
        """How its result is computed from numbers, with what is said of them."""
        rounded, exact = "", self.term.value
        if text_of(exact) != text_of(self.value):
            dtype = str(self.line.dtype).removeprefix("torch.")
            rounded = f"{text_of(exact)} → {text_of(self.value)} in {dtype}"
        formula = "" if rounded and self.term.numbers.text == text_of(exact) else self.term.numbers.text
        return ", ".join(filter(None, (formula, self.term.note, rounded)))


def _wide(term: Term) -> Term:
    return replace(term, value=np.float64(term.value))


class Program:
    """Lines in their order; a name that is bound again has its new result from there on.

    ``given``: the names of what it starts from, float32 or float64; ``constants``: numbers by name;
    ``integers``: the names whose results at the end are integers of 32 bits.
    """

    def __init__(
        self,
        lines: Iterable[ProgramLine],
        given: Collection[str],
        constants: Mapping[str, float],
        integers: Collection[str] = (),
    ) -> None:
        self.lines, self.given, self.constants = tuple(lines), tuple(given), dict(constants)
        self.integers = frozenset(integers)
        self._steps: dict[tuple[tuple[str, ...], tuple[str, ...], torch.dtype], _Steps] = {}
        self._whole: dict[tuple[str, ...], Expression] = {}

    def __str__(self) -> str:
        return "\n".join(map(str, self.lines))

    @cached_property
    def _before(self) -> dict[ProgramLine, dict[str, ProgramLine]]:
        """For each line, the lines that bind its names."""
        found: dict[ProgramLine, dict[str, ProgramLine]] = {}
        bound: dict[str, ProgramLine] = {}
        for line in self.lines:
            found[line] = {name: bound[name] for name in line.of.names if name in bound}
            bound[line.name] = line
        return found

    @cached_property
    def _constant_terms(self) -> dict[str, Term]:
        return {name: named(name, np.float32(value)) for name, value in self.constants.items()}

    @cached_property
    def _last(self) -> dict[str, ProgramLine]:
        return {line.name: line for line in self.lines}

    @cached_property
    def of_magnitude(self) -> bool:
        """Whether the scale depends on the largest magnitude of a range alone."""
        return self.line("raw").of.names == {"max|x|"}

    def line(self, name: str) -> ProgramLine:
        """Return the last line that binds a name."""
        return self._last[name]

    def binds(self, name: str) -> bool:
        """Whether a line binds a name."""
        return name in self._last

    def changed(self, name: str, of: Expression, why: str) -> "Program":
        """Return the program with another expression in the last line that binds a name: what if it were so.

        A name that the program starts from is changed before the first line, from what is given.
        """
        if name in self.given:
            lines = (ProgramLine(name, of, why=why), *self.lines)
        else:
            old = self.line(name)
            lines = tuple(
                replace(one, of=of, why=why, source="") if one is old else one for one in self.lines
            )
        return Program(lines, self.given, self.constants, self.integers)

    def needed(self, wanted: Collection[str], known: Collection[str] = ()) -> list[ProgramLine]:
        """Return the lines that names depend on; ``known``: names whose results at the end are known."""
        names, found = set(wanted) - set(known), []
        for line in reversed(self.lines):
            if line.name in names:
                names = (names - {line.name}) | (line.of.names - set(known))
                found.append(line)
        return found[::-1]

    def run(self, wanted: tuple[str, ...], numbers: Mapping[str, Tensor]) -> list[Any]:
        """Return the results of some names for all blocks; None for a name that no line binds.

        Args:
            numbers: what the program starts from, or also numbers of other names, float32, which are then not
                computed.
        """
        wide = torch.float64 in [number.dtype for number in numbers.values()]
        key = (wanted, tuple(numbers), torch.float64 if wide else torch.float32)
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = self._compiled(*key)
        found: dict[str, Any] = {**self.constants, **numbers}
        bind(steps, found)
        return [found.get(name) for name in wanted]

    def results(
        self, wanted: tuple[str, ...], numbers: Mapping[str, Tensor]
    ) -> Iterator[tuple[ProgramLine, Any]]:
        """Yield the lines that names depend on, in their order, each with its result for all blocks.

        Args:
            numbers: what the program starts from, as for `run`.
        """
        found: dict[str, Any] = {**self.constants, **numbers}
        dtypes = {name: number.dtype for name, number in numbers.items()}
        for line in self.needed(wanted):
            of = line.of
            if line.dtype is not None:
                of = in_dtype(of, line.dtype, {} if line.is_mixed else dtypes)
                dtypes[line.name] = line.dtype
            found[line.name] = step_of(of)(found, {})
            yield line, found[line.name]

    def write(
        self, name: str, numbers: Mapping[str, Tensor | float | None], out: Tensor | None = None
    ) -> Any:
        """Return the result of a name for elements, computed in memory that is given; see `expressions.run`.

        Args:
            numbers: what the program starts from, None for what is absent; or also numbers of other names,
                which are then not computed.
        """
        absent = tuple([one for one, number in numbers.items() if number is None])
        return run(self.whole(name, tuple(numbers), absent), {**self.constants, **numbers}, out)

    def whole(self, name: str, numbers: tuple[str, ...], absent: tuple[str, ...] = ()) -> Expression:
        """Return the result of a name as one expression of these numbers and constants; see `write`."""
        key = (name, *numbers, *absent)
        expression = self._whole.get(key)
        if expression is None:
            known = frozenset(numbers) - set(self.given)
            as_given = name in known or not self.binds(name)
            expression = Name(name) if as_given else self._expanded(self.line(name), known, absent)
            self._whole[key] = expression
        return expression

    def _expanded(self, line: ProgramLine, known: frozenset[str], absent: tuple[str, ...]) -> Expression:
        """Return a line in what is known; that is taken in the dtype that it has."""
        before = {name: own for name, own in self._before[line].items() if name not in known}
        of = without(line.of, *absent) if line.of.names.intersection(absent) else line.of
        if line.dtype in HALF:  # other memory is as wide
            dtypes = {name: own.dtype for name, own in before.items() if own.dtype and not line.is_mixed}
            of = in_dtype(of, line.dtype, dtypes)
        return placed(of, {name: self._expanded(own, known, absent) for name, own in before.items()})

    def readings(self, known: Mapping[str, Term], absent: Collection[str] = ()) -> list[ReadLine]:
        """Return the lines as read for one element, without known numbers and bounds that change nothing.

        Args:
            known: what the program starts from, and other numbers that are known.
            absent: names of numbers that are absent, so that nothing is added or subtracted.
        """
        terms = {**self._constant_terms, **known}
        found, of_elements = [], {"x", "q"}
        for line in self.lines:
            if line.name in known and line.name not in self.given:
                continue
            of = without(line.of, *absent) if line.of.names.intersection(absent) else line.of
            read = terms if line.dtype != torch.float64 else {one: _wide(terms[one]) for one in of.names}
            term = Element(read.__getitem__).of(of)
            value = term.value
            if line.dtype in HALF and not (isinstance(of, Name) and of.name in self.given):
                narrow = to(line.dtype).on_numbers
                value = narrow(Element(terms.__getitem__, narrow=narrow).of(of).value)
            if isinstance(of, Where | Name) or (isinstance(of, Applied) and of.operation in _BOUNDS):
                (operand,) = of.names
                if text_of(value) == text_of(terms[operand].value):
                    terms[line.name] = terms[operand]
                    continue
            found.append(ReadLine(line, term, value))
            names, numbers = Text(line.name, PRODUCT if "/" in line.name else ATOM), of_number(value)
            if of.names & of_elements:  # it is written as it is computed, and begins the next line
                of_elements = of_elements | {line.name}
                names, numbers = (
                    Text(term.names.text, LOOSE if line.name in self.given else term.names.binds),
                    Text(numbers.text),
                )
            terms[line.name] = Term(names, numbers, names, value)
        return found

    def _compiled(self, wanted: tuple[str, ...], numbers: tuple[str, ...], given: torch.dtype) -> _Steps:
        dtypes, steps = dict.fromkeys(numbers, given), []
        lines, kept = self.needed(wanted, set(numbers) - set(self.given)), set(wanted) | set(self.constants)
        for at, line in enumerate(lines):
            of = line.of
            if line.dtype is not None:
                of = in_dtype(of, line.dtype, {} if line.is_mixed else dtypes)
            later = set().union(*(one.of.names for one in lines[at + 1 :]))
            steps.append((line.name, step_of(of), tuple(line.of.names - later - kept - {line.name})))
            if line.dtype is not None:
                dtypes[line.name] = line.dtype
        return steps

    def read(
        self, name: str, known: _Known, start: _Known = lambda name: None, line: ProgramLine | None = None
    ) -> Term:
        """Return the result of a name for one block: as it is written, and as a number.

        Args:
            known: returns a number as it is at the end, by name, or None; what is not known is written in its
                place.
            start: returns what the program starts from.
            line: the line that binds the name, if not the last one.
        """
        line = line or self.line(name)
        kind = None if line.dtype is None else _ON_NUMBERS.get(line.dtype)

        def term(other: str) -> Term:
            found = None if other == name else known(other)
            if found is None:
                own = self._before[line].get(other)
                found = start(other) if own is None else self.read(other, known, start, own)
            assert found is not None, other
            if kind is None or isinstance(found.value, kind | int):
                return found
            return replace(found, value=kind(found.value))

        found = Element(term).of(line.of)
        if line.dtype in HALF:
            found = replace(found, value=Element(term).of(in_dtype(line.of, line.dtype, {})).value)
        return found
