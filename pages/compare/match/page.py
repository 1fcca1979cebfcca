"""Match: which rules made these integers?"""

import streamlit as st

from pages.compare.match import code, controls, examples, run, views
from pages.shared import cards
from pages.shared.page_frame import page_frame
from pages.shared.state import sharing

with page_frame("Which rules made these integers?") as frame:
    tensor = frame.chosen.tensor
    place, beside = st.columns([3, 1])
    inputs = controls.draw(place, beside)
    if inputs is not None and not controls.carried():
        sharing.note(
            "The link does not carry all of the input: send the integers, scale and zero point along as a "
            "file."
        )
    if controls.is_code():
        code.draw(tensor, frame.chosen.scheme)
    elif inputs is not None and tensor is not None:
        found = run.search(tensor, inputs, beside)
        if found is not None:
            views.summary(found.matches, tensor, found.fraction)
            if found.matches.candidates:
                candidate = views.table(found.matches, tensor)
                views.detail(candidate, tensor, inputs.codes, frame.chosen.scheme)
    if tensor is not None and not controls.is_code():
        st.caption("Examples, each with its tensor:")
        cards.draw(examples.cards())
