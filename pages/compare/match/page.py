"""Match: which rules made these integers?"""

import streamlit as st

import quantcore as qc
from pages.compare.match import code as match_code
from pages.compare.match import controls as match_inputs
from pages.compare.match import examples as match_examples
from pages.compare.match import lessons as match_lessons
from pages.compare.match import run as match_search
from pages.compare.match import views as match_results
from pages.shared import link
from pages.shared import messages as say
from pages.shared import selection as current
from pages.sidebar import tensor as tensor_controls

match_lessons.leave()
# Streamlit writes what an example sets into the link only of widgets whose key it has met before
for name, default in tensor_controls.DEFAULTS.items():
    st.session_state.setdefault(name, default)

chosen = current.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which rules made these integers?", anchor=False)
left.caption(
    "Paste codes from elsewhere for the tensor on the left: Match tries every library, granularity and width, "
    "and the usual mistakes, alone and together."
)
link_place = right.popover("Link", icon=":material/link:", width="stretch")
place, beside = st.columns([3, 1])
for problem in chosen.problems:
    say.error(problem)
if chosen.hint:
    say.hint(chosen.hint)
inputs = None
try:
    inputs = match_inputs.draw(place, beside)
    with beside:
        if not match_inputs.is_code():
            match_examples.draw()
        search_place = st.container()
    if match_inputs.is_code():
        match_code.draw(chosen.tensor)
    elif inputs is None:
        say.hint("Paste integers above, upload a file with them, or open an example.")
    elif chosen.tensor is not None:
        key = f"{chosen.tensor.key} {inputs.key}"
        search_place.button(
            "Search", type="primary", on_click=match_search.want, args=(key,), width="stretch", key="match_go"
        )
        if st.session_state.pop(match_inputs.FILLED, False):
            match_search.want(key)
        if match_search.wanted(key):
            match_search.run(chosen.tensor, inputs, key)
        found = match_search.found(key)
        if found is not None:
            match_results.summary(found.matches, chosen.tensor, chosen.scheme, found.fraction)
            if found.matches.candidates:
                candidate = match_results.table(found.matches, chosen.tensor, chosen.scheme)
                match_results.detail(candidate, chosen.tensor, inputs.codes, chosen.scheme)
except qc.QuantError as error:
    say.error(str(error))

with link_place:
    link.draw(chosen.tensor)
    if inputs is not None and not match_inputs.carried():
        st.write("There are too many integers for a link: send them as a file with it.")
    if match_inputs.is_code():
        st.write("The link does not carry the code: send it beside it.")
