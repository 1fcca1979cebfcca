"""What is found in a piece of code."""

from dataclasses import dataclass, field
from typing import NamedTuple

from quantcore.code_reading.quantizer import Quantizer
from quantcore.wording import count, joined


class Found(NamedTuple):
    """A finding before it is given its source: see `CodeFinding`."""

    kind: str
    line: int
    what: str
    fix: str
    certain: bool = True


@dataclass(frozen=True)
class CodeFinding:
    """A mistake, or a note on what depends on the tensor.

    ``kind``: its stable name, a key of `KINDS`; ``line``: from 1, and its ``source``; ``what``: what is wrong, with
    what was read; ``fix``: what to write; ``certain``: whether it is a mistake whatever else the code does, and
    not a note; ``lesson`` and ``step``: where it is explained, the step a key of `quantcore.mistakes.MISTAKES`
    in the lesson "mistakes"; ``quantizer``: the quantizer that it is in, to be shown on a tensor, if there is one.
    """

    kind: str
    line: int
    source: str
    what: str
    fix: str
    certain: bool
    lesson: str
    step: str
    quantizer: Quantizer | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class CodeReading:
    """``text``: the code as it was read, prompts taken off; ``findings``: by line, mistakes and notes;
    ``recognized``: what was recognized and checked; ``unread``: what was not;
    ``library``: calls of libraries that quantize by themselves; ``quantizers``: the quantizers."""

    text: str
    findings: tuple[CodeFinding, ...]
    recognized: tuple[str, ...]
    unread: tuple[str, ...]
    library: tuple[str, ...] = ()
    quantizers: tuple[Quantizer, ...] = field(default=(), compare=False, repr=False)

    @property
    def mistakes(self) -> tuple[CodeFinding, ...]:
        """The findings that are mistakes for certain."""
        return tuple(f for f in self.findings if f.certain)

    @property
    def notes(self) -> tuple[CodeFinding, ...]:
        """The findings that depend on the tensor, or on what the code does not show."""
        return tuple(f for f in self.findings if not f.certain)

    @property
    def summary(self) -> str:
        """What was found, in a sentence. A clean result says what was checked, and no more."""
        if not self.quantizers and self.library:
            return f"This code does not round itself: {' and '.join(self.library)} rounds and clamps inside the library."
        if not self.quantizers and self.unread:
            return "No quantizer could be followed to its codes, because some lines are not recognized."
        if not self.quantizers:
            return "No quantizer found: nothing here divides a tensor by a scale and rounds it."
        checked = "; ".join(self.recognized)
        if not self.mistakes:
            return f"No known mistake found in: {checked}."
        return f"{count(len(self.mistakes), 'mistake')} in {lines_of(self.mistakes)}. Checked: {checked}."


def lines_of(findings: tuple[CodeFinding, ...]) -> str:
    """Where findings are: ``line 3``, ``lines 3, 5 and 6``."""
    lines = [str(line) for line in sorted({f.line for f in findings})]
    return f"line{'s' * (len(lines) > 1)} {joined(lines)}"
