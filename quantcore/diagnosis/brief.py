"""A finding in a few words, for a place of one line: the sentence of the finding has all its numbers."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from quantcore.analysis import decibels
from quantcore.diagnosis.record import Finding, channels, index, number, percent
from quantcore.wording import count

LONGEST = 120  # characters of a sentence that is short enough as it is


def in_brief(finding: Finding, rank: int) -> str:
    """Return a finding as one short sentence, made from its facts.

    Args:
        rank: how many axes the tensor has.

    >>> from quantcore import Scheme, apply, diagnose
    >>> (finding,) = diagnose(apply([[0.1, 9.0], [0.2, 8.0], [0.3, 7.0]], Scheme.parse("int4 symmetric")))
    >>> in_brief(finding, 2)
    'Column 1 is 30× larger: the others lose 25 dB.'
    """
    write = _BRIEF.get(finding.kind)
    if write is not None:
        return write(finding.facts, rank)
    if len(finding.sentence) <= LONGEST:
        return finding.sentence
    for end in (". ", "; "):  # the first part says what is wrong
        first, found, _ = finding.sentence.partition(end)
        if found:
            return f"{first}."
    return finding.sentence


def _lost(with_it: float, without: float) -> str:
    lost = without - with_it
    if not math.isfinite(lost):
        return f"have {decibels(with_it)} instead of {decibels(without)}"
    return f"lose {decibels(lost, 0 if lost >= 9.95 else 1)}"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}×" if 9.95 <= ratio < 1e6 else f"{ratio:.2g}×"


def _outlier_channel(facts: Mapping[str, Any], rank: int) -> str:
    named = channels(rank, facts["axis"], facts["channels"])
    is_ = "are" if len(facts["channels"]) > 1 else "is"
    ratio, lost = facts["first"] / facts["second"], _lost(facts["sqnr_with"], facts["sqnr_without"])
    return f"{named} {is_} {'up to ' * (is_ == 'are')}{_times(ratio)} larger: the others {lost}."


def _outlier_element(facts: Mapping[str, Any], rank: int) -> str:
    ratio, lost = abs(facts["value"]) / facts["second"], _lost(facts["sqnr_with"], facts["sqnr_without"])
    outlier = f"{number(facts['value'])} at {index(facts['at'])}"
    return f"{outlier} is {_times(ratio)} the next largest: the others {lost}."


def _scale_out_of_range(facts: Mapping[str, Any], rank: int) -> str:
    few = count(facts["blocks"], facts["what"])
    wrong = f"{'is' if facts['blocks'] == 1 else 'are'} too {'large' if facts['too_large'] else 'small'}"
    before, after = decibels(facts["sqnr_stored"]), decibels(facts["sqnr_exact"])
    return f"{few} {wrong} for {facts['stored_in']}: {before} there instead of {after}."


def _better_scheme(facts: Mapping[str, Any], rank: int) -> str:
    now, then = (decibels(facts[name]) for name in ("sqnr_db", "sqnr_db_after"))
    more = facts["more_storage"]
    cost = f"{percent(abs(more))} {'more' if more > 0 else 'less'}" if more else "the same"
    return f"Another scheme reaches {then} instead of {now}, for {cost} storage."


def _half_precision(facts: Mapping[str, Any], rank: int) -> str:
    now, then = decibels(facts["now_db"]), decibels(facts["then_db"])
    return (
        f"Computing in {facts['dtype']} changes {count(facts['differ'], 'code')}: {now}, in float32 {then}."
    )


_BRIEF: dict[str, Callable[[Mapping[str, Any], int], str]] = {
    "outlier_channel": _outlier_channel,
    "outlier_element": _outlier_element,
    "scale_out_of_range": _scale_out_of_range,
    "better_scheme": _better_scheme,
    "half_precision": _half_precision,
}
