"""The exit codes of all commands, and how their help states them."""

import shutil
import textwrap
from collections.abc import Mapping, Sequence

from quantcore.interruption import INTERRUPTED

DONE, FOUND, REFUSED = 0, 1, 2
GENERAL = {
    DONE: "done, and nothing is wrong",
    FOUND: "done, and something is wrong or differs; each command says what",
    REFUSED: "not done: an argument or a file can't be used; one sentence on standard error says why",
}


def epilog(codes: Mapping[int, str], examples: Sequence[str]) -> str:
    """Return the end of a help text: what each exit code means, and examples."""
    meant = {**codes, INTERRUPTED: "interrupted by Ctrl+C"}
    lines = ["exit codes:", *(wrapped(meaning, f"  {code:<3}  ") for code, meaning in meant.items())]
    return "\n".join([*lines, "", "examples:", *(f"  {example}" for example in examples)]) + "\n"


def wrapped(text: str, before: str = "") -> str:
    """Return a text in lines that fit on the terminal, the first after ``before`` and the others below it."""
    width = min(100, shutil.get_terminal_size().columns - 2)
    return textwrap.fill(text, width, initial_indent=before, subsequent_indent=" " * len(before))
