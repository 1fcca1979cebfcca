"""Explore: a tensor and its quantized form side by side."""

import streamlit as st

import quantcore as qc
from pages.explore.quantize import findings, summary, tabs
from pages.explore.quantize import header as headline
from pages.maps import controls as maps_view
from pages.shared import cache as compute
from pages.shared import link, pinned
from pages.shared import messages as say
from pages.shared import selection as current
from pages.sidebar import unsupported as refused

chosen = current.get()
with st.container(key="explore", gap="xxsmall"):
    link_place = headline.scheme_line(chosen)
    # what comes and goes has a place, so that the maps keep theirs, and their zoom
    notes = st.container(gap="xxsmall")
    for problem in chosen.problems:
        say.error(problem, notes)
    if chosen.hint:
        say.hint(chosen.hint)

    if chosen.tensor is not None and chosen.scheme is not None:
        tensor, scheme = chosen.tensor, chosen.scheme
        try:
            result = compute.result(tensor, scheme)
        except qc.QuantError as error:
            refused.show(error, tensor, scheme)
        else:
            with notes:
                headline.library_line(scheme)
            report = compute.report(tensor, scheme)
            summary_place = st.container(key="summary")
            findings_place = findings.reserve()
            maps_place = st.container(gap="xxsmall")
            view, element = maps_view.controls(
                tensor.shape, maps_view.worst_of(report, tensor.shape), maps_place
            )
            trace = qc.trace(result, element)
            reference = pinned.reference(tensor, scheme)
            summary.draw(summary_place, tensor, result, report, trace, reference)
            maps_view.draw(maps_place, tensor, result, view, trace, findings.shown(tensor, scheme), reference)
            findings.draw(
                findings_place, tensor, result, report
            )  # after the maps, which need not wait for it
            tabs.draw(tensor, result, view, element, element == report.max_abs_error_index)

with link_place.popover("Link", icon=":material/link:", width="stretch"):
    link.draw(chosen.tensor)
