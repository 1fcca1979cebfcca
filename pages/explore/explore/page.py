"""Explore: a tensor and its quantized form side by side."""

from functools import partial

import streamlit as st

from pages.explore.explore import findings, summary, tabs
from pages.maps import four_maps, overview
from pages.shared.charts import theme
from pages.shared.computing import cache
from pages.shared.page_frame import page_frame
from pages.shared.state import choice, pinned
from pages.shared.state.selection import ENDS, VALUE
from pages.sidebar import brought, ends, unsupported

KEPT = {VALUE: brought.change_value, ENDS: brought.change_ends, "bits": brought.change_bits}

row = partial(st.container, horizontal=True, wrap=False, gap="small", vertical_alignment="center")
explore = st.container(key="explore", gap="xxsmall")
with explore:
    question = summary.question_row()
with explore, page_frame(top=summary.scheme_line) as frame:
    tensor, scheme = frame.chosen.tensor, frame.chosen.scheme
    if tensor and scheme:
        overview.draw(frame.notes, tensor, scheme)
    if tensor and scheme and (result := unsupported.result(tensor, scheme)):
        with frame.notes:
            summary.library_line(tensor, scheme)
        report = cache.report(tensor, scheme)
        question.html(summary.question(tensor, scheme))
        summary_place = st.container(key=summary.SUMMARY)
        findings_place = row(height=findings.HEIGHT, border=False, key=summary.FINDINGS)
        examples_place = row(key="finding_examples")
        maps_place = st.container(gap="xxsmall", key="explore_maps")
        view, shown = four_maps.controls(tensor, scheme, report, maps_place, drags=True)
        compared = pinned.compared_with(tensor, scheme)
        reference, following = (
            compared.reference(tensor, scheme),
            partial(summary.following, compared, choice.before_drawn("tab") or four_maps.ARITHMETIC, theme()),
        )
        summary_place.html(summary.markup(tensor, scheme, shown.trace, reference))
        boxes = findings.shown(tensor, scheme)
        current = ends.followed_too(frame.chosen, result, shown.trace.block)
        four_maps.draw(maps_place, tensor, scheme, view, boxes, reference, following, current, on_kept=KEPT)
        # computed after the maps, so that these need not wait
        findings.draw(findings_place, tensor, result, report)
        with examples_place:
            findings.examples()
        tabs.draw(tensor, result, view, shown)
