"""What is found in pasted code."""

from dataclasses import dataclass, field

from quantcore.pasted.case import Case
from quantcore.pasted.kinds import CodeFinding
from quantcore.wording import count, joined


@dataclass(frozen=True)
class CodeReading:
    """``text``: the code without prompts; ``findings``: mistakes and notes, by line;
    ``recognized``: what was recognized and checked; ``unread``: what was not evaluated;
    ``library``: library calls that quantize; ``quantizers``: the quantizers, on the first ordinary tensors."""

    text: str
    findings: tuple[CodeFinding, ...]
    recognized: tuple[str, ...]
    unread: tuple[str, ...]
    library: tuple[str, ...] = ()
    quantizers: tuple[Case, ...] = field(default=(), compare=False, repr=False)

    @property
    def mistakes(self) -> tuple[CodeFinding, ...]:
        """The findings that are certainly mistakes."""
        return tuple(f for f in self.findings if f.certain)

    @property
    def notes(self) -> tuple[CodeFinding, ...]:
        """The findings that depend on the tensor, or on what the code does not show."""
        return tuple(f for f in self.findings if not f.certain)

    @property
    def summary(self) -> str:
        """One sentence on what was found; without mistakes, only what was checked."""
        if not self.quantizers and self.library:
            return f"This code leaves rounding and clamping to the library: {joined(self.library)}."
        if not self.quantizers and self.unread:
            return "No quantizer could be followed to its codes, because some lines are not evaluated."
        if not self.quantizers:
            return "No quantizer found: nothing here divides a tensor by a scale and rounds it."
        checked = "; ".join(self.recognized)
        if not self.mistakes:
            return f"No known mistake found in: {checked}."
        return f"{count(len(self.mistakes), 'mistake')} in {lines_of(self.mistakes)}. Checked: {checked}."


def lines_of(findings: tuple[CodeFinding, ...]) -> str:
    """The lines of findings: ``line 3``, ``lines 3, 5 and 6``."""
    lines = [str(line) for line in sorted({f.line for f in findings})]
    return f"line{'s' * (len(lines) > 1)} {joined(lines)}"
