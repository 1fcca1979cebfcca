"""A question at the end of a lesson: one of several answers is right, and each says why or why not."""

from collections.abc import Mapping

import streamlit as st


def ask(name: str, question: str, answers: Mapping[str, str], right: str) -> bool:
    """Draw a question and, once it is answered, what is true of the answer; return whether it is right.

    Args:
        name: of the lesson; the answer stays in the visitor's session.
        answers: what can be chosen -> why it is right or wrong.
        right: one of them.
    """
    st.markdown(question)
    with st.container(key="learn_choice"):
        chosen = st.segmented_control(
            "Answer", list(answers), key=f"learn_{name}_answer", persist_state="session"
        )
    if chosen is not None:
        is_right = chosen == right
        mark, color = (":material/check:", "green") if is_right else (":material/close:", "orange")
        verdict = "Right." if is_right else "Not quite."
        st.markdown(f":{color}[{mark} **{verdict}**] {answers[chosen]}")
    return chosen == right
