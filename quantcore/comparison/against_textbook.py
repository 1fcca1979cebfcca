"""What a convention does differently from the textbook, in words, for one scheme."""

from collections.abc import Callable

import torch

from quantcore.comparison.textbook_case import Case
from quantcore.comparison.textbook_sentences import SENTENCES
from quantcore.conventions import TEXTBOOK
from quantcore.qparams import parameters
from quantcore.range_setting import Fixed
from quantcore.scheme import Scheme


def differences(scheme: Scheme) -> list[str]:
    """Return one short phrase for each choice in which this scheme's convention differs from the textbook.

    A choice is named if it can change a number of this scheme: an asymmetric choice of a symmetric scheme is
    left out, and so is a kernel whose codes are those of x / s because every scale is a power of two. Where
    the scales are quantized themselves, what their convention does differently follows, as "for the scales, …".

    >>> differences(Scheme.parse("int8 torchao"))[:2]
    ['codes are round(x · (1/s))', 'the scale is max|x| / 127.5']
    """
    phrases = _phrases(scheme)
    if scheme.scales is not None:
        # what becomes of a NaN is said of x: its scale is NaN because x is
        phrases += [f"for the scales, {phrase}" for phrase in _phrases(scheme.scales, skipped=("nan",))]
    return phrases


def _phrases(scheme: Scheme, skipped: tuple[str, ...] = ()) -> list[str]:
    case = Case(scheme)
    phrases = []
    for choice, words in SENTENCES.items():
        value = getattr(case.c, choice)
        if choice in skipped or value == getattr(TEXTBOOK, choice) or not matters(choice, case):
            continue
        phrases.append(words(case) if callable(words) else words[value])
    return phrases


def matters(choice: str, case: Case) -> bool:
    """Whether another value of the choice can change a number of the case."""
    rule = _MATTERS.get(choice)
    return (rule is None or rule(case)) and not (choice in _OF_RANGE and _same_for_fixed(choice, case))


# What a range that is fixed decides once for all
_OF_RANGE = (
    "zero_in_range",
    "range_overflow",
    "widen_range",
    "smallest_range",
    "smallest_scale",
    "replacement",
    "scale_precision",
    "zero_point_order",
    "zero_point_precision",
    "zero_point_scale",
    "replaced_zero_point",
    "nan_zero_point",
)


def _same_for_fixed(choice: str, case: Case) -> bool:
    """Whether the textbook's value of the choice gives a fixed range the same scale and zero_point."""
    setting = case.scheme.range_setting
    if not isinstance(setting, Fixed):
        return False
    low, high = torch.tensor([setting.low]), torch.tensor([setting.high])
    own, other = (
        parameters(low, high, case.symmetric, case.fmt, record)
        for record in (case.c, case.c.changed(**{choice: getattr(TEXTBOOK, choice)}))
    )
    return bool((own.scale == other.scale).all() and (own.zero_point == other.zero_point).all())


def _kernel(case: Case) -> bool:
    kernel = case.kernel
    return kernel != "A" and not (kernel == "B" and case.exact_inverse)


def _rounding(case: Case) -> bool:
    return not case.codebook and not (case.kernel in "FG" and case.whole and case.c.rounding == "toward_zero")


def _nan(case: Case) -> bool:
    if case.c.cast == "int32" and _cast(case):
        return False  # said there
    return case.takes_nonfinite and not (case.min_max and case.c.bad_scale == "nonfinite")


def _cast(case: Case) -> bool:
    """Whether an unclamped value can go beyond the cast.

    Min-max brings x / s into the codes, except where 1/s overflows, infinity where the range is finite, and
    ∞ / ∞, which is NaN.
    """
    if not case.whole or (case.min_max and not case.takes_nonfinite):
        return False
    if not case.min_max or case.c.cast == "low_bits":
        return True
    if case.c.cast == "int64":
        return case.c.finite_range and not case.symmetric
    return case.c.cast == "int32" and case.shifted and case.fmt.signed and not case.symmetric


def _bad_scale(case: Case) -> bool:
    if case.c.bad_scale == "nan":
        return case.min_max
    return _range_overflow(case)


def _symmetric_scale(case: Case) -> bool:
    return case.symmetric and case.ranged and not case.same_scale_rule


def _range_overflow(case: Case) -> bool:
    c = case.c
    return case.asymmetric and c.asymmetric_scale == "range" and c.scale_precision == "float32"


def _smallest_scale(case: Case) -> bool:
    """Whether a scale can be so small: powers of two and hqq's inverse have ends of their own."""
    c = case.c
    if not case.ranged or c.smallest_range or c.widen_range:
        return False
    return not c.symmetric_scale.startswith("power") if case.symmetric else c.asymmetric_scale == "range"


def _scale_precision(case: Case) -> bool:
    """Whether several operations are rounded, or 2 · max|x| overflows; else float32 comes to the same."""
    c = case.c
    several = c.inverse == "of_range" or c.symmetric_scale in ("regridded", "whole_range")
    return case.asymmetric or (case.ranged and several and not case.same_scale_rule)


def _inverse(case: Case) -> bool:
    if case.c.inverse == "of_range":
        return case.symmetric and case.ranged and (case.inverts or case.c.decoding == "divided")
    return case.inverts and case.stored_as_values and not case.stored_in_units


def _nan_zero_point(case: Case) -> bool:
    c = case.c
    of_zero = c.zero_point_scale == "raw" and c.replaced_zero_point == "computed"
    infinite = case.takes_nonfinite and case.min_max and c.bad_scale != "nonfinite"
    return _zero_point_found(case) and (of_zero or infinite)


def _zero_point_found(case: Case) -> bool:
    return case.asymmetric and case.c.zero_point == "integer" and case.c.asymmetric_scale == "range"


def _zero_point_order(case: Case) -> bool:
    """Whether qmin - low / s can be rounded to a tie, or to another one: not from 0, nor of float32s in float64."""
    c, qmin = case.c, case.fmt.qmin
    exact = c.zero_point_precision == "float64" and c.zero_point_scale == "final" and qmin % 2 == 0
    return _zero_point_found(case) and qmin != 0 and not exact


def _replaced_zero_point(case: Case) -> bool:
    if not _smallest_scale(case) or not case.whole:
        return False
    middle = case.symmetric and case.c.replaced_zero_point == "zero" and bool(case.middle)
    return middle or _zero_point_found(case)


_MATTERS: dict[str, Callable[[Case], bool]] = {
    "kernel": _kernel,
    "rounding": _rounding,
    # also of max|x| / qmax: where that is subnormal, it is rounded so far that codes overflow
    "overflow": lambda case: case.whole,
    "nan": _nan,
    "nan_value": lambda case: False,  # said of "nan"
    "cast": _cast,
    "zero_value": lambda case: case.zero_value != 0,
    "zero_in_range": lambda case: case.asymmetric,
    "range_overflow": _range_overflow,
    "finite_range": lambda case: case.asymmetric and case.min_max and case.takes_nonfinite,
    "widen_range": lambda case: case.ranged,
    "smallest_range": lambda case: case.ranged,
    "symmetric_scale": _symmetric_scale,
    "inverse": _inverse,
    "bad_inverse": _inverse,
    "asymmetric_scale": lambda case: case.asymmetric,
    "narrow_scale_bits": lambda case: False,  # said of "symmetric_scale"
    "scale_precision": _scale_precision,
    "smallest_scale": _smallest_scale,
    "replacement": lambda case: (
        _smallest_scale(case) and case.c.smallest_scale == TEXTBOOK.smallest_scale  # else said there
    ),
    "coded_with": lambda case: case.scheme.scales is not None and not case.stored_exactly,
    "zero_scale": lambda case: case.scheme.scales is not None and case.c.inverse == "of_scale",
    "coded_least": lambda case: case.may_be_least,
    "coded_smallest": lambda case: case.ranged or case.smallest_given < case.c.coded_smallest,
    "short_block": lambda case: case.flat,
    "bad_scale": _bad_scale,
    "zero_point": lambda case: case.asymmetric or case.given_shift,
    "zero_point_order": _zero_point_order,
    "zero_point_precision": lambda case: _zero_point_found(case) and case.c.scale_precision == "float32",
    "zero_point_scale": lambda case: (
        _zero_point_found(case)
        and case.c.scale_precision == "float32"  # else said there
        and case.c.replaced_zero_point == "computed"
    ),
    "replaced_zero_point": _replaced_zero_point,
    "nan_zero_point": _nan_zero_point,
    "unsigned_symmetric_zero_point": lambda case: (
        case.symmetric and case.ranged and case.middle != case.fmt.middle if case.whole else False
    ),
    "decoding": lambda case: case.symmetric and case.ranged,
}
