"""Methods: which one keeps a layer's output at equal bits? Side by side, and each step by step."""

import math

import streamlit as st

from pages.outputs.methods import code, controls, run, views, words
from pages.shared import messages
from pages.shared.page_frame import page_frame
from pages.shared.state import link
from pages.shared.state.selection import NoTensorYet
from quantcore import outputs

link.keep({"om_column"})  # drawn with the steps of GPTQ alone
with page_frame("Which method loses least of a layer's output?") as frame:
    answer = st.container(key="om_answer").empty()
    row = st.container(horizontal=True, vertical_alignment="bottom", gap="small", key="om_row")
    tensor, scheme, source, activation_scheme = frame.chosen.tensor, frame.chosen.scheme, None, None
    inputs = tensor.shape[-1] if tensor is not None and tensor.shape else 0
    try:
        source, activation_scheme = controls.draw(row, inputs)
    except NoTensorYet as waiting:
        messages.hint(str(waiting))
    if tensor is not None and scheme is not None and source is not None:
        run.check(tensor)
        layer = run.PageLayer(tensor, scheme, source, activation_scheme)
        chosen = st.container(horizontal=True, vertical_alignment="bottom", gap="medium", key="om_chosen")
        method = controls.method(chosen)
        options = controls.options(method, chosen)
        with st.container(key="om_grid"):
            side, picture = st.container(key="om_side"), st.container(key="om_picture")
            by_tokens = st.container(key="om_by_tokens")
        with side:
            place = st.empty()
            show = lambda: views.side_by_side(views.known(run.record(layer), options), layer)  # noqa: E731
            run.run(layer, options, show)
        found = run.record(layer)
        known = views.known(found, options)
        if said := words.answer(known):
            answer.markdown(f"**{messages.plain(said)}**")
        if known:
            with place.container():
                views.side_by_side(known, layer, "om_bars")
        with picture:
            views.steps(method, found, options, layer)
        if len(known) == len(outputs.METHODS) and not all(math.isnan(f.sqnr_db) for f in known):
            nearest = next((f.sqnr_db for f in known if f.method == outputs.NEAREST), math.nan)
            with by_tokens:
                st.subheader("How many tokens until the answer stops changing?", anchor=False)
                enough, curve = st.empty(), st.empty()
                points = run.by_tokens(layer, options, lambda shown: views.tokens(shown, nearest))
                enough.markdown(messages.plain(words.tokens(points)))
                with curve.container():
                    views.tokens(points, nearest, "om_tokens_curve")
        code.draw(method, found, options, layer)
