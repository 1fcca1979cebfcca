"""Match: which rules made these integers?"""

import streamlit as st

import quantcore as qc
from pages.compare.match import code, controls, examples, lessons, run, views
from pages.shared import link, messages, selection
from pages.sidebar import tensor_controls

lessons.leave()
# Streamlit writes what an example sets into the link only of widgets whose key it has met before
for name, default in tensor_controls.DEFAULTS.items():
    st.session_state.setdefault(name, default)

chosen = selection.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which rules made these integers?", anchor=False)
left.caption(
    "Paste codes from elsewhere for the tensor on the left: Match tries every library, granularity and width, "
    "and the usual mistakes, alone and together."
)
link_place = right.popover("Link", icon=":material/link:", width="stretch")
place, beside = st.columns([3, 1])
for problem in chosen.problems:
    messages.error(problem)
if chosen.hint:
    messages.hint(chosen.hint)
inputs = None
try:
    inputs = controls.draw(place, beside)
    with beside:
        if not controls.is_code():
            examples.draw()
        search_place = st.container()
    if controls.is_code():
        code.draw(chosen.tensor)
    elif inputs is None:
        messages.hint("Paste integers above, upload a file with them, or open an example.")
    elif chosen.tensor is not None:
        key = f"{chosen.tensor.key} {inputs.key}"
        search_place.button(
            "Search", type="primary", on_click=run.want, args=(key,), width="stretch", key="match_go"
        )
        if st.session_state.pop(controls.FILLED, False):
            run.want(key)
        if run.wanted(key):
            run.run(chosen.tensor, inputs, key)
        found = run.found(key)
        if found is not None:
            views.summary(found.matches, chosen.tensor, chosen.scheme, found.fraction)
            if found.matches.candidates:
                candidate = views.table(found.matches, chosen.tensor, chosen.scheme)
                views.detail(candidate, chosen.tensor, inputs.codes, chosen.scheme)
except qc.QuantError as error:
    messages.error(str(error))

with link_place:
    link.draw(chosen.tensor)
    if inputs is not None and not controls.carried():
        st.write("There are too many integers for a link: send them as a file with it.")
    if controls.is_code():
        st.write("The link does not carry the code: send it beside it.")
