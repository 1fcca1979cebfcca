"""A class that answers together: the presenter's page and, at the projector's link, what the class sees."""

from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import streamlit as st

from pages.browser import streamlit_dom
from pages.learn.classroom import controls, files, own, views
from pages.learn.classroom.controls import ClassAccess, press
from pages.serving import classroom
from pages.serving.classroom import Board, ClassError, Question
from pages.serving.network import is_loopback
from pages.shared import messages
from pages.shared.state import link, sharing

EVERY = 1.0  # seconds: Streamlit has no push
GONE = (403, 404)  # what is answered where there is no class, or none that this key opens
HELP: dict[classroom.Act, str] = {
    "lock": "Shows every answer, but not which one is right; phones can't change theirs",
    "open": "Hides the answers again, and phones can change theirs",
    "reveal": "Shows what is right, and why, here and on the phones",
    "revote": "Asks the same question again and keeps the answers so far: both votes are shown",
    "reset": "Asks the question again and deletes its answers",
}
BESIDE: dict[classroom.Act, str] = {
    "lock": "Answers",
    "open": "Open again",
    "reveal": "Reveal",
    "revote": "Revote",
    "reset": "Reset",
}
CLOSED = {"lock", "reveal"}  # for answers that are revealed
PROJECTED = "html{font-size:clamp(18px,1.4vw,32px) !important}"  # as in large mode
CSS = streamlit_dom.read(Path(__file__).parent / "class.css")


def start() -> None:
    """Draw what a class is, and the button that begins one."""
    st.markdown("# Class: everyone predicts on a phone, then sees why")
    left, right = st.columns([2, 3], gap="medium")
    with left:
        _offer()
    with right:
        st.caption(
            "An example: what a class sees of 24 answers. They are invented; the numbers and reasons are "
            "computed."
        )
        st.html(views.example(controls.questions()[0]))


def _offer() -> None:
    st.markdown(
        "- Students join on their phones by a QR code or a short code, without an account or a name, and "
        "answer one question at a time: which codes, scales or zero points does this tensor get?\n- The "
        "projector shows the question and how many have answered, then every answer: how many gave it, and "
        "the known mistakes that give exactly this number.\n- Begin with the questions of the lessons, and "
        "add your own about any tensor and scheme.\n- Vote, see the answers without the right one, talk, "
        "vote again: then it is revealed, and both votes are shown side by side."
    )
    try:
        classroom.check()
    except ClassError as error:
        messages.error(str(error))
        return
    controls.show_problem()
    st.button("Begin a class", type="primary", key="class_begin", on_click=press, args=(controls.begin,))
    st.caption(
        "Students who predict before a demonstration understand it better than those who only watch (Crouch "
        "et al. 2004, American Journal of Physics 72, 835; Miller et al. 2013, Physical Review ST Physics "
        "Education Research 9, 020113). Only answers are kept, without names or addresses, until the class "
        "ends: when you end it, after two hours without use, or after a day at most."
    )


@st.fragment(run_every=EVERY)
def show(mine: ClassAccess, drawn: Board | None = None, peek: bool = False) -> None:
    """Draw what the class sees, or the presenter, and keep it up to date.

    Args:
        drawn: for the presenter: where another window has steered further, the whole page is drawn again.
        peek: whether the presenter sees answers before they are revealed.
    """
    try:
        board = classroom.current().board(mine.code, mine.key)
        votes = classroom.current().tallies(mine.code, mine.key, board.shown)
    except ClassError as error:
        if drawn and error.status in GONE:
            st.rerun()
        messages.error(str(error))
        return
    if drawn and (board.current, board.shown) != (drawn.current, drawn.shown):
        st.rerun()
    join = "" if drawn else views.joining(mine.code, controls.address())
    st.html(views.scene(board, votes, join, peek, 2 if drawn else 1) if votes else views.waiting(board, join))


def head(mine: ClassAccess) -> None:
    """Draw the code, and what goes with the class as a whole."""
    title, more = st.columns([2, 5], vertical_alignment="center")
    title.markdown(f"# Class {views.spelled(mine.code)}")
    at, code = controls.address(), mine.code
    projector = urlencode({link.PROJECTOR: f"{code}.{classroom.viewing(mine.key)}"})
    with more.container(horizontal=True, horizontal_alignment="right", key="class_more"):
        st.link_button("Projector", f"{at}learn-class?{projector}", icon=":material/slideshow:",
                       help="Opens what the class sees; it can't steer the class")  # fmt: skip
        with st.popover("Join", icon=":material/qr_code_2:"):
            st.html(views.joining(code, at))
        with st.popover("Download", icon=":material/download:"):
            st.write("Questions, answers and links, for as long as the class lasts:")
            for name, write in (("csv", files.as_csv), ("html", files.as_html)):
                content = partial(written, mine, write, at)
                st.download_button(f"class.{name}", content, f"class-{code}.{name}", on_click="ignore")
        with st.popover("End", icon=":material/stop_circle:"):
            st.write("Ends the class for everyone and deletes its answers. Download them first.")
            st.button("End the class", key="class_end", on_click=press, args=(partial(controls.end, mine),))


def written(mine: ClassAccess, write: files.Writer, at: str) -> str:
    """Return a file of all answers so far."""
    return write(classroom.current().tallies(mine.code, mine.key), at)


def steer(mine: ClassAccess, board: Board, chosen: Question | None) -> None:
    """Draw the buttons that steer. Their keys name their round, so that a press too many finds none."""
    now, (code, secret, _), classes = board.current, mine, classroom.current()
    stands = f"{board.shown}_{now.number if now else 0}_{now.phase if now else ''}"
    with st.container(key="lesson_previous", width=120):
        back = partial(classes.look, code, secret, True, board.shown)
        st.button(
            "Previous",
            key=f"class_back_{stands}",
            on_click=press,
            args=(back,),
            disabled=board.shown <= board.first,
            help="Shows the answers to the previous question again; phones stay at this one",
            width="stretch",
        )
    with st.container(key="lesson_next", width=260):
        label, do = controls.forward(mine, board, chosen)
        st.button(
            label,
            key=f"class_next_{stands}",
            type="primary",
            on_click=press,
            args=(do,),
            disabled=do is None,
            width="stretch",
        )
    for act, label in BESIDE.items():
        if act == ("lock" if now and now.phase == "locked" else "open"):
            continue
        do = partial(classes.steer, code, secret, act, now.number if now else 0)
        off = now is None or board.shown != now.number or (now.phase == "revealed" and act in CLOSED)
        st.button(
            label, key=f"class_{act}_{stands}", on_click=press, args=(do,), disabled=off, help=HELP[act]
        )


def choose(mine: ClassAccess, board: Board, questions: list[Question]) -> Question | None:
    """Draw the choice of the next question; return it, None if there is no further one."""
    after = controls.following(board, questions)
    index = st.selectbox(
        "Next question",
        range(len(questions)),
        index=after if after < len(questions) else None,
        format_func=lambda i: f"{i + 1} of {len(questions)} · {questions[i].prompt} {questions[i].facts}",
        key=f"class_choice_{board.current.number if board.current else 0}_{len(questions)}",
        placeholder="No further question: choose one, or add your own",
    )
    if index is None:
        return None
    rest = [question for i, question in enumerate(questions) if i != index]
    less = partial(classroom.current().set_plan, mine.code, mine.key, rest)
    key = f"class_remove_{index}_{len(questions)}"
    st.button("Remove", key=key, on_click=press, args=(less,), help="From the list of questions")
    return questions[index]


def present(mine: ClassAccess) -> None:
    """Draw the presenter's page."""
    store = classroom.current()
    board, questions = store.board(mine.code, mine.key), store.plan(mine.code, mine.key)
    head(mine)
    controls.show_problem()
    if is_loopback(urlsplit(st.context.url or "").hostname or ""):
        messages.warning(
            "Phones can't reach this address: open this page at the machine's own name or address."
        )
    steering = st.container(horizontal=True, key="class_steer")
    left, right = st.columns([2, 3], gap="medium")
    with left:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            chosen = choose(mine, board, questions)
        peek = st.toggle("Show me the answers before they are revealed", key="class_peek")
        st.caption(
            "Keys and clickers: →, PageDown and Space press the blue button, ← and PageUp Previous. Each "
            "browser has one answer to a question, but a private window can vote twice. Only this window's "
            "address steers the class; Link leaves it out."
        )
        hint = "About the tensor and scheme in the sidebar, which are those of the other pages"
        if st.toggle("Add a question about my tensor", key=controls.MINE, bind="query-params", help=hint):
            own.own_question(mine, questions)
    with right:
        show(mine, board, peek)
    with steering:
        steer(mine, board, chosen)


st.html(f"<style>{CSS}</style>")
mine = controls.opened()
try:
    if mine is None:
        start()
    elif mine.steers:
        sharing.note(
            "The link leaves out your class: students join at its code, and only this window's address "
            "steers it."
        )
        present(mine)
    else:
        sharing.note(
            "The link leaves out the class: its answers can be seen only at the projector's own address."
        )
        st.html(f"<style>{PROJECTED}</style>")
        with st.container(key="class_projected"):
            show(mine)
except ClassError as error:
    messages.error(str(error))
    if error.status in GONE:
        controls.forget()
        start()
