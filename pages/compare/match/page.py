"""Match: which rules made these integers?"""

import streamlit as st

from pages.compare.match import code, controls, examples, lesson_links, run, views
from pages.shared import messages
from pages.shared.page_frame import page_frame
from pages.sidebar import tensor_controls

lesson_links.leave()
# Streamlit writes what an example sets into the link only for widgets whose key it already knows
for name, default in tensor_controls.DEFAULTS.items():
    st.session_state.setdefault(name, default)

with page_frame(
    "Which rules made these integers?",
    "Paste codes from elsewhere for the tensor on the left. Match tries every library, granularity and bit width, "
    "and common mistakes, alone and combined.",
) as frame:
    place, beside = st.columns([3, 1])
    inputs = controls.draw(place, beside)
    if inputs is not None and not controls.carried():
        frame.link_notes.append(
            "The link does not carry all of the input: send the integers, scale and zero point along as a file."
        )
    if controls.is_code():
        frame.link_notes.append("The link does not carry the code: send it along.")
    with beside:
        if not controls.is_code():
            examples.draw()
        search_place = st.container()
    if controls.is_code():
        code.draw(frame.chosen.tensor)
    elif inputs is None:
        messages.hint("Paste integers above, upload a file with them, or open an example.")
    elif frame.chosen.tensor is not None:
        key = f"{frame.chosen.tensor.key} {inputs.key}"
        search_place.button(
            "Search", type="primary", on_click=run.want, args=(key,), width="stretch", key="match_go"
        )
        if st.session_state.pop(controls.FILLED, False):
            run.want(key)
        if run.wanted(key):
            run.run(frame.chosen.tensor, inputs, key)
        found = run.found(key)
        if found is not None:
            views.summary(found.matches, frame.chosen.tensor, frame.chosen.scheme, found.fraction)
            if found.matches.candidates:
                candidate = views.table(found.matches, frame.chosen.tensor, frame.chosen.scheme)
                views.detail(candidate, frame.chosen.tensor, inputs.codes, frame.chosen.scheme)
