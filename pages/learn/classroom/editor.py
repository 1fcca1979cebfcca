"""How a lecturer prepares a class: its steps are changed here, kept as a file or a link, and opened again."""

import base64
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

import quantcore as qc
from pages.learn.classroom import plan
from pages.learn.classroom.controls import STEPS, ClassAccess, address, press
from pages.serving import classroom
from pages.serving.classroom import ClassError, ClassStep, from_file, to_file, view_of
from pages.serving.classroom.step import with_ids
from pages.shared import messages
from pages.shared.curriculum import LESSONS, numbered

MOST_LINK = 8000  # characters of a plan in a link
MOST_UNPACKED = 2_000_000  # bytes
FIELDS = ("title", "minutes", "text", "view")
NEW = {"Text": ClassStep("New text", 2), "View": ClassStep("New view", 3, view="ranges?bits=4")}


def label(steps: Sequence[ClassStep], index: int) -> str:
    """Write a step as lists show it: its number, the minutes and the title."""
    step = steps[index]
    kind = "Question" if step.question else "View" if step.view else "Text"
    facts = f" {step.question.facts}" if step.question else ""
    return f"{index + 1} · {kind}, {step.minutes} min · {step.title}{facts}"


def edit(mine: ClassAccess, steps: list[ClassStep], start: int) -> int:
    """Draw the controls that change one step, which is chosen here; return its index.

    Args:
        start: the index of the step that is chosen first.
    """
    names = [step.id for step in steps]
    chosen = st.selectbox(
        "Step to edit",
        names,
        index=start if steps else None,
        format_func=lambda name: label(steps, names.index(name)),
        key="class_edited",
        placeholder="The plan has no steps: add one",
    )
    index = -1 if chosen is None else names.index(chosen)
    if index >= 0:
        _fields(mine, steps, index)
    with st.container(horizontal=True):
        st.caption("Add after it:")
        for name, step in NEW.items():
            do = partial(_add, mine, steps, index + 1, [step])
            st.button(name, key=f"class_add_{name}", on_click=press, args=(do,))
        with st.popover("Step of a lesson"):
            for part in plan.CHOICES:
                do = partial(_add, mine, steps, index + 1, plan.steps_of(part))
                title = f"{numbered(part.lesson)}: {LESSONS[part.lesson].steps[part.step].headline}"
                st.button(title, key=f"class_add_{part.lesson}", on_click=press, args=(do,), type="tertiary")
    return index


def _fields(mine: ClassAccess, steps: list[ClassStep], index: int) -> None:
    """Draw a step's fields, and the buttons that move and remove it."""
    step = steps[index]
    keys = {name: f"class_{name}_{step.id}" for name in FIELDS}
    with st.form(f"class_step_{step.id}", border=False):
        wide, narrow = st.columns([4, 1])
        if step.question:
            wide.markdown(f"**{messages.plain(step.title)}** {messages.plain(step.question.facts)}")
        else:
            wide.text_input("Title", step.title, key=keys["title"])
        narrow.number_input("Minutes", 0, None, step.minutes, key=keys["minutes"])
        if not step.question:
            st.text_area("Text", step.text, key=keys["text"], height=100)
            st.text_input(
                "View",
                step.view,
                key=keys["view"],
                help="A link to a page of this app, from Link in its header, which the projector shows; "
                "empty: it shows title and text.",
            )
        st.form_submit_button("Save", on_click=press, args=(partial(_save, mine, steps, index, keys),))
    with st.container(horizontal=True):
        for name, to in (("Up", index - 1), ("Down", index + 1)):
            moved = [each for each in steps if each is not step]
            moved.insert(to, step)
            off = not 0 <= to < len(steps)
            do = partial(_keep, mine, moved)
            st.button(name, key=f"class_{name}_{step.id}", on_click=press, args=(do,), disabled=off)
        rest = [each for each in steps if each is not step]
        st.button("Remove", key=f"class_remove_{step.id}", on_click=press, args=(partial(_keep, mine, rest),))


def _save(mine: ClassAccess, steps: list[ClassStep], index: int, keys: dict[str, str]) -> None:
    """Keep what the fields of a step hold (for `press`)."""
    found = {name: st.session_state[key] for name, key in keys.items() if key in st.session_state}
    if "view" in found:
        found["view"] = view_of(found["view"])
    _keep(mine, [*steps[:index], _checked(steps[index], found), *steps[index + 1 :]])


def _checked(step: ClassStep, found: dict[str, object]) -> ClassStep:
    try:
        return replace(step, **found)  # type: ignore[arg-type]
    except qc.QuantError as error:
        raise ClassError(400, str(error)) from None


def _add(mine: ClassAccess, steps: Sequence[ClassStep], index: int, new: Sequence[ClassStep]) -> None:
    """Keep the steps, with new ones from this index on, and show the first of these here."""
    named = with_ids([*steps[:index], *new, *steps[index:]])
    _keep(mine, named)
    st.session_state["class_edited"] = named[index].id


def _keep(mine: ClassAccess, steps: Sequence[ClassStep]) -> None:
    classroom.current().set_plan(mine.code, mine.key, steps)


def files(mine: ClassAccess, steps: Sequence[ClassStep]) -> None:
    """Draw how the plan is kept: as a file, as a link, and under a word."""
    st.write(f"{len(steps)} steps of {sum(step.minutes for step in steps)} minutes; keep them:")
    st.download_button(
        "plan.json", to_file(steps), "quantscope-plan.json", "application/json", on_click="ignore"
    )
    link = f"{address()}learn-class?{STEPS}={packed(steps)}"
    if len(link) <= MOST_LINK:
        st.code(link, language=None)
    else:
        st.caption(f"As a link it has {len(link):,} characters, more than {MOST_LINK:,}: send the file.")
    opened = upload("Replace the plan by a file", "class_file")
    if opened is not None:
        do = partial(_keep, mine, opened)
        st.button(f"Use its {len(opened)} steps", key="class_use", on_click=press, args=(do,))
    st.write("To get this class back on another machine, by its code and a word of your choice:")
    with st.form("class_word", border=False):
        typed = st.text_input("Word", type="password", key="class_word_typed", help="At least 8 characters")
        kept = st.form_submit_button("Keep")
    if kept:
        _remember(mine, typed)


def _remember(mine: ClassAccess, typed: str) -> None:
    try:
        classroom.current().set_word(mine.code, mine.key, typed)
    except ClassError as error:
        messages.error(str(error))
    else:
        messages.hint("Kept: open Learn → Class elsewhere, and type the code and this word.")


def upload(label: str, key: str) -> list[ClassStep] | None:
    """Draw a field for the file of a plan; return its steps, None if there is none or it can't be read."""
    file = st.file_uploader(label, "json", key=key, max_upload_size=1)
    if file is None:
        return None
    try:
        return from_file(file.getvalue())
    except qc.QuantError as error:
        messages.error(str(error))
        return None


def packed(steps: Sequence[ClassStep]) -> str:
    """Return the plan as links carry it."""
    return base64.urlsafe_b64encode(zlib.compress(to_file(steps).encode(), 9)).decode().rstrip("=")


def unpacked(text: str) -> list[ClassStep]:
    """Read what `packed` returned.

    Raises:
        QuantError: it is not a plan.
    """
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), MOST_UNPACKED)
    except (ValueError, zlib.error):
        raise qc.QuantError("The plan in this link is damaged; ask its sender for the file.") from None
    return from_file(found)
