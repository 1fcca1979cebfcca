"""What steers a class: the links to it, the presenter's presses, planned questions and the teacher's own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

import streamlit as st

from pages.learn.classroom.results import results
from pages.learn.classroom.views import pages
from pages.serving import classroom
from pages.serving.classroom import Board, ClassError, ClassStep, Round, Tally
from pages.shared import messages
from pages.shared.state import link

MINE, ASKED, ELEMENT, CHOICES = "class_mine", "class_asked", "class_element", "class_choices"
STEPS = "class_steps"  # parameter of the address: a plan
FREE_TEXT = {link.PRESENTER, link.PROJECTOR, ELEMENT, STEPS}
KEYS = {MINE, ASKED, CHOICES, *FREE_TEXT}
_PRESENTED, _PROBLEM = "_class_presented", "_class_problem"
LABELS: dict[classroom.Act, str] = {
    "lock": "Show the answers",
    "revote": "Vote again",
    "reveal": "Reveal what is right",
}
MOST_RIGHT = 0.7  # above it there is little left to talk about (Crouch and Mazur 2001)


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


def begin(steps: Sequence[ClassStep]) -> None:
    """Begin a class with these steps (for `press`)."""
    code, secret = classroom.begin(st.context.ip_address or "", steps)
    _present(code, secret)


def regain(code: str, chosen: str) -> None:
    """Present the class with this code and word (for `press`)."""
    code = classroom.code_of(code)
    if not code:
        raise ClassError(404, "A class's code has 8 letters and digits; check it.")
    _present(code, classroom.regain(st.context.ip_address or "", code, chosen))


def _present(code: str, secret: str) -> None:
    st.session_state[_PRESENTED] = f"{code}.{secret}"
    link.write(link.PRESENTER, None)  # of a class that has ended
    link.write(STEPS, None)


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
    """Show why the last press did nothing.

    The place stays where there is no problem: what follows would move, and an open expander close.
    """
    place = st.empty()
    if _PROBLEM in st.session_state:
        messages.error(st.session_state.pop(_PROBLEM), place)


def address() -> str:
    """Return the address of the app, with its slash."""
    parts = urlsplit(st.context.url or "")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rpartition('/')[0]}/"


def forward(
    mine: ClassAccess, board: Board, votes: Sequence[Tally], chosen: ClassStep | None
) -> tuple[str, Callable[[], object] | None]:
    """Return the label of Next and what it does.

    After a first vote it shows the answers without the right one. If most have it right, it then reveals it;
    else it asks again, and reveals both votes. What explains the answers follows page by page, and then the
    step ``chosen``.
    """
    classes, shown, (code, secret, _) = classroom.current(), board.shown, mine
    if votes and _is_current(board, votes) and votes[-1].round.phase != "revealed":
        act = following_act(votes[-1].round, votes[-1])
        return LABELS[act], partial(classes.steer, code, secret, act, board.turn)
    if shown and votes and board.page + 1 < (many := pages(votes)):
        label = f"Why: page {board.page + 1} of {many - 1}"
        return label, partial(classes.go, code, secret, shown.id, board.page + 1, board.turn)
    if chosen is None:
        return "No further step", None
    label = "Ask the question" if chosen.question else "Show the view" if chosen.view else "Show the text"
    return label, partial(classes.go, code, secret, chosen.id, 0, board.turn)


def backward(
    mine: ClassAccess, board: Board, votes: Sequence[Tally], steps: Sequence[ClassStep]
) -> Callable[[], object] | None:
    """Return what Previous does: a page of explanations back, else a step; phones stay where they are."""
    if board.shown is None:
        return None
    page = board.page - 1 if votes else -1
    at, index = board.shown.id, [step.id for step in steps].index(board.shown.id)
    if page < 0:
        at, page = steps[index - 1].id if index else "", 0
    return partial(classroom.current().go, mine.code, mine.key, at, page, board.turn)


def _is_current(board: Board, votes: Sequence[Tally]) -> bool:
    """Tell whether the projector shows the question that phones are asked."""
    return board.current is not None and board.current.number == votes[-1].round.number


def following_act(now: Round, votes: Tally) -> classroom.Act:
    """Return what follows in the order of peer instruction: vote, see the answers, talk, vote, see why."""
    if now.vote > 1:
        return "reveal"
    if now.phase == "open":
        return "lock"
    shares = [result.fraction_right for result in results(votes)]
    return "reveal" if not votes.answered or min(shares) > MOST_RIGHT else "revote"


def following(board: Board, steps: Sequence[ClassStep]) -> int:
    """Return the index of the step after the one on the projector; 0 before the first."""
    if board.shown is None:
        return 0
    return [step.id for step in steps].index(board.shown.id) + 1
