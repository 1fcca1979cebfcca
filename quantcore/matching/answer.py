"""What a search found, as the answer to "which rules made these integers?": the mistake first, then everything else."""

from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerBlock, PerChannel, PerGroup, PerTensor
from quantcore.matching.record import Candidate
from quantcore.notation import write_call
from quantcore.range_setting import Given
from quantcore.scheme import Scheme
from quantcore.wording import along


def answer(candidate: Candidate, elements: int, rank: int) -> str:
    """Return one or two sentences.

    Args:
        elements: of the tensor.
        rank: number of its axes.

    >>> answer(Candidate(Scheme.parse("int8 symmetric per_channel(1)"), 0), 16, 2)
    'All 16 integers are int8 symmetric, one scale per column (axis 1).'
    """
    made, differing = rules(candidate.scheme, rank), candidate.differing
    wrong = [*candidate.corruption.told, *(_upper(note) for note in candidate.notes)]
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


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]
