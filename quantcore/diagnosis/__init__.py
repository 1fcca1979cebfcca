"""What is wrong with a result or could be better, with this tensor's numbers and a scheme that fixes it.

A kind of finding is a function ``kind(context) -> Iterator[Finding]``; `KINDS` has them by name. A scheme is
proposed only after it was computed on the same tensor and was better.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from quantcore.analysis import Report
from quantcore.diagnosis import tables
from quantcore.diagnosis.alternatives import STORAGE, better_scheme
from quantcore.diagnosis.applies import applies
from quantcore.diagnosis.bit_budget import per_channel, small_groups, spare_bits
from quantcore.diagnosis.blocks import constant_block, tiny_block, zero_block
from quantcore.diagnosis.codes import (
    nan,
    negatives_lost,
    wrapped,
    zero_not_exact,
    zero_point_clamped,
    zero_point_outside,
)
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.examples import EXAMPLES
from quantcore.diagnosis.formatting import index, number, percent
from quantcore.diagnosis.outliers import outlier_channel, outlier_element
from quantcore.diagnosis.ranges import clipped_too_much, clips_too_little, codes_unused, one_sided
from quantcore.diagnosis.record import MAX_BOXES, SEVERITIES, Box, Finding, Gain, Severity
from quantcore.diagnosis.stored_scales import scale_out_of_range
from quantcore.diagnosis.ties import ties
from quantcore.quantization import Quantized

Kind = Callable[[Context], Iterator[Finding]]
_ALL: tuple[Kind, ...] = (
    nan, scale_out_of_range, wrapped, zero_point_outside, zero_point_clamped, negatives_lost, zero_not_exact, one_sided,
    outlier_channel, outlier_element, clipped_too_much, clips_too_little, codes_unused, per_channel,
    small_groups, better_scheme, tiny_block, zero_block, constant_block, spare_bits, ties,
)  # fmt: skip
KINDS: dict[str, Kind] = {kind.__name__: kind for kind in _ALL}
# The kinds whose findings may be errors, but for `nan`: of a scheme with NaN, the SQNR is not better
_ERRORS: tuple[Kind, ...] = (scale_out_of_range, wrapped, zero_point_outside, zero_point_clamped, negatives_lost)
# Findings that follow from others, and are left out if one of those was found
FOLLOWS: dict[str, tuple[str, ...]] = {
    "clipped_too_much": ("nan", "wrapped", "zero_point_outside", "zero_point_clamped", "negatives_lost"),
    "codes_unused": ("nan", "zero_point_outside"),
    "one_sided": ("outlier_element", "outlier_channel", "negatives_lost", "wrapped"),
    "per_channel": ("outlier_element", "outlier_channel"),
    "clips_too_little": ("outlier_element", "outlier_channel", "per_channel", "tiny_block", "scale_out_of_range"),
}
# How kinds that depend on a uniform step are found for floats and codebooks
_OF_TABLES: dict[str, Kind] = {
    kind.__name__: kind for kind in (tables.one_sided, tables.codes_unused)
}


def diagnose(result: Quantized, report: Report | None = None) -> list[Finding]:
    """Return the known problems of a result, the worst first; empty if there are none.

    Args:
        report: the result's `report`, if already computed.

    >>> from quantcore import Scheme, apply
    >>> [f.kind for f in diagnose(apply([[0.0, 1.0], [2.0, 3.0]], Scheme()))]
    ['one_sided']
    """
    context = Context(result, report, unfit=_has_error)
    kinds_of = KINDS if result.scheme.format.has_zero_point else KINDS | _OF_TABLES
    names = [name for name in KINDS if applies(name, result.scheme, finite=context.finite)]
    found = [f for name in names if name != better_scheme.__name__ for f in kinds_of[name](context)]
    kinds = {finding.kind for finding in found}
    found = [finding for finding in found if not kinds & set(FOLLOWS.get(finding.kind, ()))]
    fixes = [finding for finding in found if finding.fix]
    # an error is fixed first: what is left to gain shows after that
    if better_scheme.__name__ in names and all(finding.severity != "error" for finding in fixes):
        context.reached = max((_reaches(finding, context) for finding in fixes), default=-math.inf)
        found += better_scheme(context)
    return [_priced(f, context) for f in sorted(found, key=lambda f: SEVERITIES.index(f.severity))]


def _reaches(finding: Finding, context: Context) -> float:
    """The SQNR in dB of a finding's fix, if it takes about the same storage."""
    trial = context.trial(finding.fix) if finding.fix else None
    return trial.sqnr_db if trial and trial.bits_per_element <= STORAGE * context.bits else -math.inf


def _priced(finding: Finding, context: Context) -> Finding:
    """The finding, which says what its fix costs if that is more than about the same storage."""
    trial = context.trial(finding.fix) if finding.fix else None
    if trial is None or trial.bits_per_element <= STORAGE * context.bits:
        return finding
    cost = f"{number(trial.bits_per_element)} bits per element instead of {number(context.bits)}"
    facts = {**finding.facts, "bits_of_fix": trial.bits_per_element, "bits_now": context.bits}
    return replace(finding, sentence=f"{finding.sentence} The fix takes {cost}.", facts=facts)


def _has_error(context: Context) -> bool:
    """Whether the result of a finite tensor has a finding of severity error."""
    kinds = (kind for kind in _ERRORS if applies(kind.__name__, context.scheme, finite=True))
    return any(finding.severity == "error" for kind in kinds for finding in kind(context))


__all__ = [
    "Box", "Context", "EXAMPLES", "Finding", "Gain", "KINDS", "MAX_BOXES", "SEVERITIES", "Severity", "diagnose", "index",
    "number", "percent",
]  # fmt: skip
