"""The scheme that a quantizer was meant to implement, and what it gives if some of its results are replaced.

This shows how it rounds and clamps, and whether repairing its mistakes gives the codes of that scheme.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from quantcore.conventions import TEXTBOOK
from quantcore.errors import QuantError
from quantcore.formats import CODEBOOKS, CodebookFormat, FloatFormat, Format, IntFormat
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup, cells_of
from quantcore.mistakes import IN_SOURCE
from quantcore.numerics import rounding
from quantcore.pasted.chain import Chain, Place, Seen, origin
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.lanes import spread
from quantcore.pasted.narrow import float_format
from quantcore.pasted.quantizer import Quantizer, block_extremes, by_place, scale_of
from quantcore.pasted.values import OWN, Override, Val
from quantcore.pasted.walk import Walk, evaluate
from quantcore.quantization import Quantized, apply_quietly
from quantcore.range_setting import MIN_MAX, Given, Percentile, RangeSetting
from quantcore.scheme import Scheme

_NONE = "so there is no scheme to compare it with."
_USUAL = {
    (f.qmin, f.qmax): f
    for bits in range(2, 17)
    for f in (IntFormat(bits, True), IntFormat(bits, False), IntFormat(bits, True, True))
}
TO_NEAREST = ("round", "rint", "around")
_BEYOND = 2.0**20  # all codes
_LARGE = 1e4  # times what is usual
_EQUAL = 0.98  # of the codes; ties may fall the other way
# names for the rules of `quantcore.numerics`, in the order in which they are tried
_TRIED = ("half_even", "half_up", "half_away", "floor", "ceil", "toward_zero")
RULES = dict(zip(_TRIED, ("round", "half up", "half away", "floor", "ceil", "truncate"), strict=True))


def seen(walk: Walk, found: dict[Place, Chain]) -> dict[Place, Seen]:
    """Return how the quantizers of an evaluation round, and what their codes are clamped to.

    That is seen in what they give for multiples of a quarter, and for numbers beyond all codes, with a scale
    of 1, and 4 for a zero point that is not a number.
    """
    tried = _tried(walk, found, beyond=True)
    if not found.keys() <= tried.keys():  # what lies beyond fails where it is stored
        tried = _tried(walk, found, beyond=False) | tried
    return {place: _seen(chain, tried.get(place)) for place, chain in found.items()}


def _tried(walk: Walk, found: dict[Place, Chain], *, beyond: bool) -> dict[Place, Chain]:
    """Return the quantizers on multiples of a quarter, the first two of which may lie beyond all codes."""
    overrides: dict[int, Override] = {}
    for chain in found.values():
        # from the third on, they tell rules apart
        quarters = (torch.arange(chain.x.numel()) * 7 + 9) % 32 / 4 - 4
        if beyond:
            quarters[:1], quarters[1:2] = _beyond(chain), -_beyond(chain)
        overrides[chain.data.index] = quarters.reshape(chain.x.shape)
        overrides |= {step.other.index: 1.0 for step in chain.scalings}
        for step in (s for s in chain.zeros if s.is_open):
            overrides[step.other.index] = 0.0 if step is chain.late else 4.0 if step.op == "add" else -4.0
    return by_place(_again(walk, overrides).vals)


def _again(walk: Walk, overrides: dict[int, Override]) -> Walk:
    """Evaluate again, along the same branches, with other results at some places."""
    branches: dict[int, Override] = {v.index: v.value for v in walk.vals if v.op == "branch"}
    for index, override in overrides.items():
        branches |= spread(walk.vals[index], override)
    return evaluate(walk.given, branches)


def _beyond(chain: Chain) -> float:
    """Return a number beyond all codes that a cast before the last one holds, so that it meets the clamp."""
    return min([_BEYOND, *(float(cast.limits[1]) for cast in chain.casts[:-1] if cast.limits)])


def _seen(chain: Chain, tried: Chain | None) -> Seen:
    """Return how a quantizer rounds, and what its codes are clamped to, seen in what is ``tried``."""
    rule = "half_even" if chain.round.name in TO_NEAREST else ""
    if tried is None:
        return rule, (None, None)
    stored = ((tried.cast and tried.cast.flow) or tried.codes[-1]).numbers
    stored = tried.values if chain.has_levels else stored
    clamped, beyond = chain.clamp is not None, _beyond(chain)
    low, high = (float(end) if clamped and end.abs() < beyond / 2 else None for end in stored.aminmax())
    if chain.has_levels:
        return "nearest", (low, high)
    try:
        early = sum((tried.added(s) for s in tried.early), torch.zeros_like(tried.x))
        codes = tried.codes[-1].numbers.reshape(tried.x.shape) - (tried.zero - early)
    except RuntimeError:  # codes of another shape
        return rule, (low, high)
    value = tried.x / tried.factor + early
    inside = (codes > codes.min()) & (codes < codes.max()) & (value.abs() < beyond / 2)  # not clamped
    drops = chain.round.op == "cast"
    if drops and tried.cast is not None and tried.cast.limits:  # others wrap around
        inside &= (value > tried.cast.limits[0]) & (value < tried.cast.limits[1])
    codes, value = codes.float(), value.float()
    for some in (inside, inside & (value > 0)):  # an unsigned type holds no others
        rules = ("toward_zero", *RULES) if drops else RULES
        fits = (name for name in rules if some.any() and codes[some].equal(rounding(name)(value[some])))
        rule = rule or next(fits, "")
    return rule, (low, high)


def intended(q: Quantizer, chain: Chain, shape: tuple[int, ...], walk: Walk) -> Quantized:
    """Return what the intended scheme makes of the data of a quantizer; ``walk``: the evaluation it is in.

    Raises:
        QuantError: there is no such scheme.
    """
    first = chain
    while first.earlier is not None:
        first = first.earlier
    scheme = _scheme(q, chain, shape, walk)
    return apply_quietly(first.data.numbers.float().reshape(shape), scheme)


def _scheme(q: Quantizer, chain: Chain, shape: tuple[int, ...], walk: Walk) -> Scheme:
    """Return the scheme for a tensor of ``shape``, of which ``chain`` quantizes all elements."""
    zero = q.zero_point
    if q.kind == "table":
        raise QuantError(f"The code computes its table from the tensor, {_NONE}")
    if q.kind in ("unknown", "handed", "power", "float"):
        raise QuantError(f"The code does not show what its scale is computed from, {_NONE}")
    if chain.x.numel() != math.prod(shape):
        raise QuantError(f"The code quantizes a part of the tensor, {_NONE}")
    around_zero = zero == 0 and not q.zeros and (q.limits is None or q.limits[0] < 0)
    symmetric = not q.is_span or around_zero
    fmt = table_format(q) if q.has_levels else _format(q, symmetric)
    if isinstance(fmt, IntFormat) and (q.is_span or q.one_sided) and (not fmt.signed or zero == fmt.qmin):
        symmetric = False
    kernel = TEXTBOOK.changed(kernel=q.kernel)
    if q.kind == "given":
        if chain.factor.numel() != 1 or zero is None:
            raise QuantError(f"The code has several scales or a zero point that no scheme gives, {_NONE}")
        return Scheme(fmt, zero == 0, PER_TENSOR, Given(float(chain.factor), round(zero)), kernel)
    setting: RangeSetting = MIN_MAX if q.percent is None else Percentile(q.percent)
    scale = max(_scales(q, chain, walk), key=lambda scale: torch.unique(scale).numel())
    return Scheme(fmt, symmetric, _granularity(scale.reshape(shape)), setting, kernel)


def _scales(q: Quantizer, chain: Chain, walk: Walk) -> Iterator[Tensor]:
    """Yield the scale of each element, also on a tensor of large values, which no floor makes equal."""
    yield scale_of(chain, q.multiplied, q.axis)
    if chain.factor.numel() > 1:
        start = origin(chain.data)
        generator = torch.Generator().manual_seed(9)
        large = _LARGE * torch.randn(start.numbers.shape, generator=generator)
        on_large = by_place(_again(walk, {start.index: large}).vals).get(q.place)
        if on_large is not None and on_large.x.shape == chain.x.shape:
            yield scale_of(on_large, q.multiplied, q.axis)


def table_format(q: Quantizer) -> Format:
    """Return the format of 8-bit floats, or of a table; a known one of the same values has its name.

    Raises:
        QuantError: the values are not known, or no table that a scheme has.
    """
    if q.round.is_small_float:
        return float_format(q.round.dtype)
    if q.table is None:
        raise QuantError(f"The code does not show what its codes stand for, {_NONE}")
    known = (f for f in CODEBOOKS.values() if is_table(q.table, f))
    return next(known, None) or CodebookFormat(tuple(q.table.tolist()))


def is_table(table: Tensor, fmt: CodebookFormat) -> bool:
    """Tell whether a table has the values of a format, in their order, as they are usually rounded."""
    same = len(table) == len(fmt.values)
    return same and bool(((table - fmt.table.double()).abs() <= 1e-5 * fmt.max).all())


def right_codes(right: Quantized) -> Tensor:
    """Return the codes of a result, of 8-bit floats their values, as code has them."""
    fmt = right.scheme.format
    return fmt.decode(right.codes) if isinstance(fmt, FloatFormat) else right.codes


def _format(q: Quantizer, symmetric: bool) -> IntFormat:
    """Return the format: the clamp's if its bounds are those of one, else from the type and the divisor."""
    low, high = q.ends
    if low is not None and high is not None and (low, high) in _USUAL:
        return _USUAL[low, high]  # type: ignore[index]
    limits = q.limits or ((-128, 127) if symmetric else (0, 255))
    bits = (limits[1] - limits[0]).bit_length()
    if q.is_single and None in q.ends and q.divisor + 1 in (4, 8, 16, 32, 64, 128):
        bits = min(bits, int(q.divisor + 1).bit_length())
    if q.is_span and None in q.ends and q.limits is None and q.divisor + 1 in (4, 8, 16, 32, 64, 128):
        bits = int(q.divisor).bit_length()
    return IntFormat(min(bits, 16), limits[0] < 0)


def _granularity(scale: Tensor) -> Granularity:
    """Return which elements share a scale, from the scale of each."""
    extents = []
    for axis, length in enumerate(scale.shape):
        apart = torch.ne(scale.movedim(axis, 0).reshape(length, -1).diff(dim=0), 0)
        changes = apart.any(dim=1).nonzero().flatten()
        extents.append(math.gcd(*(int(c) + 1 for c in changes)) if len(changes) else length)
    full = [e == n for e, n in zip(extents, scale.shape, strict=True)]
    if all(full):
        return PER_TENSOR
    if sum(full) == len(full) - 1 and extents[full.index(False)] == 1:
        return PerChannel(full.index(False))
    if all(e == 1 for e in extents[:-1]):
        return PerGroup(extents[-1])
    return PerBlock(tuple(-1 if whole else e for e, whole in zip(extents, full, strict=True)))


def confirmed(q: Quantizer, found: list[CodeFinding], walks: dict[str, Walk]) -> list[CodeFinding]:
    """Return the findings; those whose repair does not give the intended codes are no longer certain.

    ``walks``: the evaluations on the probes.
    """
    ordinary = walks["positive"], walks["negative"]
    places = {IN_SOURCE[f.mistake].repair for f in found if f.certain} - {""}
    try:
        if not places or all(_repairs(q, *each, places) for each in zip(q.ordinary, ordinary, strict=True)):
            return found
    except (QuantError, RuntimeError):
        return found  # no scheme gives such codes: the finding rests on what was measured
    return [replace(f, certain=f.certain and not IN_SOURCE[f.mistake].repair) for f in found]


def _repairs(q: Quantizer, chain: Chain, walk: Walk, places: set[str]) -> bool:
    """Tell whether right results in place of all culprits' give the intended codes, but for ties."""
    shape = chain.x.shape if origin(chain.data).op == OWN else walk.given.x.shape
    right = intended(q, chain, tuple(shape), walk)
    repaired = _again(walk, _overrides(q, chain, right, places))
    codes, fmt = repaired.vals[chain.codes[-1].index].numbers, right.scheme.format
    codes = codes.reshape(right.codes.shape)
    if q.bounds is None and isinstance(fmt, IntFormat):
        codes = codes.clamp(fmt.qmin, fmt.qmax)
    low, high = block_extremes(chain.x, chain.scale if chain.factor.numel() > 1 else chain.factor)
    # the scheme widens a range until it contains 0
    alike = ((low <= 0) & (high >= 0)).broadcast_to(chain.x.shape).reshape(codes.shape) if q.is_span else ...
    off = (codes - right_codes(right)).abs()[alike]
    if q.has_levels:
        return float(off.eq(0).double().mean()) >= _EQUAL
    return not off.numel() or (float(off.max()) <= 1 and float(off.eq(0).double().mean()) >= _EQUAL)


def _overrides(q: Quantizer, chain: Chain, right: Quantized, places: set[str]) -> dict[int, Override]:
    """Return the right results of the culprits, by their place in the evaluation."""
    found: dict[int, Override] = {}
    x, rounding, limits = chain.x, chain.round.index, q.limits
    scale = of_each(right.scale, right).double().reshape(x.shape)
    zero_point = torch.zeros_like(right.scale) if right.zero_point is None else right.zero_point
    zero = of_each(zero_point, right).double().reshape(x.shape)
    # by one level more or less the scale is another rule, and no mistake
    levels = q.bounds[1] - q.bounds[0] if q.bounds else q.divisor
    about = q.is_span and 0 < abs(q.divisor - levels) <= 1
    if "scale" in places or ("zero" in places and (q.is_single or about or right.scheme.symmetric)):
        found[chain.scalings[-1].index] = x / scale
    if chain.round.op == "floor_divide":
        found[rounding] = (x / scale).round()
    elif "round" in places:
        found[rounding] = lambda val: (val.flow or val).numbers.round()
    # a zero point that depends on the tensor was computed from the scale
    if "zero" in places or ("scale" in places and any(s.other.varies for s in chain.zeros)):
        if chain.zeros:
            found[chain.zeros[-1].index] = lambda val: (val.flow or val).numbers + zero
        else:
            found[rounding] = lambda val: val.numbers + zero
    if chain.cast is not None and limits is not None and places & {"late", "cast", "zero"}:
        late = chain.round.numbers + chain.zero
        rounds = "round" in places and chain.cast is chain.round  # a cast that drops the fraction

        def stored(val: Val) -> Tensor:
            given = late if "late" in places else (val.flow or val).numbers
            return (given.round() if rounds else given).clamp(*limits)

        found[chain.cast.index] = stored
    return found


def of_each(parameters: Tensor, result: Quantized) -> Tensor:
    """Return the parameter of each element."""
    return cells_of(parameters, tuple(result.x.shape), result.block)
