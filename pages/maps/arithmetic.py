"""The arithmetic of one element, from x to its error, as lines of text with the numbers filled in."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Any

import quantcore as qc
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state.selection import PageTensor
from quantcore.granularity import block_name

PLACE = (
    "qs-arithmetic"  # CSS class of the lines on the page; the maps show a copy when these are out of sight
)


@dataclass(frozen=True)
class ElementArithmetic:
    """The arithmetic of one element.

    Attributes:
        trace: its numbers.
        block: the name of its block.
        is_worst: whether it has the largest |error|.
        lines: its steps, one per line, preceded by the block's numbers as the library reports them, if any.
    """

    trace: qc.Trace
    block: str
    is_worst: bool
    lines: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The element and its block."""
        where = ", ".join(map(str, self.trace.index))
        worst = ", the largest |error|" if self.is_worst else ""
        return f"Arithmetic of element ({where}){worst}; scale of {self.block}"

    def content(self) -> dict[str, Any]:
        """Return heading and lines for the maps; ``at`` names the element there."""
        at = ",".join(map(str, self.trace.index))
        return {"at": at, "title": self.heading, "lines": self.lines}


def of(tensor: PageTensor, scheme: qc.Scheme, element: tuple[int, ...]) -> ElementArithmetic:
    """Return the arithmetic of an element of `cache.result`, computed once for everything that shows it."""
    return cache.cached_small(tensor, f"arithmetic {scheme} {element}", lambda: once(tensor, scheme, element))


def once(tensor: PageTensor, scheme: qc.Scheme, element: tuple[int, ...]) -> ElementArithmetic:
    """Do the same without keeping it: a pointer passes over hundreds, which would displace the results.

    Raises:
        QuantError: the element is not in the tensor.
    """
    result, worst = cache.result(tensor, scheme), cache.report(tensor, scheme).max_abs_error_index
    trace = qc.trace(result, element)
    block, lines = block_name(trace.bounds, tensor.shape), tuple(_lines(result, trace))
    return ElementArithmetic(trace, block, trace.index == worst, lines)


def _lines(result: qc.Quantized, trace: qc.Trace) -> list[str]:
    own = qc.encoding(result)
    if not own:
        return aligned(trace.steps())
    numbers = ", ".join(f"{what} {values[trace.block].item():.7g}" for what, values in own.items())
    return [f"as {result.scheme.convention.library} reports it: {numbers}", *aligned(trace.steps())]


def draw(shown: ElementArithmetic) -> None:
    """Show the arithmetic of an element."""
    messages.lines(shown.lines, PLACE, heading=shown.heading)


def aligned(steps: list[qc.Step]) -> list[str]:
    """Write steps as lines, with name, formula and value in aligned columns."""
    name, formula = (
        max(len(_wide(part)) for part in parts)
        for parts in zip(*((s.name, s.formula) for s in steps), strict=True)
    )
    return [f"{_pad(s.name, name)}  {_pad(s.formula, formula)}  {s.value}" for s in steps]


HANG = 15  # columns of a line before its formula


def line(step: qc.Step) -> str:
    """Write a step as one line without columns, ``name  formula = value``, for a narrow place."""
    term, words = re.fullmatch(r"(.*?)(, [a-z ]+)?", step.formula).groups(default="")  # type: ignore[union-attr]
    value = term if term == step.value else " = ".join(filter(None, [term, step.value]))
    return f"{_pad(step.name, HANG - 1)} {value}{words}"


def parted(text: str) -> tuple[str, str]:
    """Return the name in a `line`, and the rest."""
    place = next(i for i in range(len(text)) if len(_wide(text[:i])) == HANG)
    return text[:place].rstrip(), text[place:]


def _wide(text: str) -> str:
    """Return the text without zero-width characters such as the hat of x̂."""
    return "".join(c for c in text if not unicodedata.combining(c))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - len(_wide(text)))
