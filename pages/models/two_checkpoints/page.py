"""Two checkpoints: which tensors of two differ, and by how much."""

import streamlit as st

from pages.models import keys, opening
from pages.models.opening import compared, examples
from pages.models.two_checkpoints import controls, views
from pages.shared import cards, messages
from pages.shared.page_frame import page_frame
from pages.shared.state import choice, leaving, link

leaving.come_back("two checkpoints", controls.DEFAULTS, keys.KEYS)
with page_frame(
    "How do two checkpoints differ?",
    "Compare a checkpoint with its original, or two quantized ones: the error of each tensor, and where it "
    "is worst.",
):
    left, right = st.columns(2)
    none = not any(choice.before_drawn(key) for key in keys.KEYS)
    with left:
        original = opening.choose("original", "Original", "CHGNet, an example" if none else "")
    with right:
        other = opening.choose("", "Compare with", "CHGNet in 4 bits" if none else "")
    if original is None and other is None:
        cards.draw(examples.cards())
        other, original = examples.open_pair(controls.EXAMPLE)
        st.markdown(
            f"An example: {messages.plain(examples.EXAMPLE_CARDS[controls.EXAMPLE].line)}, against its "
            "original."
        )
    if original is None or other is None:
        link.keep(controls.KEYS)
        missing = "the original that it was made from" if original is None else "one that was made from it"
        st.caption(f"Choose the other checkpoint too: {missing}. Or open an example with its original:")
        cards.draw(examples.cards())
    else:
        found = compared.between(original, other)
        views.pairs_told(found)
        chosen = controls.draw()
        compared.proceed(found, st.empty(), lambda: views.live(found, chosen))
        views.results(found, chosen)
