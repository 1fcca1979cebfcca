"""Charts of the pages outside the lessons: as they are, or enlarged for a projector."""

import html
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import plotly.graph_objects as go
import streamlit as st

from pages.shared.large import is_large
from quantcore import figures

T = TypeVar("T")
# Pictures are saved by a button of ours; a drag and a double click do what the others do, and more buttons
# would cover the axis title of a narrow chart
_SPARED = ["toImage", "zoomIn2d", "zoomOut2d", "autoScale2d"]
_OPTIONS: dict[str, Any] = {"theme": None, "config": {"modeBarButtonsToRemove": _SPARED}}


def theme() -> str:
    """Return the visitor's theme: "light" or "dark"."""
    return st.context.theme.type or "light"


def sized(figure: go.Figure) -> go.Figure:
    """Return the figure itself or, in large mode, a larger copy."""
    return figures.enlarged(figure) if is_large() else figure


def sized_data(figure: str) -> dict[str, Any]:
    """Return `sized` of a figure in JSON, as data for a component."""
    data: dict[str, Any] = json.loads(figure)
    return json.loads(str(sized(go.Figure(data)).to_json())) if is_large() else data


def named(figure: go.Figure, name: str) -> go.Figure:
    """Return the figure with what screen readers say of it, which pages/browser/picture.js hands to them.

    Args:
        name: what the figure shows; its axes and series follow.
    """
    told = figure.layout.meta or {}
    if "words" not in told:  # a cached figure has them
        figure.layout.meta = told | {"words": figures.described(figure, name)}
    return figure


def draw(figure: go.Figure, name: str, **options: Any) -> Any:
    """Draw a figure; ``options`` and result as for `st.plotly_chart`, ``name`` as for `named`.

    Its picture is saved by the button that all charts have (pages/browser/picture.js), not by Plotly's own.
    """
    return st.plotly_chart(sized(named(figure, name)), **_OPTIONS | options)


def clickable(
    figure: go.Figure, name: str, key: str, targets: Sequence[T], on_click: Callable[[T], None]
) -> None:
    """Draw a figure as `draw`; a click on a point with a number calls ``on_click`` with its target."""

    def clicked() -> None:
        for point in st.session_state[key]["selection"]["points"]:
            if "customdata" in point:
                on_click(targets[int(point["customdata"])])
                return

    draw(figure, name, key=key, on_select=clicked, selection_mode="points")


def small_print_attribute(words: str) -> str:
    """Return the attribute of an HTML element that the page draws in any case; a page's first one counts."""
    return f'data-shown="{html.escape(words)}"'


def small_print(words: str) -> None:
    """Draw an unseen element that has the attribute, on pages without another that could have it."""
    st.container(key="qs_small_print").html(f"<p {small_print_attribute(words)}></p>")
