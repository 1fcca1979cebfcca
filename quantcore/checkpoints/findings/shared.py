"""What all layers share that no sound model has, or one layer alone has otherwise.

Flat rows and columns are wrong where siblings have none. Where all layers have them, structured pruning may
have left them, or a converter that stopped early: many of them, or at the same place in all layers, are worth
a look. So are scales that are one number in all layers, and weights of a size that no model has.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from quantcore.checkpoints.findings.record import CheckpointFinding, error, role_of, warning
from quantcore.checkpoints.findings.stored import Flat
from quantcore.checkpoints.statement import Facts
from quantcore.diagnosis import number

SIBLINGS = 4  # fewer don't show that none has flat rows
SIDE_BY_SIDE = 8  # rows or columns of 0 that no sound weight has, if its siblings have none
MANY, SOME = 0.5, 0.1  # of the rows or columns: at any place, and at the same place in all layers
_SCALES = 16  # of a weight; fewer may be one number that was expanded
# RMS of the weights of a model's matrices, with much room
_SMALLEST, _LARGEST = 2.5e-4, 2.0
_UNLIKE = 2.0**6  # times the RMS of the matrices that are stored as values, or one so many-th
_ONE_SIDED = 0.5  # of the mean over the RMS; values of one sign have 0.8
_NOT_0 = 1e-9  # below, the bits of scales are wrong


def of_flat(of_role: Mapping[str, Sequence[Flat]]) -> Iterator[CheckpointFinding]:
    """Yield what is wrong with the weights of one role, or unusual, from what is flat in each, by name.

    All are counted once, not once for each of them.
    """
    with_axis = Counter(axis for found in of_role.values() for axis in {lines.axis for lines in found})
    places = Counter(_place(lines) for found in of_role.values() for lines in found)
    others = len(of_role) - 1
    for name, found in of_role.items():
        for lines in found:
            if lines.zero and lines.longest < SIDE_BY_SIDE:
                continue
            alive = len(of_role) - with_axis[lines.axis]
            if alive < max(SIBLINGS, 0.75 * others):
                continue
            what = "are 0" if lines.zero else f"have one {lines.numbers} throughout"
            words = (
                f"{{has}} {{lines:{lines.axis}}} of {{of}} that {what}, {{side_by_side}} of them side by "
                f"side from {lines.axis} "
                "{first} on, where {alive} of the {siblings} in other layers have none; "
                "download the release again."
            )
            facts: Facts = {
                "lines": lines.total, "of": lines.of, "first": lines.first, "side_by_side": lines.longest,
                "alive": alive, "siblings": others,
            }  # fmt: skip
            yield error(name, f"flat_{lines.axis}s", words, **facts)
            break  # a weight of one number has flat rows and columns
        else:
            yield from _of_all(name, found, places, others)


def _place(lines: Flat) -> tuple[str, int, int]:
    return lines.axis, lines.first, lines.longest


def _of_all(
    name: str, found: Sequence[Flat], places: Counter[tuple[str, int, int]], others: int
) -> Iterator[CheckpointFinding]:
    """Yield the flat lines of a weight that are many, or that all other layers have at the same place.

    ``places``: how often lines are flat at each place, in the weight itself and in the ``others``.
    """
    if not name.endswith("weight"):
        return
    for lines in found:
        share = lines.total / lines.of
        alike = places[_place(lines)] - [_place(each) for each in found].count(_place(lines))
        same = lines.longest >= SIDE_BY_SIDE and others and alike == others
        if share < MANY and not (same and share >= SOME):
            continue
        what = "are 0" if lines.zero else f"have one {lines.numbers} throughout"
        words = (
            f"{{has}} {{lines:{lines.axis}}} of {{of}} that {what}, {{side_by_side}} of them side by side "
            f"from {lines.axis} {{first}} on"
        )
        words += ", at the same place as in {siblings} other layers" * bool(same)
        words += ": a converter that stops early leaves such weights, and so does structured pruning."
        facts: Facts = {
            "lines": lines.total, "of": lines.of, "first": lines.first, "side_by_side": lines.longest,
            "siblings": alike,
        }  # fmt: skip
        yield warning(name, f"flat_{lines.axis}s", words, **facts)
        return


def of_constants(scales: Mapping[str, tuple[float, int]]) -> Iterator[CheckpointFinding]:
    """Yield the weights of one role whose scales are one number in all of them; powers of two may be.

    Args:
        scales: of each weight by name, the largest, and how many there are if all are equal, else 0.
    """
    numbers, fewest = {value for value, _ in scales.values()}, min((n for _, n in scales.values()), default=0)
    if len(scales) < 2 or len(numbers) != 1 or fewest < _SCALES:
        return
    words = (
        "{has} {scales:scale} that are all {value}, as in {siblings} other layers; scales that were computed "
        "from weights differ."
    )
    for name, (value, count) in scales.items():
        if math.frexp(value)[0] != 0.5 or value == 1:  # as E8M0's
            facts: Facts = {"scales": count, "value": value, "siblings": len(scales) - 1}
            yield warning(name, "scale_constant", words, **facts)


def of_magnitudes(
    quantized: Mapping[str, float], plain: Sequence[float], is_model: bool
) -> Iterator[CheckpointFinding]:
    """Yield quantized weights that are all far too large or too small, by their RMS.

    Args:
        quantized, plain: the RMS of quantized matrices, by name, and of those that are stored as values; some
            models have large weights, but then in all of their matrices.
        is_model: whether the config is one of transformers, whose weights have usual sizes.
    """
    known = {name: spread for name, spread in quantized.items() if spread > _NOT_0}
    middle = median(known.values()) if known else 1.0
    usual = median(plain) if plain else 0.0
    is_alike = 1 / _UNLIKE < middle / usual < _UNLIKE if usual else not is_model
    if _SMALLEST <= middle <= _LARGEST or is_alike:
        return
    words = (
        "{has} an RMS of {spread}, {side} than usual: most matrices of models have 0.001 to 1{here}; "
        "{its} scales, or the scale of the whole tensor, may be wrong by one factor in all layers."
    )
    side = "larger" if middle > _LARGEST else "smaller"
    here = f", those that are not quantized here {number(usual)}" if usual else ""
    for name, spread in known.items():
        if not _SMALLEST <= spread <= _LARGEST:
            facts: Facts = {"spread": spread, "side": side, "here": here, "usual": usual}
            yield warning(name, "magnitude", words, **facts)


def of_signs(means: Mapping[str, float]) -> Iterator[CheckpointFinding]:
    """Yield quantized weights whose values all lie on one side of 0, by their mean over their RMS."""
    if len(means) < SIBLINGS or min(map(abs, means.values())) < _ONE_SIDED:
        return
    words = (
        "{has} values on one side of 0: their mean is {share:%} of their RMS. Matrices of models have as "
        "many on the other side; the negative codes or the zero points may be lost in all layers."
    )
    for name, share in means.items():
        yield warning(name, "one_sided", words, share=share)


def of_transposes(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[CheckpointFinding]:
    """Yield the one weight of a role that has the transpose of the shape that all others have."""
    (most, many), *rest = Counter(shapes.values()).most_common()
    role = role_of(next(iter(shapes)))
    turned = (*most[:-2], *most[:-3:-1])
    # the matrices of a torch.nn.Sequential have shapes of their own
    is_module = role.rpartition("*.")[2].count(".") > 1
    if many < SIBLINGS or not is_module or rest != [(turned, 1)]:
        return
    name = next(name for name, shape in shapes.items() if shape == turned)
    words = (
        "{has} shape {shape}, the transpose of {usual}, which {its} {siblings} siblings in other layers have."
    )
    yield error(name, "transposed", words, shape=turned, usual=most, siblings=many)
