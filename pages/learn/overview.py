"""All lessons, with a miniature, subjects, duration and progress."""

import html

import streamlit as st

from pages.learn import frame, miniatures
from pages.shared.curriculum import LESSONS, numbered, step_key

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
    mistakes = LESSONS["mistakes"]
    st.markdown("**Where to begin**")
    st.markdown(
        f"- **New to it**: {first.title}, then {second.title} and on from there, {first.minutes} and "
        f"{second.minutes} minutes. Every number in a lesson is computed while you watch, so change what can "
        "be changed.\n"
        f"- **You know int8**: *{mistakes.title}* shows {len(mistakes.steps)} pieces of "
        "code that look right; find the cells that they get wrong.\n"
        f"- **You quantize models**: *{LESSONS['outliers'].title}*, *{LESSONS['gptq'].title}* and "
        f"*{LESSONS['rotation'].title}*, each with every number of a layer small enough to read."
    )


frame.plain()
st.markdown(
    f"# Learn: {len(LESSONS)} lessons\n\n"
    "To teach with them, begin a [class](learn-class): it asks before it shows, and students answer on "
    "their phones. PageDown and →, or a clicker, lead to the next step; **Large** enlarges every page."
)
with st.container(key="learn_cards"):
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
