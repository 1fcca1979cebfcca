"""Libraries: why do two of them give different integers for the same tensor?"""

import streamlit as st

import quantcore as qc
from pages.compare.libraries import controls, views
from pages.shared import link, messages, selection

chosen = selection.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Why do two libraries give different integers?", anchor=False)
left.caption(
    "The tensor and the scheme on the left, computed as each library computes them, bit for bit. Library A begins as "
    "the one chosen on the left."
)
link_place = right.popover("Link", icon=":material/link:", width="stretch")
a, b = controls.draw()
for problem in chosen.problems:
    messages.error(problem)
if chosen.hint:
    messages.hint(chosen.hint)
if chosen.tensor is not None and chosen.scheme is not None:
    tensor, scheme = chosen.tensor, chosen.scheme
    try:
        if not views.refusals(tensor, scheme, a, b):
            views.table(tensor, scheme, a)
            views.side_by_side(tensor, views.comparison(tensor, scheme, a, b))
    except qc.QuantError as error:
        messages.error(str(error))

with link_place:
    link.draw(chosen.tensor)
