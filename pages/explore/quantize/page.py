"""Explore: a tensor and its quantized form side by side."""

import streamlit as st

import quantcore as qc
from pages.explore.quantize import findings, header, summary, tabs
from pages.maps import four_maps
from pages.shared import cache, link, messages, pinned, selection
from pages.sidebar import unsupported

chosen = selection.get()
with st.container(key="explore", gap="xxsmall"):
    link_place = header.scheme_line(chosen)
    # what comes and goes has a place, so that the maps keep theirs, and their zoom
    notes = st.container(gap="xxsmall")
    for problem in chosen.problems:
        messages.error(problem, notes)
    if chosen.hint:
        messages.hint(chosen.hint)

    if chosen.tensor is not None and chosen.scheme is not None:
        tensor, scheme = chosen.tensor, chosen.scheme
        try:
            result = cache.result(tensor, scheme)
        except qc.QuantError as error:
            unsupported.show(error, tensor, scheme)
        else:
            with notes:
                header.library_line(scheme)
            report = cache.report(tensor, scheme)
            summary_place = st.container(key="summary")
            findings_place = findings.reserve()
            maps_place = st.container(gap="xxsmall")
            view, element = four_maps.controls(
                tensor.shape, four_maps.worst_of(report, tensor.shape), maps_place
            )
            trace = qc.trace(result, element)
            reference = pinned.reference(tensor, scheme)
            summary.draw(summary_place, tensor, result, report, trace, reference)
            four_maps.draw(maps_place, tensor, result, view, trace, findings.shown(tensor, scheme), reference)
            findings.draw(
                findings_place, tensor, result, report
            )  # after the maps, which need not wait for it
            tabs.draw(tensor, result, view, element, element == report.max_abs_error_index)

with link_place.popover("Link", icon=":material/link:", width="stretch"):
    link.draw(chosen.tensor)
