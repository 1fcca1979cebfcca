"""The lecturer's own questions: about the tensor and scheme in the sidebar."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import parse_qsl, urlencode, urlsplit

import streamlit as st

import quantcore as qc
from pages.learn import views
from pages.learn.classroom.controls import ASKED, ELEMENT, ClassAccess, press
from pages.learn.classroom.questions import ask_about
from pages.maps.places import read_element
from pages.serving import classroom
from pages.serving.classroom import ClassStep
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import choice, link
from pages.sidebar import sidebar
from quantcore import prediction

MOST_LINK = 8000  # characters of a link that a question keeps
MINUTES = 3  # for a question


def own_question(mine: ClassAccess, steps: Sequence[ClassStep], place: int) -> None:
    """Draw the controls with which the teacher adds a question about the sidebar's tensor and scheme.

    Args:
        place: among the steps, where it is added.
    """
    names = {asked: f"{name.capitalize()}s" for asked, name in prediction.ASKED.items()}
    asked = choice.segmented("Ask for", ASKED, names)
    chosen = views.yours()
    if chosen is None:
        return
    tensor, scheme = chosen
    try:
        at = None
        if asked == "codes":
            typed = st.text_input(
                "Element",
                key=ELEMENT,
                bind="query-params",
                placeholder=", ".join("0" * len(tensor.shape)),
                help="The codes asked for are of elements in the block of this one",
            )
            at = read_element(typed, tensor.shape)
        query, note = _view(link.carries_all(tensor))
        question = ask_about(cache.result(tensor, scheme), asked, query, at)
    except qc.QuantError as error:
        messages.error(str(error))
        return
    st.markdown(f"**{messages.plain(question.prompt)}** {messages.plain(question.facts)}")
    st.markdown(messages.plain(", ".join(question.fields)))
    if note:
        st.caption(note)
    step = ClassStep("", MINUTES, question=question)
    added = partial(classroom.current().set_plan, mine.code, mine.key, [*steps[:place], step, *steps[place:]])
    there = any(question == other.question for other in steps)
    label = "In the plan already" if there else "Add to the plan"
    st.button(label, disabled=there, on_click=press, args=(added,))


def _view(is_whole: bool) -> tuple[str, str]:
    """Return page and query of the view in Explore, and why there is none."""
    carried = sidebar.KEYS | {link.TENSOR, link.FILE, link.DIGEST}
    query = urlencode([(k, v) for k, v in parse_qsl(urlsplit(link.address()).query) if k in carried])
    if is_whole and len(query) <= MOST_LINK:
        return f"?{query}", ""
    return (
        "",
        "What you download after class will have no link for it: this tensor's values are too many for one.",
    )
