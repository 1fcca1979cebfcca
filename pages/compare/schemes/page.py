"""Schemes: which one should I use? Error against true bits per element, over many."""

from functools import partial

import streamlit as st

import quantcore as qc
from pages.compare.schemes import controls as sweep_choice
from pages.compare.schemes import run as sweep_run
from pages.compare.schemes import views as sweep_results
from pages.shared import link
from pages.shared import messages as say
from pages.shared import selection as current
from quantcore.figures import AXES

if st.session_state.pop(sweep_results.OPEN, False):
    # no parameters: to clear bound ones is refused, but these come back by themselves where their widgets stand
    st.switch_page("explore/quantize/page.py", query_params={})

sweep_results.come_back()
chosen = current.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which scheme should I use?", anchor=False)
left.caption("Every scheme on the tensor on the left: its error against what it really costs to store.")
link_place = right.popover("Link", icon=":material/link:", width="stretch")
for problem in (*chosen.problems, st.session_state.pop(sweep_results.PROBLEM, "")):
    if problem:
        say.error(problem)
if chosen.hint:
    say.hint(chosen.hint)
if chosen.tensor is not None:
    tensor = chosen.tensor
    schemes: list[qc.Scheme] = []
    try:
        schemes = sweep_choice.draw(tensor.shape, chosen.scheme)
        if not schemes:
            say.hint("Choose at least one format, symmetry, granularity and range.")
    except qc.QuantError as error:
        say.error(str(error))
    metric = st.segmented_control(
        "Error metric", list(AXES), default="sqnr_db", key="sw_metric", required=True, bind="query-params"
    )
    try:
        sweep_run.run(
            tensor, schemes, partial(sweep_results.picture, metric=metric, own=chosen.scheme, live=True)
        )
    except qc.QuantError as error:
        say.error(str(error))
    frame = sweep_run.table(sweep_run.known(tensor), schemes)
    if len(frame):
        limit = sweep_results.limited(frame, metric)
        sweep_results.picture(frame, metric, chosen.scheme, limit=limit)
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
        shown = sweep_results.filtered(frame, metric, typed, only_best)
        sweep_results.rows_table(shown)
        sweep_results.exports(shown)
        sweep_results.maps(tensor, frame)

with link_place:
    link.draw(chosen.tensor)
