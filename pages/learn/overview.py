"""All lessons, with a miniature, subjects, duration and progress."""

import html

import streamlit as st

from pages.learn import frame, miniatures
from pages.shared.lesson_plan import LESSONS, numbered, step_key

ACROSS = 4  # cards in a row

frame.plain()
st.markdown(f"# Learn: {len(LESSONS)} lessons")
st.caption(
    "To teach with them, begin a [class](learn-class): it asks before it shows, students answer on their "
    "phones, and its plan for an hour can be edited. PageDown and →, also of a clicker, lead to the next "
    "step; **Large**, in the header, enlarges every page."
)
with st.container(key="learn_cards"):
    names = list(LESSONS)
    for first in range(0, len(names), ACROSS):
        for column, name in zip(st.columns(ACROSS), names[first:], strict=False):
            with column.container(border=True, height="stretch", gap="xsmall"):
                found = LESSONS[name]
                miniatures.draw(name)
                first_step = {step_key(name): next(iter(found.steps))}
                frame.link_to(name, numbered(name), f"lesson_{name}", first_step)
                # the browser remembers which steps were seen (pages/browser/progress.js)
                steps = html.escape(" ".join(f"{name}/{step}" for step in found.steps))
                st.html(
                    f'<p class="qs-card">{html.escape(found.idea)}<br><small>{found.minutes} min · <span '
                    f'class="qs-progress" data-steps="{steps}">{len(found.steps)} steps</span></small></p>'
                )
