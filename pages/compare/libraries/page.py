"""Libraries: why do two of them give different integers for the same tensor?"""

import streamlit as st

from pages.compare.libraries import controls, views
from pages.shared.page_frame import page_frame

with page_frame(
    "Why do two libraries give different integers?",
    "Two libraries apply the scheme in the sidebar to the tensor there, each exactly as it computes.",
) as frame:
    answer, choices = st.container(), st.container()
    with choices:
        a, b = controls.draw()
    tensor, scheme = frame.chosen.tensor, frame.chosen.scheme
    if tensor is not None and scheme is not None and not views.refusals(tensor, scheme, a, b):
        found = views.comparison(tensor, scheme, a, b)
        with answer:
            views.side_by_side(tensor, found)
        views.follow(found)
        views.table(tensor, scheme, a)
