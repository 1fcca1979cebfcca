"""What every page outside the lessons has around it: title, link, what is wrong with the sidebar's choices."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import quantcore as qc
from pages.shared import link, messages, selection
from pages.shared.selection import Current


@dataclass(frozen=True)
class Frame:
    """What a page gets from its frame.

    Attributes:
        chosen: what the sidebar's controls stand for.
        notes: under the title: what comes and goes there leaves the page below in its place.
        link_notes: sentences about what the link does not carry; the page adds its own.
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
    """Draw the top of a page and what is wrong so far; after the page, its link, which the widgets have filled by then.

    A QuantError that the page does not catch is shown where it ended.

    Args:
        top: draws a top of the page's own instead of title and caption, and returns the place of the link.
        problems: what is wrong besides the sidebar's choices; empty ones are left out.
    """
    chosen = selection.get()
    place = _titled(title, caption) if top is None else top(chosen)
    popover = place.popover("Link", icon=":material/link:", width="stretch")
    frame = Frame(chosen, st.container(gap="xxsmall"))
    for problem in filter(None, (*chosen.acting, *problems)):
        messages.error(problem, frame.notes)
    if chosen.hint and "tensor" in chosen.used:
        messages.hint(chosen.hint, frame.notes)
    try:
        yield frame
    except qc.QuantError as error:
        messages.error(str(error))
    with popover:
        link.draw(chosen.tensor)
        for sentence in frame.link_notes:
            st.write(sentence)


def _titled(title: str, caption: str) -> DeltaGenerator:
    """Draw title and caption; return the place beside them."""
    left, right = st.columns([7, 1], vertical_alignment="center")
    left.subheader(title, anchor=False)
    if caption:
        left.caption(caption)
    return right
