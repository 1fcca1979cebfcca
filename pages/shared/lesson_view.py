"""What lessons show of a quantized tensor: the maps, the arithmetic of one element, the key figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

import quantcore as qc
from pages.shared import arithmetic, compute, current, lesson, maps, maps_view, refused, say
from pages.shared.current import Tensor
from quantcore import tensors
from quantcore.views import View, element

_BIND: dict[str, Any] = {"bind": "query-params"}


def own(key: str, values: Any) -> Tensor:
    """A lesson's own small tensor; ``key`` names its content."""
    x = np.asarray(values, np.float32)
    return Tensor(f"lesson {key}", key, x.shape, lambda: x)


def generated(spec: tensors.Generated) -> Tensor:
    """A lesson's own tensor by distribution and seed."""
    return Tensor(f"lesson {spec}", spec.distribution, spec.shape, lambda: tensors.generate(spec))


def yours() -> tuple[Tensor, qc.Scheme] | None:
    """The visitor's tensor and scheme; None where there is none, which is said."""
    chosen = current.get()
    for problem in chosen.problems:
        say.error(problem)
    if chosen.hint:
        say.hint(chosen.hint)
    if chosen.tensor is None or chosen.scheme is None:
        return None
    try:
        compute.result(chosen.tensor, chosen.scheme)
    except qc.QuantError as error:
        refused.show(error, chosen.tensor, chosen.scheme)
        return None
    return chosen.tensor, chosen.scheme


def explored(name: str, tensor: Tensor, scheme: qc.Scheme, default: tuple[int, ...] | None = None) -> None:
    """Draw the maps and the arithmetic of one element, which a click chooses.

    Args:
        name: the lesson's; the element is bound to the key ``learn_<name>_cell``.
        default: the element to begin with, instead of the worst.
    """
    result, report = compute.result(tensor, scheme), compute.report(tensor, scheme)
    key = f"learn_{name}_cell"
    place = st.container()
    worst = maps_view.worst_of(report, tensor.shape)
    first = worst if default is None else default
    with st.columns([1, 3])[0]:
        typed = st.text_input(
            "Element",
            key=key,
            placeholder=", ".join(map(str, first)),
            help="The element whose arithmetic is shown: click a cell, or type its index; empty: "
            + ("the worst." if default is None else "the one that was asked."),
            **_BIND,
        )
    index = _chosen(typed, tensor.shape, first)
    with place:
        four_maps(f"learn_{name}_maps", tensor, scheme, index, key)
    arithmetic.draw(result, index, index == report.max_abs_error_index)


def four_maps(
    key: str, tensor: Tensor, scheme: qc.Scheme, index: tuple[int, ...], pick_into: str | None = None
) -> None:
    """Draw the four maps of a tensor's first plane; a click is written to the key ``pick_into``."""
    view = View()
    picture = maps.Picture(
        compute.result(tensor, scheme),
        compute.drawn(tensor, scheme, view),
        view,
        identity=tensor.key,
        element=index,
        borders=True,
        numbers=True,
        theme=maps_view.theme(),
        large=lesson.is_large(),
        arithmetic=qc.trace(compute.result(tensor, scheme), index) if pick_into else None,
    )

    def picked(row: int, column: int) -> None:
        if pick_into:
            found = element(view, tensor.shape, row, column)
            st.session_state[pick_into] = ", ".join(map(str, found))

    maps.four_maps(picture, key=key, on_pick=picked, on_region=lambda rows, columns: None)
    if picture.data.legend:
        st.caption(picture.data.legend)


def figure(chart: go.Figure, key: str) -> None:
    """Draw a figure of a lesson."""
    st.plotly_chart(chart, theme=None, key=key, config={"displayModeBar": False})


def figures(*shown: tuple[str, str]) -> None:
    """Draw key figures in a row: label and value."""
    for column, (label, value) in zip(st.columns(max(4, len(shown))), shown, strict=False):
        column.metric(label, "not defined" if value.startswith("nan") else value)


def table(rows: Sequence[dict[str, str]]) -> None:
    """Draw a table of few rows, whose size follows the type."""
    st.table(rows)


def lines(t: qc.Trace, first: str = "", last: str = "") -> list[str]:
    """The arithmetic of an element as lines, from the step ``first`` to the one whose name begins as ``last``."""
    steps = t.steps()
    names = [step.name for step in steps]
    start = names.index(first) if first else 0
    stop = next(i for i, name in enumerate(names) if name.startswith(last)) + 1 if last else len(steps)
    return arithmetic.aligned(steps[start:stop])


def formula(*lines: str) -> None:
    """Draw arithmetic with its numbers put in."""
    say.lines(lines)


def _chosen(typed: str, shape: tuple[int, ...], first: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return maps_view.read_element(typed, shape) or first
    except qc.QuantError as error:
        say.warning(f"{error} Element {first} is shown instead.")
        return first
