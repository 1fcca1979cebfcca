"""The lecturer's own questions: about the tensor and scheme in the sidebar."""

from collections.abc import Sequence
from functools import partial
from urllib.parse import parse_qsl, urlencode, urlsplit

import streamlit as st

import quantcore as qc
from pages.learn import views
from pages.learn.classroom.controls import ASKED, CHOICES, ELEMENT, ClassAccess, press
from pages.learn.classroom.questions import as_choice, ask_about
from pages.maps.places import read_element
from pages.serving import classroom
from pages.serving.classroom import ClassStep, Question
from pages.serving.classroom.words import KINDS
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.state import choice, link
from pages.sidebar import sidebar
from quantcore import prediction
from quantcore.mistakes import MISTAKES

MOST_LINK = 8000  # characters of a link that a question keeps
MINUTES = 3  # for a question


def own_question(mine: ClassAccess, steps: Sequence[ClassStep], place: int) -> None:
    """Draw the controls with which the teacher adds a question about the sidebar's tensor and scheme.

    Args:
        place: among the steps, where it is added.
    """
    names = {asked: name.capitalize() + "s" * (asked != "bits") for asked, name in prediction.ASKED.items()}
    asked = choice.selectbox("Ask for", ASKED, names)
    chosen = views.yours()
    if chosen is None:
        return
    tensor, scheme = chosen
    try:
        places = _elements(tensor.shape) if asked in ("codes", "dequantized", "error") else []
        query, note = _view(link.carries_all(tensor))
        question = ask_about(cache.result(tensor, scheme), asked, query, places=places)
        hint = "The right number, and those that known mistakes give; for one number"
        if st.toggle("Multiple choice", key=CHOICES, bind="query-params", help=hint):
            question = as_choice(question)
    except qc.QuantError as error:
        messages.error(str(error))
        return
    st.markdown(f"**{messages.plain(question.prompt)}** {messages.plain(question.facts)}")
    st.markdown(messages.plain(", ".join(question.choices or question.fields)))
    st.caption(messages.plain(_told_apart(question)))
    if note:
        st.caption(note)
    step = ClassStep("", MINUTES, question=question)
    added = partial(classroom.current().set_plan, mine.code, mine.key, [*steps[:place], step, *steps[place:]])
    there = any(question == other.question for other in steps)
    label = "In the plan already" if there else "Add to the plan"
    st.button(label, disabled=there, on_click=press, args=(added,))


def _elements(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Draw the field for the elements asked about, and return them."""
    ends = (", ".join(map(str, place)) for place in ([0] * len(shape), [size - 1 for size in shape]))
    typed = st.text_input(
        "Elements",
        key=ELEMENT,
        bind="query-params",
        placeholder="; ".join(ends),
        help="Separated by ; empty: those of the first block whose numbers tell most known mistakes apart",
    )
    found = (read_element(text, shape) for text in typed.split(";") if text.strip())
    return [place for place in found if place is not None]


def _told_apart(question: Question) -> str:
    """Write which known mistakes give another number than the right one, for each number asked for."""
    told = []
    for name, key in zip(question.fields, question.keys, strict=True):
        found = (MISTAKES[wrong.mistake].in_answers for wrong in key.wrong if wrong.mistake in MISTAKES)
        kinds = [KINDS[each.kind].en if each.kind in KINDS else each.kind for each in found if each]
        told.append(f"{name}: {', '.join(dict.fromkeys(kinds)) or 'none'}")
    return f"Mistakes that show in the answer. {'; '.join(told)}."


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
