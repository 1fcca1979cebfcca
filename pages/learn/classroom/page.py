"""A class that answers together: the presenter's page and, at the projector's link, what the class sees."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import streamlit as st

import quantcore as qc
from pages.browser import streamlit_dom
from pages.learn.classroom import controls, editor, files, own, plan, views
from pages.learn.classroom.controls import ClassAccess, press
from pages.serving import classroom
from pages.serving.classroom import Board, ClassError, ClassStep, Tally
from pages.shared import messages
from pages.shared.large import LARGE
from pages.shared.state import link, reach, sharing

_SEEN = "_class_seen"
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
    "lock": "Show",
    "open": "Open again",
    "reveal": "Reveal",
    "revote": "Revote",
    "reset": "Reset",
}
ENDED = (
    "This class is no longer open: it was ended, or nobody used it for two hours. Begin another one, or "
    "check the address."
)
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
        st.html(views.example(plan.questions()[1]))


def _offer() -> None:
    st.markdown(
        "- Students join on their phones by a QR code or a short code, without an account or a name, and "
        "answer one question at a time: which codes, scales or zero points does this tensor get?\n- The "
        "projector shows the question and how many have answered, then every answer: how many gave it, and "
        "the known mistakes that give exactly this number.\n- Begin with the plan for an hour, which asks "
        "before it shows: change its steps, add questions about any tensor, and keep it.\n- Vote, see the "
        "answers without the right one, talk, vote again: then it is revealed, and both votes are shown side "
        "by side."
    )
    try:
        classroom.check()
    except ClassError as error:
        messages.error(str(error))
        return
    controls.show_problem()
    place, more = st.container(), _brought()
    begin = partial(controls.begin, plan.steps() if more is None else more)
    label = "Begin a class" if more is None else f"Begin a class with these {len(more)} steps"
    place.button(label, type="primary", key="class_begin", on_click=press, args=(begin,))
    _reopen()
    st.caption(
        "Students who predict before a demonstration understand it better than those who only watch (Crouch "
        "et al. 2004, American Journal of Physics 72, 835; Miller et al. 2013, Physical Review ST Physics "
        "Education Research 9, 020113). Only answers are kept, without names or addresses, until the class "
        "ends: when you end it, after two hours without use, or after a day at most."
    )


def _brought() -> Sequence[ClassStep] | None:
    """Return the plan of the link or of a file that is opened here; None without one."""
    text = st.query_params.get(controls.STEPS)
    if text is not None:
        link.understand(controls.STEPS)
        try:
            return editor.unpacked(text)
        except qc.QuantError as error:
            messages.error(str(error))
    with st.expander("Open a plan that you kept"):
        return editor.upload("File of a plan", "class_file_first")


def _reopen() -> None:
    """Draw how a class is regained on another machine."""
    with st.expander("Get back a class that is open"), st.form("class_reopen", border=False):
        st.text_input("Code of the class", key="class_code_typed")
        st.text_input("Your word", type="password", key="class_word_typed")

        def regain() -> None:
            controls.regain(st.session_state["class_code_typed"], st.session_state["class_word_typed"])

        st.form_submit_button("Get it back", on_click=press, args=(regain,))


@st.fragment(run_every=EVERY)
def show(mine: ClassAccess, drawn: Board | None = None, peek: bool = False) -> None:
    """Draw what the class sees, or the presenter, and keep it up to date.

    Args:
        drawn: for the presenter: where another window has steered further, the whole page is drawn again.
        peek: whether the presenter sees answers before they are revealed.
    """
    try:
        board = classroom.current().board(mine.code, mine.key)
        votes = votes_on(mine, board)
    except ClassError as error:
        if error.status in GONE:
            _gone(drawn is None, error)
        _say(error)
        return
    if drawn and (board.current, board.turn) != (drawn.current, drawn.turn):
        st.rerun()
    level, join = (2, "") if drawn else (1, views.joining(mine.code, reach.for_phones(controls.address())))
    st.session_state[_SEEN] = True
    if votes:
        st.html(views.scene(board, votes, join, peek, level, board.page))
    elif board.shown is None:
        st.html(views.waiting(board, join))
    elif board.shown.view and not drawn:
        # an element in the place of another: with a container there, a browser once failed to set its content
        st.iframe(f"{controls.address()}{embedded(board.shown.view)}", height=600, alt=board.shown.title)
    else:
        st.html(views.text(board.shown, level))
        if board.shown.view:
            st.markdown(f"The projector shows [this view]({controls.address()}{board.shown.view}).")


def votes_on(mine: ClassAccess, board: Board) -> list[Tally]:
    """Return the votes on the question that the projector shows."""
    step = board.shown.id if board.shown else ""
    return classroom.current().tallies(mine.code, mine.key, step)


def embedded(view: str) -> str:
    """Return page and query of a view within the projector's page, in large type."""
    return f"{view}{'&' if '?' in view else '?'}{LARGE}=true&embed=true"


def _gone(is_projector: bool, error: ClassError) -> None:
    """Say farewell on a projector that has shown the class; else draw the page anew."""
    if not is_projector:
        st.rerun()
    if st.session_state.get(_SEEN):
        st.html(views.farewell())
        st.stop()


def _say(error: ClassError) -> None:
    messages.error(ENDED if error.status == GONE[1] else str(error))


def head(mine: ClassAccess, steps: list[ClassStep]) -> None:
    """Draw the code, and what goes with the class as a whole."""
    title, more = st.columns([2, 5], vertical_alignment="center")
    title.markdown(f"# Class {views.spelled(mine.code)}")
    at, code = controls.address(), mine.code
    projector = urlencode({link.PROJECTOR: f"{code}.{classroom.viewing(mine.key)}"})
    with more.container(horizontal=True, horizontal_alignment="right", key="class_more"):
        st.link_button("Projector", f"{at}learn-class?{projector}", icon=":material/slideshow:",
                       help="Opens what the class sees; it can't steer the class")  # fmt: skip
        with st.popover("Join", icon=":material/qr_code_2:"):
            st.html(views.joining(code, reach.for_phones(controls.address())))
        with st.popover("Plan", icon=":material/list_alt:"):
            editor.files(mine, steps)
        with st.popover("Answers", icon=":material/download:"):
            st.write("Questions, answers and links, for as long as the class lasts:")
            for name, write in (("csv", files.as_csv), ("html", files.as_html)):
                content = partial(written, mine, write, at)
                st.download_button(f"class.{name}", content, f"class-{code}.{name}", on_click="ignore")
        with st.popover("End", icon=":material/stop_circle:"):
            st.write("Ends the class for everyone and deletes its answers. Download them first.")
            st.button("End the class", key="class_end", on_click=press, args=(partial(controls.end, mine),))


def written(mine: ClassAccess, write: files.Writer, at: str) -> str:
    """Return a file of all answers so far."""
    store = classroom.current()
    return write(store.tallies(mine.code, mine.key), store.ballots(mine.code, mine.key), at)


def steer(
    mine: ClassAccess, board: Board, votes: list[Tally], steps: list[ClassStep], chosen: ClassStep | None
) -> None:
    """Draw the buttons that steer. Their keys name their turn, so that a press too many finds none."""
    now, (code, secret, _), classes = board.current, mine, classroom.current()
    with st.container(key="lesson_previous", width=120):
        back = controls.backward(mine, board, votes, steps)
        st.button(
            "Previous",
            key=f"class_back_{board.turn}",
            on_click=press,
            args=(back,),
            disabled=back is None,
            help="Shows the step before again; phones stay at the last question",
            width="stretch",
        )
    with st.container(key="lesson_next", width=230):
        label, do = controls.forward(mine, board, votes, chosen)
        st.button(
            label,
            key=f"class_next_{board.turn}",
            type="primary",
            on_click=press,
            args=(do,),
            disabled=do is None,
            width="stretch",
        )
    is_current = bool(now and votes and now.number == votes[-1].round.number)
    for act, label in BESIDE.items():
        if act == ("lock" if now and now.phase == "locked" else "open"):
            continue
        do = partial(classes.steer, code, secret, act, board.turn)
        off = not is_current or bool(now and now.phase == "revealed" and act in CLOSED)
        key = f"class_{act}_{board.turn}"
        st.button(label, key=key, on_click=press, args=(do,), disabled=off, help=HELP[act])
    _clock(steps, board)


def _clock(steps: list[ClassStep], board: Board) -> None:
    """Draw the minutes of the step, and the minute that it is."""
    index = controls.following(board, steps) - 1
    if index < 0:
        return
    begin, end = (sum(step.minutes for step in steps[:i]) for i in (index, index + 1))
    whole = sum(step.minutes for step in steps)
    st.html(
        f'<span class="qs-time">step {index + 1} of {len(steps)} · {begin}–{end} of {whole} min · <span '
        f'class="qs-clock" role="timer" title="Click to set the clock to minute {begin}" '
        f'data-begin="{begin}" data-end="{end}"></span></span>'
    )


def choose(board: Board, steps: list[ClassStep]) -> ClassStep | None:
    """Draw the choice of the next step; return it, None if there is no further one."""
    after = controls.following(board, steps)
    index = st.selectbox(
        "Next step",
        range(len(steps)),
        index=after if after < len(steps) else None,
        format_func=partial(editor.label, steps),
        key=f"class_choice_{board.turn}_{len(steps)}",
        placeholder="No further step: choose one, or add your own",
    )
    return None if index is None else steps[index]


def present(mine: ClassAccess) -> None:
    """Draw the presenter's page."""
    store = classroom.current()
    board, steps = store.board(mine.code, mine.key), store.plan(mine.code, mine.key)
    votes = votes_on(mine, board)
    head(mine, steps)
    controls.show_problem()
    reach.tell(f"{controls.address()}class", "Phones join at")
    steering = st.container(horizontal=True, key="class_steer", vertical_alignment="center")
    left, right = st.columns([2, 3], gap="medium")
    with left:
        chosen = choose(board, steps)
        peek = st.toggle("Show me the answers before they are revealed", key="class_peek")
        _prepare(mine, steps, controls.following(board, steps) - 1)
        st.caption(
            "Keys and clickers: →, PageDown and Space press the blue button, ← and PageUp Previous, also in "
            "the projector's window. Each browser has one answer to a question, but a private window can "
            "vote twice. Only this window's address controls the class; Link does not copy that part."
        )
    with right:
        show(mine, board, peek)
    with steering:
        steer(mine, board, votes, steps, chosen)


def _prepare(mine: ClassAccess, steps: list[ClassStep], start: int) -> None:
    """Draw what changes the plan."""
    place = start + 1
    if st.toggle("Edit the steps", key="class_edit"):
        place = editor.edit(mine, steps, max(start, 0)) + 1
    hint = "About the tensor and scheme in the sidebar, which are those of the other pages"
    if st.toggle("Add a question about my tensor", key=controls.MINE, bind="query-params", help=hint):
        own.own_question(mine, steps, place)


st.html(f"<style>{CSS}</style>")
mine = controls.opened()
try:
    if mine is None:
        start()
    elif mine.steers:
        sharing.note(
            "The link does not open your class: students join with its code, and only this window's address "
            "controls it."
        )
        present(mine)
    else:
        sharing.note(
            "The link does not open the class: its answers are shown only at the projector's own address."
        )
        st.html(f"<style>{PROJECTED}</style>")
        with st.container(key="class_projected"):
            show(mine)
except ClassError as error:
    _say(error)
    if error.status in GONE:
        controls.forget()
        start()
