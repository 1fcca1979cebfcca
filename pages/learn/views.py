"""What lessons show about a quantized tensor: maps, the arithmetic of one element, key figures."""

import dataclasses
import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.learn import frame
from pages.maps import arithmetic, component
from pages.maps.arithmetic import ElementArithmetic
from pages.maps.picture import Picture
from pages.maps.places import read_element
from pages.shared import charts, messages, tables
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.large import is_large
from pages.shared.state import selection
from pages.shared.state.selection import PageTensor
from pages.sidebar import unsupported
from quantcore.analysis import View
from quantcore.wording import signed

# px left below maps: for the edge of the page, and for a caption, which is larger in large mode
BELOW, CAPTION, CAPTION_LARGE = 26, 26, 82
PLOT_OPTIONS: dict[str, Any] = {"theme": None, "height": "stretch", "config": {"displayModeBar": False}}


def your_scheme() -> qc.Scheme | None:
    """Return the visitor's scheme, for a practice tensor; None if it is invalid, which a message says."""
    chosen = selection.get()
    if chosen.scheme is None:
        for problem in chosen.problems:
            messages.error(problem)
    return chosen.scheme


def yours() -> tuple[PageTensor, qc.Scheme] | None:
    """Return the visitor's tensor and scheme; None if one is missing, which a message then explains."""
    chosen = selection.get()
    for problem in chosen.problems:
        messages.error(problem)
    if chosen.hint:
        messages.hint(chosen.hint)
    if chosen.tensor is None or chosen.scheme is None:
        return None
    known = unsupported.result(chosen.tensor, chosen.scheme)
    return None if known is None else (chosen.tensor, chosen.scheme)


def side_by_side(widths: tuple[float, float] = (2, 3)) -> tuple[DeltaGenerator, DeltaGenerator]:
    """Return the places for a step's text and controls, and for its figure; ``widths``: relative."""
    columns = st.columns(widths, gap="medium")
    return columns[0].container(key="lesson_control"), columns[1].container(key="lesson_picture")


def for_maps(words: float = 3) -> tuple[float, float]:
    """Return widths for `side_by_side` that fit four maps two by two; in large mode ``words`` to 7."""
    return (words, 7) if is_large() else (2, 3)


def explore(
    name: str,
    tensor: PageTensor,
    scheme: qc.Scheme,
    words: DeltaGenerator,
    picture: DeltaGenerator,
    default: tuple[int, ...] | None = None,
    zero_point: bool = True,
) -> None:
    """Draw the maps, and next to them the arithmetic of one element, chosen by a click.

    Args:
        name: of the lesson; the element is bound to the key ``learn_<name>_cell``.
        words, picture: the places from `side_by_side`.
        default: the initial element, instead of the one with the largest error.
        zero_point: as in `lines`.
    """
    result, report = cache.result(tensor, scheme), cache.report(tensor, scheme)
    key = f"learn_{name}_cell"
    worst = arithmetic.worst_of(report, tensor.shape)
    first = worst if default is None else default
    with words:
        typed = st.container(key="lesson_element").text_input(
            "Element",
            key=key,
            placeholder=", ".join(map(str, first)),
            help="The element whose arithmetic is shown: click a cell, or type its index. Empty: "
            + ("the one with the largest error." if default is None else "the one asked for."),
            bind="query-params",
        )
        shown = arithmetic.of(tensor, scheme, _chosen(typed, tensor.shape, first))
        trace = shown.trace
        st.markdown(f"**{shown.heading}**")
        own = {what: values[trace.block].item() for what, values in qc.encoding(result).items()}
        library = result.scheme.convention.library
        formula(
            *lines(trace, zero_point=zero_point),
            *(f"{what:<14} {value:.7g}, as {library} reports it" for what, value in own.items()),
            narrow=True,
        )
    with picture:
        draw_maps(f"learn_{name}_maps", tensor, scheme, shown, key)


def draw_maps(
    key: str, tensor: PageTensor, scheme: qc.Scheme, shown: ElementArithmetic, pick_into: str
) -> None:
    """Draw the four maps of a tensor's first plane; a click writes the element to the key ``pick_into``."""
    view = View()
    data = cache.drawn(tensor, scheme, view)
    picture = Picture(
        cache.result(tensor, scheme),
        data,
        view,
        identity=tensor.key,
        element=shown.trace.index,
        borders=True,
        numbers=True,
        theme=theme(),
        beneath=BELOW + bool(data.legend) * (CAPTION_LARGE if is_large() else CAPTION),
        arithmetic=shown,
        grey=tensor.is_image,
    )

    def picked(found: tuple[int, ...]) -> None:
        st.session_state[pick_into] = ", ".join(map(str, found))

    component.four_maps(picture, key=key, on_pick=picked)


def figure(chart: go.Figure, key: str) -> None:
    """Draw a lesson's figure, named by its question; it takes the height that the window leaves it."""
    place_of_figure().plotly_chart(charts.named(chart, frame.asked()), key=key, **PLOT_OPTIONS)


def place_of_figure() -> DeltaGenerator:
    """Return a place for a figure that may change: draw it with the options `PLOT_OPTIONS`."""
    return st.container(key="lesson_chart")


def figures(*shown: tuple[str, str]) -> None:
    """Draw key figures side by side, each with label and value."""
    st.html(written_figures(*shown))


def written_figures(*shown: tuple[str, str]) -> str:
    """Return `figures` as HTML."""
    shown = tuple((label, "not defined" if value.startswith("nan") else value) for label, value in shown)
    cells = "".join(f"<div><small>{html.escape(a)}</small><b>{html.escape(b)}</b></div>" for a, b in shown)
    return f'<div class="qs-figures">{cells}</div>'


def table(rows: Sequence[dict[str, str]], key: str = "", *, fill: bool = True) -> None:
    """Draw a table of few rows; without a figure beside it, it takes the height that is left.

    Args:
        key: tells two tables of a step apart.
        fill: whether it does so; else other tables stand above it.
    """
    name = f"lesson_fill_{len(rows)}" if fill else "lesson_table"
    with st.container(key=f"{name}{key and '_'}{key}"):
        st.table(tables.headed(rows))


NO_ZERO_POINT = {"zero point z": "code of 0", "+ z": "+ code of 0"}  # before its lesson names it


def lines(t: qc.Trace, first: str = "", last: str = "", zero_point: bool = True) -> list[str]:
    """Write an element's arithmetic as lines, from step ``first`` to the next whose name begins ``last``.

    Args:
        zero_point: whether it is known already; if not, a zero point of 0 is left out, and another one is
            called what it is, the code of 0.
    """
    steps = t.steps()
    if not zero_point:
        steps = [
            dataclasses.replace(step, name=NO_ZERO_POINT.get(step.name, step.name))
            for step in steps
            if t.zero_point or step.name not in NO_ZERO_POINT
        ]
    names = [step.name for step in steps]
    start = names.index(first) if first else 0
    stop = next(i for i, name in enumerate(names) if name.startswith(last)) + 1 if last else len(steps)
    return [arithmetic.line(step) for step in steps[start:stop]]


def formula(*lines: str, narrow: bool = False) -> None:
    """Draw arithmetic with its numbers; a line that is too long continues, indented, on the next.

    Args:
        narrow: for a narrow place, where the formulas are not aligned, but their names are dimmed.
    """
    st.html(written_formula(*lines, narrow=narrow))


def written_formula(*lines: str, narrow: bool = False) -> str:
    """Return `formula` as HTML."""
    signs = map(signed, lines)
    parts = [arithmetic.parted(line) if narrow else ("", line) for line in signs]
    named = [(name and f"<i>{html.escape(name)}</i> ", html.escape(rest)) for name, rest in parts]
    rows = "\n".join(f"<span>{name}{rest}</span>" for name, rest in named)
    return f'<pre class="qs-lines {"qs-narrow " * narrow}{arithmetic.PLACE}">{rows}</pre>'


def _chosen(typed: str, shape: tuple[int, ...], first: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return read_element(typed, shape) or first
    except qc.QuantError as error:
        messages.warning(f"{error} Element {first} is shown instead.")
        return first
