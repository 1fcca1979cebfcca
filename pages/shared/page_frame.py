"""The frame of every page outside the lessons: title, link, errors of the sidebar."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import cards, messages
from pages.shared.state import selection, sharing
from pages.shared.state.selection import Current

_AT_END, _NOTES = "_frame_at_end", "_frame_notes"


def at_end(do: Callable[[], None]) -> None:
    """Call ``do`` when the page of this run has been drawn, for example to show how much work that took."""
    st.session_state.setdefault(_AT_END, []).append(do)


def note_on_link(sentence: str) -> None:
    """Add a sentence next to this run's link on what it does not carry; for controls, which have no frame."""
    st.session_state.setdefault(_NOTES, []).append(sentence)


@dataclass(frozen=True)
class Frame:
    """What a page gets from its frame.

    Attributes:
        chosen: tensor and scheme of the sidebar.
        notes: a container below the title; messages in it do not shift the identity of elements below.
        link_notes: sentences about what the link does not carry, to which the page adds its own.
    """

    chosen: Current
    notes: DeltaGenerator
    link_notes: list[str] = field(default_factory=list)


@contextmanager
def page_frame(
    title: str = "",
    caption: str = "",
    *,
    top: Callable[[Current], DeltaGenerator] | None = None,
    problems: Iterable[str] = (),
) -> Iterator[Frame]:
    """Draw title and errors above a page and, once its widgets have been drawn, the link.

    A QuantError that the page does not catch is shown where the page stopped.

    Args:
        top: draws the page's own top instead of title and caption, and returns the place of the link.
        problems: errors besides those of the sidebar; empty strings are ignored.
    """
    chosen = selection.get()
    st.session_state[_AT_END], st.session_state[_NOTES] = [], []
    place = _titled(title, caption) if top is None else top(chosen)
    popover = place.popover("Link", icon=":material/link:", width="stretch")
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
    with popover:
        sharing.draw(chosen.tensor)
        for sentence in (*st.session_state.pop(_NOTES), *frame.link_notes):
            st.write(sentence)


def _titled(title: str, caption: str) -> DeltaGenerator:
    """Draw title and caption; return the place next to them."""
    left, right = st.columns([7, 1], vertical_alignment="center")
    left.title(title, anchor=False)
    if caption:
        left.caption(caption)
    return right
