"""The frame of every page outside the lessons: title, errors of the sidebar."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import cards, charts, messages
from pages.shared.state import selection
from pages.shared.state.selection import Current

_AT_END = "_frame_at_end"


def at_end(do: Callable[[], None]) -> None:
    """Call ``do`` when the page of this run has been drawn, for example to show how much work that took."""
    st.session_state.setdefault(_AT_END, []).append(do)


@dataclass(frozen=True)
class Frame:
    """What a page gets from its frame.

    Attributes:
        chosen: tensor and scheme of the sidebar.
        notes: a container below the title; messages in it do not shift the identity of elements below.
    """

    chosen: Current
    notes: DeltaGenerator


@contextmanager
def page_frame(
    title: str = "",
    caption: str = "",
    *,
    top: Callable[[Current], None] | None = None,
    problems: Iterable[str] = (),
) -> Iterator[Frame]:
    """Draw title and errors above a page.

    A QuantError that the page does not catch is shown where the page stopped.

    Args:
        top: draws the page's own top instead of title and caption, with what the page shows (`small_print`).
        problems: errors besides those of the sidebar; empty strings are ignored.
    """
    chosen = selection.get()
    st.session_state[_AT_END] = []
    if top is not None:
        top(chosen)
    else:
        charts.small_print(chosen.words)
        st.title(title, anchor=False)
        if caption:
            st.caption(caption)
    frame = Frame(chosen, st.container(gap="xxsmall"))
    for problem in filter(None, (*chosen.acting, *problems)):
        messages.error(problem, frame.notes)
    if chosen.hint and "tensor" in chosen.used:
        messages.hint(chosen.hint, frame.notes)
        if chosen.cards:
            with frame.notes:
                cards.draw(chosen.cards)
    try:
        yield frame
    except qc.QuantError as error:
        messages.error(str(error))
    for do in st.session_state.pop(_AT_END):
        do()
