"""The arithmetic of one element, from x to its error, as lines of text with the numbers filled in."""

import unicodedata

import streamlit as st

import quantcore as qc
from pages.shared import messages
from quantcore.granularity import block_name

PLACE = (
    "qs-arithmetic"  # CSS class of the lines on the page; the maps show a copy when these are out of sight
)


def heading(result: qc.Quantized, trace: qc.Trace, is_worst: bool) -> str:
    """Name the element and its block."""
    where = f"element ({', '.join(map(str, trace.index))})" + (", the largest |error|" if is_worst else "")
    return f"Arithmetic of {where}; scale of {block_name(trace.bounds, tuple(result.x.shape))}"


def lines(result: qc.Quantized, trace: qc.Trace) -> list[str]:
    """The steps, one per line, after the block's numbers as the library reports them."""
    own = qc.encoding(result)
    if not own:
        return aligned(trace.steps())
    numbers = ", ".join(f"{what} {values[trace.block].item():.7g}" for what, values in own.items())
    return [f"as {result.scheme.convention.library} writes it: {numbers}", *aligned(trace.steps())]


def draw(result: qc.Quantized, element: tuple[int, ...], is_worst: bool) -> None:
    """Show the arithmetic of an element."""
    trace = qc.trace(result, element)
    st.markdown(f"**{heading(result, trace, is_worst)}**")
    messages.lines(lines(result, trace), PLACE)


def aligned(steps: list[qc.Step]) -> list[str]:
    """Steps as lines, with name, formula and value in aligned columns."""
    name, formula = (
        max(len(_wide(part)) for part in parts)
        for parts in zip(*((s.name, s.formula) for s in steps), strict=True)
    )
    return [f"{_pad(s.name, name)}  {_pad(s.formula, formula)}  {s.value}" for s in steps]


def _wide(text: str) -> str:
    """The text without zero-width characters such as the hat of x̂."""
    return "".join(c for c in text if not unicodedata.combining(c))


def _pad(text: str, width: int) -> str:
    return text + " " * (width - len(_wide(text)))
