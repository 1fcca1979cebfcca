"""What a search found, in words: which rules made these integers, the mistake first, and what was expected instead."""

from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerBlock, PerChannel, PerGroup, PerTensor
from quantcore.matching.record import Candidate
from quantcore.notation import write_call
from quantcore.range_setting import Given
from quantcore.scheme import Scheme
from quantcore.wording import along, sentence


def answer(candidate: Candidate, elements: int, rank: int) -> str:
    """Return one or two sentences.

    Args:
        elements: of the tensor.
        rank: number of its axes.

    >>> answer(Candidate(Scheme.parse("int8 symmetric per_channel(1)"), 0), 16, 2)
    'All 16 integers are int8 symmetric, one scale per column (axis 1).'
    """
    made, differing = rules(candidate.scheme, rank), candidate.differing
    wrong = [*candidate.corruption.told, *(sentence(note) for note in candidate.notes)]
    if not differing:
        if not wrong:
            return f"All {elements:,} integers are {made}."
        return f"{'. '.join(wrong)}; everything else is {made}."
    if 2 * differing >= elements:
        how = f" ({'; '.join(candidate.corruption.told).lower()})" if candidate.corruption else ""
        return f"No rules that were tried make these integers: of {made}{how}, the closest, {differing:,} of {elements:,} differ."
    differ = "differs" if differing == 1 else "differ"
    lead = f"{'. '.join(wrong)}. " if wrong else ""
    return f"{lead}{differing:,} of {elements:,} integers {differ}; all others are {made}."


def rules(scheme: Scheme, rank: int) -> str:
    """Return format, symmetry and granularity in words: ``int8 symmetric, one scale``."""
    known = ", with fixed scales" if isinstance(scheme.range_setting, Given) else ""
    symmetry = "symmetric" if scheme.symmetric else "asymmetric"
    kind = f"{scheme.format} {symmetry}" if isinstance(scheme.format, IntFormat) else str(scheme.format)
    return f"{kind}, {_scales(scheme.granularity, rank)}{known}"


def _scales(granularity: Granularity, rank: int) -> str:
    match granularity:
        case PerTensor():
            return "one scale"
        case PerChannel(axis):
            return f"one scale per {along(rank, axis % max(rank, 1))}"
        case PerGroup(size, axis):
            return f"one scale per {size} elements along axis {axis % max(rank, 1)}"
        case PerBlock(shape):
            return f"one scale per block of {'×'.join(map(str, shape))}"
    return write_call(granularity)


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
