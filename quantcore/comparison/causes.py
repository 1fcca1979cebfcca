"""Why two results differ: the choices that change scales and zero points, replayed, and the ties."""

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import CHOICES, KERNELS, STAGE_OF, STAGES, Convention
from quantcore.programs import code_program
from quantcore.qparams import QParams, parameters, ranges
from quantcore.quantization import Quantized, coded_with

# The choices that still matter once scale and zero_point are found
CODING = tuple(name for name, stage in STAGE_OF.items() if STAGES[stage].ALTERS == "codes")
# the choices that change a parameter; None: each library's range setting finds a range of its own
Choices = tuple[str, ...] | None
Found = tuple[Tensor, list[Choices]]
NO_TIE, TIE, PARITY, NEAR = 0, 1, 2, 3
ROUNDING = 2.0**-21  # relative error of a value before it is rounded: a few operations in float32


def same(a: Quantized, b: Quantized, ingredient: str) -> bool:
    """Tell whether the results have equal scales (and stored 1/scale), or equal zero points."""
    return bool(_equal(*(_numbers(r.params, ingredient) for r in (a, b))).all())


def blocks_of(result: Quantized, flat: Tensor) -> Tensor:
    """Return the index of each element's block in the flattened grid; ``flat``: indices into flattened x."""
    index = np.unravel_index(flat.numpy(), result.blocked_shape) if result.blocked_shape else ()
    place = tuple(i // extent for i, extent in zip(index, result.block, strict=True))
    found = np.ravel_multi_index(place, result.blocks.grid) if place else np.zeros(len(flat), np.int64)
    return torch.from_numpy(found)


def choices_behind(a: Quantized, b: Quantized, blocks: Tensor, ingredient: str) -> Found:
    """Return, for each block, the smallest set of b's choices that turns a's parameter into b's.

    Each block has an index into the list of sets. The first set is empty: the parameters are equal, or come
    from more than a range (given, searched, adjusted). The second is None: the ranges themselves differ.
    """
    place = torch.zeros(len(blocks), dtype=torch.int64)
    sets: list[Choices] = [(), None]
    if a.scheme.range_setting.gives_parameters or a.scheme.range_setting.searches_codes:
        return place, sets
    of_a, of_b = (_ranges(r, blocks) for r in (a, b))
    low, high = of_a
    ours, theirs = (r.computed.rules for r in (a, b))
    is_stored = a.params.raw is not None  # then 1/s is computed from the stored scale

    # a choice that changes digits which b's zero point does not have turns nothing into it
    narrow = ingredient == "zero_point" and b.params.zero_point.dtype == torch.float32

    def numbers_of(params: QParams) -> Tensor:
        numbers = _numbers(params, ingredient, is_stored)
        return numbers.float() if narrow else numbers

    def found(record: Convention) -> Tensor:
        return numbers_of(parameters(low, high, a.scheme.symmetric, a.scheme.format, record))

    own, wanted = found(ours), found(theirs)
    replayed = torch.ones(len(blocks), dtype=torch.bool)
    for result, numbers in ((a, own), (b, wanted)):
        p = result.params
        first = dataclasses.replace(p, scale=p.scale if p.raw is None else p.raw)  # before it was quantized
        replayed &= _equal(numbers_of(first)[:, blocks], numbers)
    differ = ~_equal(torch.stack(of_a), torch.stack(of_b))
    place[differ] = 1
    open_ = replayed & ~differ & ~_equal(own, wanted)
    for names in _subsets(ours, theirs, found):
        if not open_.any():
            break
        hit = open_ & _equal(found(_changed(ours, theirs, names)), wanted)
        if hit.any():
            place[hit] = len(sets)
            sets.append(names)
            open_ &= ~hit
    return place, sets


def _subsets(
    ours: Convention, theirs: Convention, found: Callable[[Convention], Tensor]
) -> list[tuple[str, ...]]:
    """Return the sets of choices that matter, the smallest first."""
    own, wanted = found(ours), found(theirs)
    relevant = [
        name
        for name in CHOICES
        if name not in CODING
        and ours.choices[name] != theirs.choices[name]
        and not (
            _equal(found(_changed(ours, theirs, (name,))), own).all()
            and _equal(found(_changed(theirs, ours, (name,))), wanted).all()
        )
    ]
    sizes = range(1, len(relevant) + 1)
    return [names for n in sizes for names in itertools.combinations(relevant, n)]


def _changed(record: Convention, other: Convention, names: tuple[str, ...]) -> Convention:
    return record.changed(**{name: other.choices[name] for name in names})


def _ranges(result: Quantized, blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the range of each block as the range setting finds it."""
    scheme = result.computed
    if scheme.range_setting.ends_are_elements:  # whatever the rule for the scale needs of it
        scheme = dataclasses.replace(scheme, convention=scheme.rules.changed(symmetric_scale="max_of_sides"))
    low, high = (t.reshape(-1)[blocks] for t in ranges(result.x, scheme))
    return low, high


def _numbers(params: QParams, ingredient: str, is_stored: bool = False) -> Tensor:
    """Return the numbers that decide whether the ingredient is equal, with blocks along axis 1."""
    if ingredient == "zero_point":
        return params.zero_point.reshape(1, -1).to(torch.float64)
    scale = params.scale.reshape(-1)
    if is_stored:
        return scale[None].double()
    inverse = scale.reciprocal() if params.inverse is None else params.inverse.reshape(-1)
    return torch.stack([scale.double(), inverse.double()])


def _equal(first: Tensor, second: Tensor) -> Tensor:
    return ((first == second) | (first.isnan() & second.isnan())).all(0)


def kernel_kinds(a: Quantized, b: Quantized, flat: Tensor) -> Tensor:
    """Return for each element whether both values lie next to a tie that both libraries round to nearest.

    `TIE`: and one of them is a tie; `PARITY`: both are, and an odd z, added before rounding or after, changes
    which neighbor is even; `NEAR`: neither is; `NO_TIE`: they do not.
    """
    near = torch.ones(len(flat), dtype=torch.bool)
    ties, odd = [], near
    for result in (a, b):
        values = before_rounding(result, flat)
        shift = result.params.zero_point.reshape(-1)[blocks_of(result, flat)]
        away = _away(result, values)
        size = torch.maximum(values.abs(), shift.abs().to(torch.float32)).clamp(min=1.0)
        most = (2 * ROUNDING * size).clamp(max=0.25)  # the quotient is at most twice as large
        near = near & (away <= most)
        ties.append(away == 0)
        odd = odd & (shift % 2 == 1)
    kinds = torch.where(ties[0] | ties[1], TIE, NEAR)
    kinds = torch.where(ties[0] & ties[1] & odd, PARITY, kinds)
    return torch.where(near, kinds, NO_TIE)


def before_rounding(result: Quantized, flat: Tensor) -> Tensor:
    """Return the values that the kernel rounds, float32; ``flat``: indices into the flattened x."""
    convention = result.computed.rules
    params, block = result.params, blocks_of(result, flat)
    scale, shift = (p.reshape(-1)[block].to(torch.float32) for p in coded_with(params, result.computed))
    if KERNELS[convention.coding.kernel].fused:  # one scale for the tensor
        scale, shift = scale[:1], shift[:1]
    numbers = {"x": result.x.reshape(-1)[flat], "s": scale, "z": shift, "mean": params.center}
    if params.inverse is not None:
        numbers["1/s"] = params.inverse.reshape(-1)[block]
    stored = params.raw is not None and params.inverse is None
    program = code_program(result.scheme.format, convention, stored=stored)
    found: Tensor = program.write("u", numbers, torch.empty(len(flat)))
    return found


def _away(result: Quantized, values: Tensor) -> Tensor:
    """Return how far each value is from the nearest tie; infinite if values are not rounded to nearest."""
    coding = result.computed.rules.coding
    half = KERNELS[coding.kernel].half
    values = values.double()
    if not (coding.rounding == "toward_zero" if half else coding.rounding.startswith("half")):
        return torch.full_like(values, torch.inf)
    tie = 0.0 if half else 0.5  # ½ has been added
    rest = (values - tie).remainder(1.0)
    return torch.minimum(rest, 1.0 - rest).nan_to_num(torch.inf)
