"""What is wrong with a result or could be better, with this tensor's numbers and a scheme that fixes it.

A kind of finding is one function ``kind(context) -> Iterator[Finding]`` in one of `_MODULES`, whose decorator
says all that is known about the kind; `KINDS` has them by name. A scheme is proposed only after it was
computed on the same tensor and was better.
"""

import math
from dataclasses import replace

from quantcore.analysis import Report
from quantcore.diagnosis import (
    alternatives,
    bit_budget,
    blocks,
    codes,
    dtype,
    nonfinite,
    outliers,
    ranges,
    spare_bits,
    stored_scales,
    ties,
)
from quantcore.diagnosis.alternatives import STORAGE, better_scheme
from quantcore.diagnosis.brief import in_brief
from quantcore.diagnosis.context import Context
from quantcore.diagnosis.kind import FAMILIES, FindingExample, Kind, family_of
from quantcore.diagnosis.record import (
    MAX_BOXES,
    SEVERITIES,
    Box,
    Finding,
    Gain,
    Severity,
    index,
    number,
    percent,
)
from quantcore.quantization import Quantized, check_result

# Findings of the same severity come in this order, and in that of their modules
_MODULES = (
    nonfinite, stored_scales, codes, outliers, ranges, bit_budget, blocks, alternatives, dtype, spare_bits,
    ties,
)  # fmt: skip
KINDS: dict[str, Kind] = {
    kind.name: kind for module in _MODULES for kind in vars(module).values() if isinstance(kind, Kind)
}


def diagnose(result: Quantized, report: Report | None = None) -> list[Finding]:
    """Return the known problems of a result, the worst first; empty if there are none.

    Args:
        report: the result's `report`, if already computed.

    >>> from quantcore import Scheme, apply
    >>> [f.kind for f in diagnose(apply([[0.0, 1.0], [2.0, 3.0]], Scheme()))]
    ['one_sided']
    """
    check_result(result, "diagnose")
    context = Context(result, report, unfit=_has_error)
    kinds = [kind for kind in KINDS.values() if kind.applies(result.scheme, finite=context.finite)]
    found = [finding for kind in kinds if kind != better_scheme for finding in kind(context)]
    names = {finding.kind for finding in found}
    found = [finding for finding in found if not names & set(KINDS[finding.kind].follows)]
    fixes = [finding for finding in found if finding.fix]
    # an error is fixed first: what is left to gain shows after that
    if better_scheme in kinds and all(finding.severity != "error" for finding in fixes):
        context.reached = max((_reaches(finding, context) for finding in fixes), default=-math.inf)
        found += better_scheme(context)
    return [_priced(f, context) for f in sorted(found, key=lambda f: SEVERITIES.index(f.severity))]


def _reaches(finding: Finding, context: Context) -> float:
    """Return the SQNR in dB of a finding's fix, if it takes about the same storage."""
    trial = context.trial(finding.fix) if finding.fix else None
    return trial.sqnr_db if trial and trial.bits_per_element <= STORAGE * context.bits else -math.inf


def _priced(finding: Finding, context: Context) -> Finding:
    """Return the finding, which says what its fix costs if that is more than about the same storage."""
    trial = context.trial(finding.fix) if finding.fix else None
    if trial is None or trial.bits_per_element <= STORAGE * context.bits:
        return finding
    cost = f"{number(trial.bits_per_element)} bits per element instead of {number(context.bits)}"
    facts = {**finding.facts, "bits_of_fix": trial.bits_per_element, "bits_now": context.bits}
    return replace(finding, sentence=f"{finding.sentence} The fix takes {cost}.", facts=facts)


def _has_error(context: Context) -> bool:
    """Tell whether the result of a finite tensor has a finding of severity error."""
    errors = (kind for kind in KINDS.values() if kind.severity == "error")
    kinds = (kind for kind in errors if kind.applies(context.scheme, finite=True))
    return any(finding.severity == "error" for kind in kinds for finding in kind(context))
