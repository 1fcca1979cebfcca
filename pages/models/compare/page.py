"""Compare checkpoints: which tensors of two differ, and by how much."""

import streamlit as st

from pages.models import opening
from pages.models.compare import controls, run, table, views
from pages.models.opening import compared
from pages.shared.page_frame import page_frame

place = st.session_state.pop(views.OPEN, None)
if place is not None:  # both pages bind the checkpoints, so they stay in the address
    st.switch_page("models/checkpoint/page.py", query_params=place)

views.come_back()
with page_frame(
    "How do two checkpoints differ?",
    "Compare a checkpoint with its original, or two quantized ones: the error of each tensor, and where it is worst.",
):
    left, right = st.columns(2)
    with left:
        original = opening.choose("original", "Original")
    with right:
        other = opening.choose("", "Compare with")
    if original is None or other is None:
        controls.keep()
        st.caption(
            "Choose two checkpoints: an original and one made from it, such as example:minilm and example:minilm-q4_k_m."
        )
    else:
        found = compared.kept(original, other)
        views.pairs_told(found)
        chosen = controls.draw()
        run.run(found, lambda n: views.picture(table.rows_of(found.results, chosen), chosen, live=n))
        views.results(found, chosen)
