"""Schemes: which one should I use? Error against true bits per element, over many."""

import streamlit as st

import quantcore as qc
from pages.shared import current, link, say, sweep_choice, sweep_results
from quantcore.figures.pareto import AXES

if st.session_state.pop(sweep_results.OPEN, False):
    st.switch_page("explore/quantize.py")

chosen = current.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which scheme should I use?", anchor=False)
left.caption("Every scheme on the tensor on the left: its error against what it really costs to store.")
link_place = right.popover("Link", icon=":material/link:", width="stretch")
for problem in chosen.problems:
    say.error(problem)
if chosen.hint:
    say.hint(chosen.hint)
if chosen.tensor is not None:
    tensor = chosen.tensor
    try:
        schemes = sweep_choice.draw(tensor.shape)
        found = sweep_results.rows(tensor, schemes)
        if not schemes:
            say.hint("Choose at least one format, symmetry, granularity and range.")
    except qc.QuantError as error:
        say.error(str(error))
        found = []
    if found:
        frame = sweep_results.table(found)
        metric = st.segmented_control(
            "Error as", list(AXES), default="sqnr_db", key="sw_metric", required=True, bind="query-params"
        )
        clicked = sweep_results.picture(frame, metric)
        if clicked:
            st.button(
                f"Open {clicked} in Explore",
                on_click=sweep_results.open_in_explore,
                args=(clicked,),
                key="sw_open",
            )
        else:
            st.caption("Click a point to open its scheme; choose rows below to see their error maps.")
        rows = sweep_results.rows_table(frame)
        if rows:
            sweep_results.maps(tensor, rows)

with link_place:
    link.draw(chosen.tensor)
