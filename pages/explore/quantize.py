"""Explore: a tensor and its quantized form side by side."""

import quantcore as qc
from pages.shared import compute, current, headline, link, maps_view, refused, say, tabs

chosen = current.get()
link_place = headline.scheme_line(chosen)
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
        headline.library_line(scheme)
        for warning in result.warnings:
            say.warning(warning)
        report = compute.report(tensor, scheme)
        headline.key_figures(tensor, scheme, report)
        view, element = maps_view.draw(tensor, result, report)
        tabs.draw(tensor, result, view, element, element == report.max_abs_error_index)

with link_place.popover("Link", icon=":material/link:", width="stretch"):
    link.draw(chosen.tensor)
