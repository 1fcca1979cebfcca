"""Which steps were seen, kept by the visitor's browser (pages/browser/progress.js)."""

import html

import streamlit as st

from pages.shared.lesson_plan import LESSONS


def visited(name: str, step: str) -> None:
    """Note that a step is shown."""
    st.html(f'<i class="qs-seen" data-seen="{html.escape(f"{name}/{step}")}" hidden></i>')


def markup(name: str) -> str:
    """The HTML of a line that tells how many steps of a lesson were seen."""
    steps = html.escape(" ".join(f"{name}/{step}" for step in LESSONS[name].steps))
    count = len(LESSONS[name].steps)
    return f'<span class="qs-progress" data-steps="{steps}">{count} steps</span>'
