"""Ranges: which range should the codes span, and what does each one cost?"""

import streamlit as st

import quantcore as qc
from pages.explore.ranges import range_slider as range_hand
from pages.explore.ranges import views as range_view
from pages.maps import controls as maps_view
from pages.shared import cache as compute
from pages.shared import link
from pages.shared import messages as say
from pages.shared import selection as current
from pages.sidebar import unsupported as refused

chosen = current.get()
left, right = st.columns([7, 1], vertical_alignment="center")
left.subheader("Which range should the codes span?", anchor=False)
left.caption(
    "A narrow range clips the outermost elements, a wide one rounds all the others more coarsely. Drag across the "
    "histogram, move the slider, or take what a method finds."
)
link_place = right.popover("Link", icon=":material/link:", width="stretch")
for problem in chosen.problems:
    say.error(problem)
if chosen.hint:
    say.hint(chosen.hint)
if chosen.tensor is not None and chosen.scheme is not None:
    tensor, scheme = chosen.tensor, chosen.scheme
    try:
        result = compute.result(tensor, scheme)
    except qc.QuantError as error:
        refused.show(error, tensor, scheme)
    else:
        block, place = range_view.choose_block(result)
        bins = range_view.histogram(tensor, result, block)
        ends = qc.range_in_use(result, block)
        range_hand.draw(ends, (float(bins[1][0]), float(bins[1][-1])), scheme.symmetric)
        try:
            found, curve = range_view.marks(tensor, scheme, block), range_view.curve(tensor, scheme, block)
        except qc.QuantError as error:
            say.error(str(error))
        else:
            range_view.pictures(bins, found, ends, scheme, curve)
            range_view.table(found, scheme)
            range_view.notes(tensor, scheme, block, curve)
        report = compute.report(tensor, scheme)
        maps_place = st.container(gap="xxsmall")
        view, element = maps_view.controls(tensor.shape, maps_view.worst_of(report, tensor.shape), maps_place)
        trace = qc.trace(result, element)
        maps_view.draw(maps_place, tensor, result, view, trace, range_view.outline(result, block))
        range_view.buttons(place, result, block, element)

with link_place:
    link.draw(chosen.tensor)
