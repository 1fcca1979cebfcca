"""What is found in pasted code: a usual mistake, with its line and its sentences about this case."""

from dataclasses import dataclass, field

from quantcore.mistakes import IN_SOURCE, MISTAKES


@dataclass(frozen=True)
class CodeFinding:
    """A mistake, or a note on something that depends on the tensor.

    ``mistake``: a key of `IN_SOURCE`; ``line``: counted from 1, with its ``source``; ``what``: what is wrong,
    with the values found in the code; ``fix``: what to write instead; ``certain``: True for a mistake, False
    for a note; ``quantizer``: the index of the quantizer it belongs to, if any; ``lesson``: the lesson and
    the step that explain it, "" for the first.
    """

    mistake: str
    line: int
    what: str
    fix: str
    certain: bool
    source: str = ""
    quantizer: int | None = field(default=None, compare=False)
    lesson: tuple[str, str] = ("mistakes", "")

    @property
    def kind(self) -> str:
        """What findings of it are called; those of two mistakes with one remedy are called alike."""
        return IN_SOURCE[self.mistake].kind or self.mistake.replace("_", "-")


def finding(mistake: str, line: int, certain: bool = True, /, **facts: str) -> CodeFinding:
    """Return the finding of a mistake, with its sentences about this case."""
    of = IN_SOURCE[mistake]
    what, fix = of.what.format(**facts), of.fix.format(**facts)
    lesson = MISTAKES[mistake].lesson or ("mistakes", "")
    return CodeFinding(mistake, line, what, fix, certain and of.certain, lesson=lesson)
