"""Sensitivity: how much each weight of a model loses under several schemes, and which fits a size."""

import streamlit as st

from pages.models import keys, opening
from pages.models.sensitivity import controls, run, views, ways
from pages.shared.page_frame import page_frame
from pages.shared.state import leaving, link
from quantcore.errors import QuantError
from quantcore.layerwise import USUAL

leaving.come_back("sensitivity", controls.DEFAULTS | {controls.MORE: USUAL}, keys.IMATRIX_KEYS)
with page_frame(
    "Which layer takes which scheme?",
    "How much each weight loses when it alone is quantized. The model is not run, so errors do not add up "
    "from layer to layer.",
    problems=(st.session_state.pop(ways.PROBLEM, ""),),
):
    left, right = st.columns(2)
    with left:
        opened = opening.choose(example="CHGNet, an example")
    with right:
        imatrix = opening.choose("imatrix", "imatrix (optional)")
    with st.container(key="sn_hidden"):  # carries the chosen cell in the link; CSS hides it
        for key in (controls.TENSOR, controls.SCHEME):
            st.text_input(key, key=key, bind="query-params", max_chars=4000)
    if opened is None:
        st.caption("An example, until you open a checkpoint: CHGNet, a model of 136 tensors.")
        opened = opening.location_of(f"{opening.EXAMPLE}{controls.EXAMPLE}", None).open()
    try:
        found = run.of(opened, imatrix, controls.schemes())
    except QuantError:
        link.keep(controls.KEYS - controls.FIRST_DRAWN)
        raise
    answer, results, sizes = st.container(), st.container(), st.container()
    with answer:
        own = views.budget_asked(found)
    with results:
        progress = st.empty()
        with st.container(horizontal=True, key="sn_beside", gap="medium"):
            layers, why = st.container(key="sn_layers"), st.container(key="sn_why")
        with layers:
            order = controls.order()
            run.proceed(found, progress, lambda: views.live(found, order))
            chosen = views.best(found, own)
            if found.rows:
                taken = chosen.schemes if chosen else {}
                views.layers(found, order, taken)
                views.beneath(found, order, taken)
        with why:
            views.cell(found)
    with answer:
        views.answer(found, chosen, own)
    with sizes:
        views.sizes(found, chosen, own)
