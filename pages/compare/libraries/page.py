"""Libraries: why do two of them give different integers for the same tensor?"""

import streamlit as st

import quantcore as qc
from pages.compare.libraries import controls as library_choice
from pages.compare.libraries import views as library_results
from pages.shared import link
from pages.shared import messages as say
from pages.shared import selection as current

chosen = current.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Why do two libraries give different integers?", anchor=False)
left.caption(
    "The tensor and the scheme on the left, computed as each library computes them, bit for bit. Library A begins as "
    "the one chosen on the left."
)
link_place = right.popover("Link", icon=":material/link:", width="stretch")
a, b = library_choice.draw()
for problem in chosen.problems:
    say.error(problem)
if chosen.hint:
    say.hint(chosen.hint)
if chosen.tensor is not None and chosen.scheme is not None:
    tensor, scheme = chosen.tensor, chosen.scheme
    try:
        if not library_results.refusals(tensor, scheme, a, b):
            library_results.table(tensor, scheme, a)
            library_results.side_by_side(tensor, library_results.comparison(tensor, scheme, a, b))
    except qc.QuantError as error:
        say.error(str(error))

with link_place:
    link.draw(chosen.tensor)
