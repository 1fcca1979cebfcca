"""How a found scheme differs from the expected one."""

from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerChannel, PerGroup
from quantcore.matching.record import Candidate
from quantcore.notation import write_call
from quantcore.scheme import Scheme


def mismatches(candidate: Candidate, expected: Scheme, rank: int) -> tuple[str, ...]:
    """Return one phrase for each difference from the expected scheme.

    The candidate's scheme nearest to the expected one is compared. ``rank``: number of axes of the original.

    >>> mismatches(Candidate(Scheme.parse("int8 per_channel(1)"), 0), Scheme.parse("int4 per_channel(0)"), 2)
    ('wrong axis: 1, not 0', '8 bits, not 4')
    """
    return _phrases(nearest(candidate, expected, rank), expected, rank)


def nearest(candidate: Candidate, expected: Scheme, rank: int) -> Scheme:
    """Return the candidate's scheme that has most in common with the expected one."""
    return min(candidate.schemes, key=lambda scheme: len(_phrases(scheme, expected, rank)))


def _phrases(found: Scheme, expected: Scheme, rank: int) -> tuple[str, ...]:
    fmt, wanted = found.format, expected.format
    phrases = [_granularity(found.granularity, expected.granularity, rank)]
    pairs = [(found.symmetric, expected.symmetric, "symmetric", "asymmetric")]
    if isinstance(fmt, IntFormat) and isinstance(wanted, IntFormat):
        if fmt.bits != wanted.bits:
            phrases.append(f"{fmt.bits} bits, not {wanted.bits}")
        pairs.insert(0, (fmt.signed, wanted.signed, "signed", "unsigned"))
        pairs.append((fmt.narrow, wanted.narrow, "narrow range", "full range"))
    elif fmt != wanted:
        phrases.append(f"{fmt}, not {wanted}")
    phrases += [f"{yes}, not {no}" if a else f"{no}, not {yes}" for a, b, yes, no in pairs if a != b]
    if found.convention.name != expected.convention.name:
        phrases.append(f"{found.convention.name}, not {expected.convention.name}")
    return tuple(p for p in phrases if p)


def _granularity(found: Granularity, expected: Granularity, rank: int) -> str:
    match found, expected:
        case (PerChannel(a), PerChannel(b)):
            return "" if (a - b) % max(rank, 1) == 0 else f"wrong axis: {a}, not {b}"
        case (PerGroup(m, a), PerGroup(n, b)):
            axis = "" if (a - b) % max(rank, 1) == 0 else f"wrong axis: {a}, not {b}"
            size = "" if m == n else f"groups of {m}, not {n}"
            return ", ".join(filter(None, (axis, size)))
    return "" if found == expected else f"{write_call(found)}, not {write_call(expected)}"
