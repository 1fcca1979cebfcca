"""Ranges: which range should the codes span, and what does each one cost?"""

from functools import partial

import streamlit as st

import quantcore as qc
from pages.explore.ranges import following, views
from pages.maps import four_maps
from pages.shared import messages
from pages.shared.computing import cache
from pages.shared.page_frame import page_frame
from pages.shared.state.selection import ENDS, VALUE
from pages.sidebar import brought, ends, unsupported

KEPT = {VALUE: brought.change_value, ENDS: brought.change_ends}

with page_frame(
    "Which range should the codes span?",
    "A narrow range clips the outermost elements; a wide one rounds all others more coarsely.",
) as frame:
    tensor, scheme = frame.chosen.tensor, frame.chosen.scheme
    if tensor and scheme and (result := unsupported.result(tensor, scheme)):
        block, place = views.choose_block(result)
        beside = current = None
        bins = views.histogram(tensor, result, block)
        bounds = qc.range_in_use(result, block)
        if scheme.range_setting.searches_codes:
            views.trials(tensor, result, block, bins, bounds)
        else:
            slider = views.slider(bounds, (float(bins[1][0]), float(bins[1][-1])), scheme.symmetric)
            beside = partial(following.beside, block, scheme)
            current = following.slides(ends.followed_too(frame.chosen, result, block), slider)
            st.container(key=following.FIGURES).html(following.figures(tensor, scheme))
            try:
                found, curve = views.marks(tensor, scheme, block), views.curve(tensor, scheme, block)
            except qc.QuantError as error:
                messages.error(str(error))
            else:
                views.pictures(bins, found, bounds, scheme, curve)
                views.table(found, scheme)
                views.notes(tensor, scheme, block, curve)
        report = cache.report(tensor, scheme)
        maps_place = st.container(gap="xxsmall")
        view, shown = four_maps.controls(tensor, scheme, report, maps_place, drags=True)
        boxes = views.outline(result, block)
        four_maps.draw(
            maps_place, tensor, scheme, view, boxes, beside=beside, current=current, always=True, on_kept=KEPT
        )
        views.buttons(place, result, block, shown.trace.index)
