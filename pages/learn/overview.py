"""All lessons, with their subjects and durations, and a plan for a class of one hour."""

import streamlit as st

from pages.learn import frame
from pages.shared.lesson_plan import CLASS, LESSONS

frame.plain()
st.markdown("#### Learn: seven lessons, and a plan for a class")
lessons, plan = st.columns([2, 3], gap="large")

with lessons:
    st.markdown("##### The lessons")
    for number, name in enumerate(LESSONS, 1):
        found = LESSONS[name]
        left, right = st.columns([3, 1], vertical_alignment="center")
        with left:
            frame.link_to(name, next(iter(found.steps)), f"{number} · {found.title}", f"lesson_{name}")
            st.caption(f"{found.idea}; {len(found.steps)} steps")
        right.markdown(f"{found.minutes} min")
    st.markdown("##### With a class")
    st.markdown(
        "- **Large** enlarges text and figures for a projector and folds the sidebar away; it stays on from step to "
        "step and from lesson to lesson.\n"
        "- **Link**, on every step, gives the address of the current view: step, settings and size. Anyone who opens it "
        "sees the same view.\n"
        "- In *Predict*, everyone with the same seed gets the same tensor. Answers stay in each person's browser "
        "session."
    )

with plan:
    st.markdown(f"##### A class of {sum(part.minutes for part in CLASS)} minutes")
    large = st.toggle("Open the steps in Large", True, key="learn_overview_large")
    begin = 0
    for part in CLASS:
        time, link, ask = st.columns([1, 2.4, 5], vertical_alignment="center")
        time.markdown(f"{begin}–{begin + part.minutes}")
        with link:
            number = list(LESSONS).index(part.lesson) + 1
            label = f"{number} · {LESSONS[part.lesson].title}: {part.step.replace('-', ' ')}"
            frame.link_to(part.lesson, part.step, label, f"class_{part.lesson}_{part.step}", large)
        ask.markdown(part.ask)
        begin += part.minutes
