"""What follows while the range is dragged: the maps, the figures above them, the band in the histogram."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import quantcore as qc
from pages.explore.ranges import views
from pages.maps.arithmetic import ElementArithmetic
from pages.maps.beside import BesideMaps
from pages.shared.computing import cache
from pages.shared.state.selection import Current, Move, Moved, PageTensor
from pages.sidebar import ends

FIGURES = "rng_figures"  # key of the place of `figures`


def slides(current: Current, slider: views.RangeSlider) -> Current:
    """Return what the page shows, to be followed with the slider of the range, too."""
    controls = {**current.controls, views.SLIDER: slider.rest}
    assert current.move is not None
    return replace(current, controls=controls, move=partial(_moved, slider, current.move))


def _moved(slider: views.RangeSlider, move: Move, current: Current, values: Mapping[str, str]) -> Moved:
    """Return as ``move``; a moved slider fixes the range."""
    others = {key: value for key, value in values.items() if key != views.SLIDER}
    tensor, scheme, controls, element = move(current, others)
    places = slider.rest
    if views.SLIDER in values:
        places = ends.places(values[views.SLIDER], len(places))
        scheme = replace(scheme, range_setting=slider.range(places))
    return Moved(tensor, scheme, {**controls, views.SLIDER: places}, element)


def figures(tensor: PageTensor, scheme: qc.Scheme) -> str:
    """Return the error of the range in use as a line of HTML."""
    report = cache.report(tensor, scheme)
    clipped = f"clipped {report.clipped:,} of {tensor.elements:,} ({100 * report.clipped_fraction:.3g} %)"
    error = f"<b>SQNR {qc.decibels(report.sqnr_db, 2)}</b> · MSE {report.mse:.3g}"
    return f'<p class="qs-line"><span>{error} · {clipped}</span></p>'


def beside(
    block: tuple[int, ...] | None,
    drawn: qc.Scheme,
    tensor: PageTensor,
    scheme: qc.Scheme,
    shown: ElementArithmetic,
) -> BesideMaps:
    """Return what of the page follows with its maps.

    Args:
        block: whose elements the histogram shows; None for all.
        drawn: the scheme of the latest run: if only the range is another, curve and table still hold.
    """
    late = () if replace(scheme, range_setting=drawn.range_setting) == drawn else ("rng_table", "rng_curve")
    result = cache.result(tensor, scheme)
    low, high = qc.range_in_use(result, block)
    html = {FIGURES: figures(tensor, scheme)}
    fields = {views.LOW: f"{low:g}", views.HIGH: f"{high:g}"}
    bands = {views.CHART: (float(low), float(high))}
    return BesideMaps(html, fields=fields, bands=bands, late=late, controls=ends.stand(result, block))
