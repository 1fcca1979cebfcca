"""The numbers of a result for its line and its card: exact where that is quick or done, else of a sample."""

import math
from typing import NamedTuple

from quantcore.analysis import Report, decibels, estimate, known_report, report
from quantcore.quantization import Quantized
from quantcore.scheme import bits_per_element

EXACT = 1 << 20  # elements up to which all are measured: 10 ms
SAMPLED = 1 << 18  # elements that are measured of more


class NumbersShown(NamedTuple):
    """``report``: of all elements, or of a sample, which ``mark`` says: "≈ " before each number."""

    report: Report
    mark: str
    bits: float


def numbers(result: Quantized) -> NumbersShown:
    """Return the numbers of a result.

    They are exact if it has at most `EXACT` elements or its report was computed before.
    """
    found, mark = known_report(result), ""
    if found is None and result.codes.numel() <= EXACT:
        found = report(result)
    elif found is None:
        found, mark = estimate(result, SAMPLED), "≈ "
    return NumbersShown(found, mark, bits_per_element(result.scheme, tuple(result.codes.shape)))


def percent(fraction: float) -> str:
    """Write a share in percent with three digits; ``< 0.001 %`` for the smallest.

    >>> percent(0.0), percent(0.00152587), percent(1e-7)
    ('0 %', '0.153 %', '< 0.001 %')
    """
    value = 100 * fraction
    return f"{value:.3g} %" if not 0 < value < 0.001 else "< 0.001 %"


def signed(value: float, digits: int = 4) -> str:
    """Write a number with a true minus sign."""
    return f"{value:.{digits}g}".replace("-", "−")


def quality(found: NumbersShown) -> str:
    """Write SQNR and the share of clipped elements."""
    sqnr = decibels(found.report.sqnr_db) if not math.isnan(found.report.sqnr_db) else "undefined"
    return f"SQNR {found.mark}{sqnr} · clipped {found.mark}{percent(found.report.clipped_fraction)}"


def codes_used(result: Quantized, found: NumbersShown) -> str:
    """Write the range of codes, and how many of them occur."""
    fmt, used = result.scheme.format, f"{found.report.codes_used:,} of {found.report.codes_available:,} used"
    low, high = fmt.bounds if fmt.has_zero_point else (None, None)
    span = f"{signed(low)}..{signed(high)}, " if low is not None and high is not None else ""
    return f"codes {span}{'≥ ' if found.mark else ''}{used}"
