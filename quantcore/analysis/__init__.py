"""How good a result is: metrics, views, sweeps and curves."""

from quantcore.analysis.blocks import block_errors, elements_of
from quantcore.analysis.cell_boxes import Span
from quantcore.analysis.metrics import (
    Errors,
    Report,
    SchemeErrors,
    decibels,
    errors,
    errors_by_region,
    errors_of,
    estimate,
    known_report,
    report,
    sqnr,
    squares_among,
)
from quantcore.analysis.range_comparison import RangeMark, range_in_use, range_marks
from quantcore.analysis.range_curves import RangeCurve, SearchCurve, range_curve, search_curve
from quantcore.analysis.sums import (
    BoxSums,
    Sums,
    power_of,
    quick_sums,
    relative_error,
    sqnr_of,
    sums_of,
)
from quantcore.analysis.sweep import Row, default_schemes, frontier, sweep, sweep_rows
from quantcore.analysis.tree import Leaf, Tile, tiles
from quantcore.analysis.views import (
    MAPS,
    MAX_CELLS,
    SYMBOLS,
    Cells,
    MapData,
    View,
    box_of_blocks,
    element,
    map_data,
    place,
    step_of,
    steps,
)
from quantcore.analysis.windows import in_tensor, joined, output_data, value_data
