"""Schemes: which one should I use? Error against true bits per element, over many."""

from functools import partial

import streamlit as st

import quantcore as qc
from pages.compare.schemes import controls, run, views
from pages.shared import link, messages, selection
from quantcore.figures import AXES

if st.session_state.pop(views.OPEN, False):
    # no parameters: to clear bound ones is refused, but these come back by themselves where their widgets stand
    st.switch_page("explore/quantize/page.py", query_params={})

views.come_back()
chosen = selection.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which scheme should I use?", anchor=False)
left.caption("Every scheme on the tensor on the left: its error against what it really costs to store.")
link_place = right.popover("Link", icon=":material/link:", width="stretch")
for problem in (*chosen.problems, st.session_state.pop(views.PROBLEM, "")):
    if problem:
        messages.error(problem)
if chosen.hint:
    messages.hint(chosen.hint)
if chosen.tensor is not None:
    tensor = chosen.tensor
    schemes: list[qc.Scheme] = []
    try:
        schemes = controls.draw(tensor.shape, chosen.scheme)
        if not schemes:
            messages.hint("Choose at least one format, symmetry, granularity and range.")
    except qc.QuantError as error:
        messages.error(str(error))
    metric = st.segmented_control(
        "Error metric", list(AXES), default="sqnr_db", key="sw_metric", required=True, bind="query-params"
    )
    try:
        run.run(tensor, schemes, partial(views.picture, metric=metric, own=chosen.scheme, live=True))
    except qc.QuantError as error:
        messages.error(str(error))
    frame = run.table(run.known(tensor), schemes)
    if len(frame):
        limit = views.limited(frame, metric)
        views.picture(frame, metric, chosen.scheme, limit=limit)
        st.caption(
            "Click a point to open its scheme in Explore. Select rows below to see their error maps and to open them."
        )
        words, best = st.columns([3, 1], vertical_alignment="bottom")
        typed = words.text_input(
            "Filter",
            key="sw_filter",
            bind="query-params",
            placeholder="words that a row must have, such as int4 per_group",
        )
        only_best = best.checkbox("Only the frontier", key="sw_best", bind="query-params")
        shown = views.filtered(frame, metric, typed, only_best)
        views.rows_table(shown)
        views.exports(shown)
        views.maps(tensor, frame)

with link_place:
    link.draw(chosen.tensor)
