"""How a convention differs from the textbook, as sentences for one scheme."""

import torch

from quantcore.conventions import CHOICES, TEXTBOOK, SchemeFacts
from quantcore.qparams import parameters
from quantcore.range_setting import Task
from quantcore.scheme import Scheme, as_scheme, facts_of

# The choices whose effect is the same in all blocks if the range is fixed
_OF_RANGE = {
    "zero_in_range", "widen_to_eps", "min_range", "range_overflow", "scale_precision", "eps",
    "eps_replacement", "zero_point_order", "zero_point_precision", "zero_point_scale",
    "replaced_zero_point", "nan_zero_point",
}  # fmt: skip


def differences(scheme: Scheme | str) -> list[str]:
    """Return one short phrase for each choice in which this scheme's convention differs from the textbook.

    Choices that can't change a number of this scheme are left out: asymmetric choices of a symmetric scheme,
    or a kernel that gives the codes of x / s because every scale is a power of two. For quantized scales, the
    differences of their convention follow as "for the scales, …".

    >>> differences(Scheme.parse("int8 torchao"))[:2]
    ['the scale is max|x| / 127.5', 'no scale is below 2^-126']
    """
    scheme = as_scheme(scheme)
    phrases = _phrases(scheme)
    if scheme.scales is not None:
        # the sentence on NaN in x covers it: the scale is NaN because x is
        phrases += [f"for the scales, {phrase}" for phrase in _phrases(scheme.scales, skipped=("nan",))]
    return phrases


def _phrases(scheme: Scheme, skipped: tuple[str, ...] = ()) -> list[str]:
    facts = facts_of(scheme)
    return [
        choice.sentence(facts.rules.choices[name], facts)
        for name, choice in CHOICES.items()
        if name not in skipped
        and facts.rules.choices[name] != TEXTBOOK.choices[name]
        and matters(name, scheme)
    ]


def matters(name: str, scheme: Scheme) -> bool:
    """Tell whether another value of the choice can change a number of the scheme."""
    facts = facts_of(scheme)
    return CHOICES[name].matters(facts) and not (name in _OF_RANGE and _same_for_fixed(name, scheme, facts))


def _same_for_fixed(name: str, scheme: Scheme, facts: SchemeFacts) -> bool:
    """Tell whether the textbook's value of the choice gives a fixed range the same scale and zero_point."""
    setting = scheme.range_setting
    if not setting.ends_are_given:
        return False
    low, high = setting(torch.zeros(1, 1), Task(facts.fmt, facts.symmetric))
    own, other = (
        parameters(low, high, facts.symmetric, facts.fmt, record)
        for record in (facts.rules, facts.rules.changed(**{name: TEXTBOOK.choices[name]}))
    )
    return bool((own.scale == other.scale).all() and (own.zero_point == other.zero_point).all())
