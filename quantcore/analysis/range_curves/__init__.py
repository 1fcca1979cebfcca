"""How the error depends on the range: curves over ranges, the ranges that settings choose, the trials of a search."""

from quantcore.analysis.range_curves.range_comparison import RangeMark, range_in_use, range_marks
from quantcore.analysis.range_curves.range_curve import RangeCurve, range_curve
from quantcore.analysis.range_curves.search_curve import SearchCurve, search_curve

__all__ = [
    "RangeCurve",
    "RangeMark",
    "SearchCurve",
    "range_curve",
    "range_in_use",
    "range_marks",
    "search_curve",
]
