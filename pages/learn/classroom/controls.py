"""What steers a class: the links to it, the presenter's presses, planned questions and the teacher's own."""

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import streamlit as st

import quantcore as qc
from pages.learn import material
from pages.learn.classroom.questions import ask_about
from pages.learn.classroom.results import lesson_link, results
from pages.serving import classroom
from pages.serving.classroom import Board, ClassError, Question, Round, Tally
from pages.shared import messages
from pages.shared.state import link

MINE, ASKED, ELEMENT = "class_mine", "class_asked", "class_element"
FREE_TEXT = {link.PRESENTER, link.PROJECTOR, ELEMENT}
KEYS = {MINE, ASKED, *FREE_TEXT}
_PRESENTED, _PROBLEM = "_class_presented", "_class_problem"
LABELS: dict[classroom.Act, str] = {
    "lock": "Show the answers",
    "revote": "Vote again",
    "reveal": "Reveal what is right",
}
MOST_RIGHT = 0.7  # above it there is little left to talk about (Crouch and Mazur 2001)
SEED = 5  # of the practice tensors: with a scale of 1, dividing and multiplying by it would look the same


class ClassAccess(NamedTuple):
    """A class that is open: its code, and the presenter's secret or the projector's key."""

    code: str
    key: str
    steers: bool


def opened() -> ClassAccess | None:
    """Return the class in the address, else the one this session presents, put into the address again."""
    text = st.query_params.get(link.PROJECTOR)
    if text is not None:
        return _read(text, False)
    text = st.query_params.get(link.PRESENTER) or st.session_state.get(_PRESENTED)
    if text is None:
        return None
    st.session_state[_PRESENTED] = text
    link.write(link.PRESENTER, text)
    return _read(text, True)


def _read(text: str, steers: bool) -> ClassAccess:
    code, _, key = text[:100].partition(".")
    return ClassAccess(classroom.code_of(code), key, steers)


def begin() -> None:
    """Begin a class with the questions of the plan (for `press`)."""
    code, secret = classroom.begin(st.context.ip_address or "", questions())
    st.session_state[_PRESENTED] = f"{code}.{secret}"
    link.write(link.PRESENTER, None)  # of a class that has ended


def end(mine: ClassAccess) -> None:
    """End the class (for `press`)."""
    classroom.current().end(mine.code, mine.key)
    forget()


def forget() -> None:
    """Present no class any more."""
    st.session_state.pop(_PRESENTED, None)
    link.write(link.PRESENTER, None)


def press(do: Callable[[], object]) -> None:
    """Do what a press asks for (a callback); `show_problem` says why that is not possible."""
    try:
        do()
    except ClassError as error:
        st.session_state[_PROBLEM] = str(error)


def show_problem() -> None:
    """Show why the last press did nothing."""
    if _PROBLEM in st.session_state:
        messages.error(st.session_state.pop(_PROBLEM))


def address() -> str:
    """Return the address of the app, with its slash."""
    parts = urlsplit(st.context.url or "")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rpartition('/')[0]}/"


def forward(
    mine: ClassAccess, board: Board, chosen: Question | None
) -> tuple[str, Callable[[], object] | None]:
    """Return the label of Next and what it does.

    After a first vote it shows the answers without the right one. If most have it right, it then reveals it;
    else it asks again, and reveals both votes. Then it asks the question ``chosen``. Before that, it brings
    the projector back from an earlier round.
    """
    classes, now, (code, secret, _) = classroom.current(), board.current, mine
    if now and board.shown < now.number:
        return "Forward to the next answers", partial(classes.look, code, secret, False, board.shown)
    if now and now.phase != "revealed":
        act = following_act(now, classes.tallies(code, secret, now.number)[-1])
        return LABELS[act], partial(classes.steer, code, secret, act, now.number)
    if chosen is None:
        return "No further question", None
    label = "Ask the next question" if now else "Ask the first question"
    return label, partial(classes.ask, code, secret, chosen, now.number if now else 0)


def following_act(now: Round, votes: Tally) -> classroom.Act:
    """Return what follows in the order of peer instruction: vote, see the answers, talk, vote, see why."""
    if now.vote > 1:
        return "reveal"
    if now.phase == "open":
        return "lock"
    shares = [result.fraction_right for result in results(votes)]
    return "reveal" if not votes.answered or min(shares) > MOST_RIGHT else "revote"


def following(board: Board, questions: Sequence[Question]) -> int:
    """Return the index of the question after the current one; 0 before the first and if it left the list."""
    if board.current is None or board.current.question not in questions:
        return 0
    return questions.index(board.current.question) + 1


@functools.cache
def questions() -> tuple[Question, ...]:
    """Return the questions, in the order of the lessons' steps; each links to its step."""
    exercises = [(step, *material.exercise(SEED, qc.Scheme(qc.INT4), step)) for step in material.ASKED]
    seed = f"&learn_predict_seed={SEED}"
    return (
        _question("scale", "code", "codes", material.READINGS, "uint3 asymmetric fixed(0, 100)"),
        _question("zero_point", "asymmetric", "zero_point", material.RELU, "int4 asymmetric fixed(-1, 4.6)"),
        _question("granularity", "rows", "scale", material.OUTLIER_ROW, "int4 symmetric per_channel(0)"),
        *(_question("predict", step, step, x.load(), str(scheme), seed) for step, x, scheme in exercises),
    )


def _question(lesson: str, step: str, asked: str, x: Any, scheme: str, more: str = "") -> Question:
    result = qc.apply(np.asarray(x, np.float32), qc.Scheme.parse(scheme))
    return ask_about(result, asked, lesson_link(lesson, step) + more)
