"""What a search found, in words: the mistake first, then which rules made these integers."""

from dataclasses import astuple, replace

import torch

from quantcore.conventions import TEXTBOOK
from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerChannel, PerGroup, PerTensor, shared_by
from quantcore.matching.record import Candidate, few, precisions
from quantcore.notation import write_call
from quantcore.range_setting import HalfQuadratic, Percentile
from quantcore.scheme import Scheme
from quantcore.wording import count, joined, sentence


def answer(candidate: Candidate, elements: int, rank: int) -> str:
    """Return one or two sentences.

    Args:
        elements: of the tensor.
        rank: number of its axes.

    >>> answer(Candidate(Scheme.parse("int8 symmetric per_channel(1)"), 0), 16, 2)
    'All 16 integers are int8 symmetric, one scale per column (axis 1).'
    >>> answer(Candidate(Scheme.parse("int8 per_channel(0) torchao"), 0, dtype=torch.bfloat16), 16, 2)
    'All 16 integers are torchao int8 symmetric, one scale per row (axis 0), computed in bfloat16.'
    """
    made, differing = rules_of(candidate, rank), candidate.differing
    explained = few(differing, elements) or (differing == 1 and not candidate.corruption.computed)
    if computed_in(candidate):  # libraries that agree in float32 differ in half precision
        made = f"{joined(_libraries(candidate), 'or')} {made}{_rounded(candidate)}"
    wrong = [*candidate.corruption.told, *(sentence(note) for note in candidate.notes)]
    if not differing:
        if not wrong:
            return f"All {elements:,} integers are {made}."
        return f"{'. '.join(wrong)}; everything else is {made}."
    if not explained:
        told = "; ".join(step.told for step in candidate.corruption.stored).lower()
        how = f" ({told})" if told else ""
        closest = f"of {made}{how}, the closest, {differing:,} of {elements:,} differ"
        return f"No rules that were tried make these integers: {closest}."
    differ = "differs" if differing == 1 else "differ"
    lead = f"{'. '.join(wrong)}. " if wrong else ""
    return f"{lead}{differing:,} of {elements:,} integers {differ}; all others are {made}."


def rules_of(candidate: Candidate, rank: int) -> str:
    """Return `rules` of a candidate and `computed_in`."""
    of_scale = rules(candidate.scheme, rank, candidate.rule)
    return ", ".join(filter(None, (of_scale, computed_in(candidate))))


def computed_in(candidate: Candidate) -> str:
    """Return in which dtype scales and codes are computed; empty if x is float32 and not converted.

    >>> computed_in(Candidate(Scheme.parse("int8 per_channel(0) torchao.int8"), 0, dtype=torch.float16))
    'scales computed in float16, codes in float32'
    """
    if candidate.dtype == torch.float32 and candidate.converted is None:
        return ""
    of_scales, of_codes = precisions(candidate.scheme, candidate.dtype)
    same = of_scales == of_codes or candidate.scheme.range_setting.gives_parameters
    return f"computed in {of_codes}" if same else f"scales computed in {of_scales}, codes in {of_codes}"


def _rounded(candidate: Candidate) -> str:
    """Return how many values of x were rounded to be given to the library; empty if none were."""
    if not candidate.converted:
        return ""
    name = str(candidate.dtype).removeprefix("torch.")
    were = "was" if candidate.converted == 1 else "were"
    return f", after {count(candidate.converted, 'value')} of x {were} rounded to {name}"


def _libraries(candidate: Candidate) -> list[str]:
    """Return the libraries of the schemes with the format, symmetry and dtypes of the candidate's first."""

    def told(scheme: Scheme) -> tuple[object, ...]:
        return scheme.format, scheme.symmetric, precisions(scheme, candidate.dtype)

    alike = [s for s in candidate.schemes if told(s) == told(candidate.scheme)]
    return list(dict.fromkeys(s.convention.library for s in alike))


def rules(scheme: Scheme, rank: int, rule: str = "") -> str:
    """Return format, symmetry and granularity in words: ``int8 symmetric, one scale``.

    ``rule``: of the scale, if the scheme has only its number.

    >>> rules(Scheme.parse("int8n"), 2), rules(Scheme.parse("int8 given(0.5)"), 2, "max|x| / 128")
    ('int8 symmetric, narrow range −127..127, one scale', 'int8 symmetric, one scale: max|x| / 128')
    """
    fixed = f": {rule}" if rule else ", with fixed scales"
    known = fixed if scheme.range_setting.gives_parameters else _of_range(scheme)
    chosen = isinstance(scheme.range_setting, Percentile | HalfQuadratic)
    setting = f", range setting {write_call(scheme.range_setting)}" if chosen else ""
    return f"{_codes(scheme)}, {_scales(scheme.granularity, rank)}{known}{setting}"


def _of_range(scheme: Scheme) -> str:
    """Return how the range is divided, if not by its steps, and whether its minimum is subtracted from x."""
    fmt, convention = scheme.format, scheme.convention
    if scheme.symmetric or not isinstance(fmt, IntFormat):
        return ""
    divided = convention.scale.asymmetric_scale == "range_over_codes"
    of_scale = f": (max − min) / {convention.scale.parts(fmt)}" if divided else ""
    plain = convention.library == TEXTBOOK.library and convention.zero_point.is_min
    return of_scale + ", (x − min) / scale without a zero point" * plain


def _codes(scheme: Scheme) -> str:
    """Return format and symmetry, a narrow range and an unusual center."""
    fmt = scheme.format
    if not isinstance(fmt, IntFormat):
        return str(fmt)
    kind = f"{replace(fmt, narrow=False)} {'symmetric' if scheme.symmetric else 'asymmetric'}"
    center = scheme.convention.zero_point.middle(fmt)
    if scheme.symmetric and not scheme.range_setting.gives_parameters and center not in (0, fmt.middle):
        kind += f" around zero point {center}"
    ends = f"{fmt.qmin}..{fmt.qmax}".replace("-", "−")
    return f"{kind}, narrow range {ends}" if fmt.narrow else kind


def _scales(granularity: Granularity, rank: int) -> str:
    return "one scale" if granularity == PerTensor() else f"one scale per {shared_by(granularity, rank)}"


def nearest(candidate: Candidate, expected: Scheme, rank: int) -> Scheme:
    """Return the candidate's scheme that has most in common with the expected one; ``rank``: of the original.

    >>> one, other = map(Scheme.parse, ("int8 per_channel(0)", "int4 per_channel(1)"))
    >>> candidate = Candidate(one, 0, same=(other,))
    >>> str(nearest(candidate, Scheme.parse("int4 per_channel(-1)"), 2))
    'int4 symmetric per_channel(axis=1) min_max textbook'
    """
    return min(candidate.schemes, key=lambda scheme: _differences(scheme, expected, rank))


def _differences(found: Scheme, expected: Scheme, rank: int) -> int:
    """Count the parts in which two schemes differ; of integers, bits, signedness and range count each."""
    integers = isinstance(found.format, IntFormat) and isinstance(expected.format, IntFormat)
    sides = (
        (s.symmetric, s.convention.name, _from_start(s.granularity, rank))
        + (astuple(s.format) if integers else (s.format,))
        for s in (found, expected)
    )
    return sum(a != b for a, b in zip(*sides, strict=True))


def _from_start(granularity: Granularity, rank: int) -> Granularity:
    """Return the granularity with its axis, if it has one, counted from the start."""
    if isinstance(granularity, PerChannel | PerGroup):
        return replace(granularity, axis=granularity.axis % max(rank, 1))
    return granularity
