"""Plotly figures of results; the only part of quantcore that imports plotly.

Colors: original and dequantized share one color scale, so that equal colors mean equal values; the error has
a diverging scale centered on 0; codes span the full range of the format. All palettes are safe for
color-blind readers.
"""

import plotly.graph_objects as go

from quantcore.figures import typography
from quantcore.figures.described import described
from quantcore.figures.distribution import (
    DistributionData,
    distribution,
    distribution_data,
    grid_values,
    histogram,
)
from quantcore.figures.harm import HARM_AXES, harm
from quantcore.figures.maps import beyond_colors, drawn_maps, maps, scales_of_maps, titles_of_maps
from quantcore.figures.methods import (
    AFTER,
    BEFORE,
    awq_search,
    cache_granularities,
    cached_keys,
    channel_maxima,
    gptq_column,
    histograms,
    methods,
    outlier_columns,
    tokens_curve,
)
from quantcore.figures.number_line import number_line
from quantcore.figures.output_errors import output_errors
from quantcore.figures.pair import PairData, pair, pair_data
from quantcore.figures.pareto import AXES, error_maps, pareto
from quantcore.figures.ranges import range_error, range_histogram, search_error
from quantcore.figures.scales import scales
from quantcore.figures.size_curve import size_curve
from quantcore.figures.style import (
    BLOCKS,
    base_layout,
    colors_at,
    enlarged,
    inks_on,
    palette,
    short_scheme,
    thumbnail,
)
from quantcore.figures.treemap import treemap


def to_html(figure: go.Figure) -> str:
    """Return an HTML page that works offline: it contains plotly.js."""
    config = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, config=config)
    return page


__all__ = [
    "AFTER",
    "AXES",
    "BEFORE",
    "BLOCKS",
    "DistributionData",
    "HARM_AXES",
    "PairData",
    "awq_search",
    "base_layout",
    "beyond_colors",
    "cache_granularities",
    "cached_keys",
    "channel_maxima",
    "described",
    "distribution",
    "distribution_data",
    "drawn_maps",
    "enlarged",
    "error_maps",
    "gptq_column",
    "grid_values",
    "harm",
    "histogram",
    "histograms",
    "inks_on",
    "maps",
    "methods",
    "number_line",
    "outlier_columns",
    "output_errors",
    "pair",
    "pair_data",
    "palette",
    "pareto",
    "range_error",
    "range_histogram",
    "scales",
    "scales_of_maps",
    "search_error",
    "short_scheme",
    "size_curve",
    "thumbnail",
    "titles_of_maps",
    "to_html",
    "tokens_curve",
    "treemap",
    "typography",
]
