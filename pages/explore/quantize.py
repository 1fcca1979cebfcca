"""Explore: a tensor and its quantized form side by side."""

import streamlit as st

import quantcore as qc
from pages.shared import compute, current, headline, maps_view, tabs

chosen = current.get()
headline.scheme_line(chosen)
for problem in chosen.problems:
    st.error(problem, icon=":material/error:")
if chosen.tensor is None or chosen.scheme is None:
    st.stop()

tensor, scheme = chosen.tensor, chosen.scheme
try:
    result = compute.result(tensor, scheme)
except qc.QuantError as error:
    st.error(str(error), icon=":material/error:")
    st.stop()
for warning in result.warnings:
    st.warning(warning, icon=":material/warning:")

report = compute.report(tensor, scheme)
headline.key_figures(tensor, scheme, report)
view, element = maps_view.draw(tensor, result, report)
tabs.draw(tensor, result, view, element)
