"""All lessons, with a miniature, subjects, duration and progress, and a plan for a class of one hour."""

import html

import streamlit as st

from pages.learn import frame, miniatures
from pages.shared.lesson_plan import CLASS, LESSONS, PARTS, PLAN, numbered, step_key

ACROSS = 4  # cards in a row


def card(name: str) -> None:
    """Draw a lesson's card."""
    found = LESSONS[name]
    miniatures.draw(name)
    frame.link_to(name, numbered(name), f"lesson_{name}", {step_key(name): next(iter(found.steps))})
    # the browser remembers which steps were seen (pages/browser/progress.js)
    steps = html.escape(" ".join(f"{name}/{step}" for step in found.steps))
    st.html(
        f'<p class="qs-card">{html.escape(found.idea)}<br><small>{found.minutes} min · <span '
        f'class="qs-progress" data-steps="{steps}">{len(found.steps)} steps</span></small></p>'
    )


def ways() -> None:
    """Draw where different readers begin."""
    first, second, *_ = LESSONS.values()
    st.markdown("**Where to begin**")
    st.markdown(
        f"- **New to it**: {first.title}, then {second.title} and on from there, {first.minutes} and "
        f"{second.minutes} minutes. Every number in a lesson is computed while you watch, so change what can "
        "be changed.\n"
        f"- **You know int8**: *{LESSONS['mistakes'].title}* shows {len(LESSONS['mistakes'].steps)} pieces of "
        "code that look right; find the cells that they get wrong.\n"
        f"- **You quantize models**: *{LESSONS['outliers'].title}*, *{LESSONS['gptq'].title}* and "
        f"*{LESSONS['rotation'].title}*, each with every number of a layer small enough to read.\n"
        f"- **You teach**: the plan for {frame.MINUTES} minutes is behind the second tab, and a "
        "[class](learn-class) asks on phones."
    )


frame.plain()
st.markdown(f"# Learn: {len(LESSONS)} lessons, and a plan for a class")
tabs = ["Lessons", f"Plan for a class of {frame.MINUTES} minutes"]
lessons, plan = st.tabs(tabs, default=tabs[PLAN in st.query_params], key="learn_overview_tab")

with lessons, st.container(key="learn_cards"):
    names = list(LESSONS)
    for first in range(0, len(names), ACROSS):
        row = names[first : first + ACROSS]
        free = ACROSS - len(row)  # places after the last lesson
        columns = st.columns([1] * len(row) + [free] * (free > 0))
        for column, name in zip(columns, row, strict=False):
            with column.container(border=True, height="stretch", gap="xsmall"):
                card(name)
        if free:
            with columns[-1].container(border=True, height="stretch", gap="xsmall"):
                ways()

with plan:
    st.markdown(
        "To present it with phones and a projector, begin a [class](learn-class): it goes through these "
        "parts, asks before it shows, and can be edited. Without phones, open a part here: the step then "
        "shows the question to the class and the time, and **Next** leads to the next part of the plan; so "
        "do the keys PageDown and → of a keyboard or a clicker, PageUp and ← lead back. **Large**, in the "
        "header, enlarges text and figures on every page."
    )
    with st.container(key="learn_plan", gap=None):
        for index, part in enumerate(PARTS):
            if index == len(CLASS):
                st.markdown("**Choices** to take in place of other parts:")
            time, link, ask = st.columns([0.7, 2.6, 6], vertical_alignment="center")
            time.markdown(frame.span(index))
            with link:
                label = f"{numbered(part.lesson)}: {frame.part_label(part)}"
                key = f"class_{part.lesson}_{part.step}"
                frame.link_to(part.lesson, label, key, frame.part_query(index))
            ask.markdown(part.ask)
    st.markdown(
        "- **Link**, in the header, copies the address of the current view, without Large. Anyone who opens "
        "it sees the same step and settings; below it stands a QR code for phones.\n- In *Class*, students "
        "answer on their phones, and the projector shows their answers, and why wrong ones are given.\n- In "
        "*Predict*, everyone with the same seed gets the same tensor. Answers stay in each person's browser "
        "session."
    )
