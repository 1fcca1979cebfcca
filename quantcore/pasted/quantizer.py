"""The quantizers of an evaluation: the way of a tensor's elements to codes and back.

Every operation on the way is affine, or rounds, clamps or casts. But for what these three change, each value is
x / factor + offset; at the codes that are stored, the factor is the scale and the offset the zero point.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.bounds import ARRAYS, NUMBERS, is_mask
from quantcore.pasted.evaluation import Val, numbers

MOST = 1 << 16  # elements that a quantizer is followed on
MOST_QUANTIZERS = 24  # that are checked; a loop has one for each turn
SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate
FLOAT = 99  # bits: wider than any integer type
SCALINGS, SHIFTS, _CLAMPS = ("mul", "div", "floor_divide"), ("add", "sub"), ("clamp", "mask", "where")
_BENT = ("unary", "pow", "neg")  # what is scaled and rounded after these is another tensor
_MOST_STEPS = 50_000  # of all ways together
Ends = tuple[float | None, float | None]


@dataclass(frozen=True, eq=False)
class Chain:
    """A quantizer on one tensor.

    ``data``: what is scaled, with its values ``x``; ``shift``: what was added to the tensor to give it; ``codes``: the
    steps from its scaling to the codes that are stored: ``scalings`` scale it, ``round`` rounds, ``cast`` casts to a
    small integer, ``zeros`` are added, ``early`` ones before the rounding; ``back``: the steps from there to the
    dequantized values ``end``; ``factor``: what one step of the codes is worth, shaped to broadcast to the data;
    ``scale``: the same of each element; ``zero``: what is added, in codes; ``ends``: what the codes are clamped to before
    the cast, by ``clamp`` last, after which ``late`` adds what is no number; ``earlier``: the quantizer whose
    dequantized values the data is.
    """

    data: Val
    x: Tensor
    shift: Tensor
    codes: list[Val]
    scalings: list[Val]
    round: Val
    cast: Val | None
    zeros: list[Val]
    early: list[Val]
    back: list[Val]
    end: Val | None
    factor: Tensor
    scale: Tensor
    zero: Tensor
    ends: Ends
    clamp: Val | None
    late: Val | None
    earlier: "Chain | None"

    @cached_property
    def scale_nodes(self) -> list[Val]:
        """All values that the scale was computed from, and the scale."""
        return [node for s in self.scalings for node in other(s).ancestors()]


def other(node: Val) -> Val:
    """The operand that is not the data."""
    return next((a for a in node.args if a is not node.flow), node.args[-1])


def added(shift: Val) -> Tensor:
    """What a sum or difference adds to the data."""
    return numbers(other(shift).value) * (-1 if shift.op == "sub" else 1)


def is_flipped(node: Val) -> bool:
    """Whether the data is subtracted or divides."""
    return node.op in ("sub", "div", "floor_divide") and node.args[0] is not node.flow


def _is_half(step: Val, rounding: Val) -> bool:
    """Whether a sum is part of the rounding: a half toward the side that it rounds to, or something random below 1."""
    by = added(step).abs()
    each = by.numel() > 1 and by.shape == step.value.shape
    return step.index < rounding.index and bool((by <= 1).all() if each else (by == 0.5).all())


def dtype_of(node: Val | None) -> str:
    """The type of a tensor or array, as text; empty for None."""
    return str(getattr(node.value if node else None, "dtype", "")).removeprefix("torch.")


def type_limits(node: Val | None) -> tuple[int, int] | None:
    """The lowest and highest integer of a value's type; None for floats."""
    name = dtype_of(node)
    return (int(np.iinfo(name).min), int(np.iinfo(name).max)) if name.startswith(("int", "uint")) else None


def bits_of(node: Val | None) -> int:
    """The width of an integer type; `FLOAT` for others."""
    limits = type_limits(node)
    return FLOAT if limits is None else (limits[1] - limits[0]).bit_length()


def is_integral(val: Val) -> bool:
    """Whether all values that are finite are integers."""
    values = numbers(val.value)
    return bool(torch.eq(values, values.round())[values.isfinite()].all())


def number_of(val: Val) -> float | None:
    """A finite number; None for anything else."""
    if not isinstance(val.value, NUMBERS) or math.prod(getattr(val.value, "shape", ())) != 1:
        return None
    number = float(val.value) if isinstance(val.value, int | float) else float(numbers(val.value))
    return number if math.isfinite(number) else None


def by_place(vals: list[Val]) -> dict[tuple[int, ...], Chain]:
    """The quantizers of an evaluation by the lines of their rounding, stored codes and dequantized values."""
    found: dict[tuple[int, ...], Chain] = {}
    for chain in _chains(vals):
        if 1 < chain.x.numel() <= MOST:
            key: tuple[int, ...] = (
                chain.round.line,
                chain.codes[-1].line,
                chain.end.line if chain.end else 0,
            )
            while key in found:
                key = (*key, 0)
            if len(key) < MOST_QUANTIZERS:
                found[key] = chain
    return found


def _chains(vals: list[Val]) -> Iterator[Chain]:
    """One or more quantizers for each end of the tensor's ways through an evaluation."""
    room = _MOST_STEPS
    goes_on = {id(a) for v in vals if v.data for a in v.args}
    for val in vals:
        if val.data and id(val) not in goes_on and isinstance(val.value, ARRAYS):
            way, one = list[Val](), val
            while one is not None:
                way.append(one)
                one = one.flow  # type: ignore[assignment]
            room -= len(way)
            if room < 0:
                return
            yield from _along(way[::-1])


def _along(way: list[Val]) -> Iterator[Chain]:
    """The quantizers on one way; the first scaling after a rounding belongs to it, others to the next one."""
    places, scalings, pending = list[tuple[int, int]](), list[int](), False
    for i, node in enumerate(way):
        if node.op in _BENT or (is_flipped(node) and node.op != "sub"):
            scalings = []
        elif node.op in SCALINGS:
            scalings, pending = [] if pending else [*scalings, i], False
        if scalings and _rounds(node) and not (places and is_integral(node.flow or node)):
            places.append((scalings[0], i))
            scalings, pending = [], True
    chain = None
    for (first, rounding), end in zip(places, [*(place for place, _ in places[1:]), len(way)], strict=False):
        steps = [
            s for s in way[first:end] if s.op in (*SCALINGS, *SHIFTS, *_CLAMPS, "signed", "round", "cast")
        ]
        found = _chain(way[first].flow or way[first], steps, steps.index(way[rounding]), chain)
        if found is not None:
            yield found
            chain = found


def _rounds(node: Val) -> bool:
    if node.op == "cast":
        return node.flow is not None and bits_of(node) < FLOAT and not is_integral(node.flow)
    return node.op in ("round", "floor_divide")


def _chain(data: Val, steps: list[Val], rounding: int, earlier: Chain | None) -> Chain | None:
    """The quantizer of these steps; None if its scale does not fit the data."""
    nothing, last, rounds = torch.tensor(0.0, dtype=torch.float64), _last(steps, rounding), steps[rounding]
    codes, back = steps[: last + 1], steps[last + 1 :]
    zeros = [s for s in codes if s.op in SHIFTS and not _is_half(s, rounds)]
    while data.op == "abs" and data.flow and any(s.op == "signed" for s in codes):
        data = data.flow  # whose signs come back
    x, factor, zero = numbers(data.value), nothing + 1, nothing
    try:
        for step in codes:
            if step.op in SCALINGS:
                by, inverse = numbers(other(step).value), step.op == "mul"
                factor = factor / by if inverse else factor * by
                if bool(zero.any()):
                    zero = zero * by if inverse else zero / by
            elif step in zeros:
                zero = zero + added(step)
        scale = factor.broadcast_to(x.shape)
    except RuntimeError:  # the shapes do not fit
        return None
    scalings, early = [s for s in codes if s.op in SCALINGS], [s for s in zeros if s.index < rounds.index]
    cast = _cast(codes)
    ends = [s for s in back if s.op in (*SCALINGS, *SHIFTS)]
    end = ends[-1] if any(s.op in SCALINGS for s in ends) else None
    shift, val = nothing, data
    while val.flow is not None and val.op in (*SHIFTS, "clamp", "copy") and not is_flipped(val):
        shift = shift + added(val) if val.op in SHIFTS else shift
        val = val.flow
    clamped = _clamped(codes[: codes.index(cast)] if cast else codes)
    return Chain(
        data,
        x,
        shift,
        codes,
        scalings,
        rounds,
        cast,
        zeros,
        early,
        back,
        end,
        factor,
        scale,
        zero,
        *clamped,
        earlier,
    )


def _last(steps: list[Val], rounding: int) -> int:
    """The place of the last step of the codes that are stored."""
    until = next((i for i, s in enumerate(steps) if i > rounding and s.op in SCALINGS), len(steps))
    stores = (*_CLAMPS, "signed", "round")
    casts = [s.op == "cast" and bits_of(s) < FLOAT for s in steps]
    last = max(i for i in range(rounding, until) if i == rounding or steps[i].op in stores or casts[i])
    later = [i for i in range(last + 1, until) if steps[i].op in SHIFTS]
    # without a cast, a zero point may be added last; a single shift before a scaling is that of dequantizing
    return later[0] if len(later) > (until < len(steps)) and _cast(steps[: last + 1]) is None else last


def _cast(steps: list[Val]) -> Val | None:
    """The first cast to a small integer."""
    return next((s for s in steps if s.op == "cast" and bits_of(s) <= SMALL < bits_of(s.flow)), None)


def _clamped(steps: list[Val]) -> tuple[Ends, Val | None, Val | None]:
    """Bounds of the codes, the last clamp, and what is added after it that is no number."""
    ends: Ends = (None, None)
    clamp = late = None
    for step in steps:
        if step.op in _CLAMPS:
            new = _ends(step)
            ends = (ends[0] if new[0] is None else new[0], ends[1] if new[1] is None else new[1])
            clamp, late = (clamp, late) if new == (None, None) else (step, None)
        elif step.op == "signed":
            ends = (None if ends[1] is None else -ends[1], ends[1])
        elif step.op in SHIFTS and clamp is not None:
            by = added(step)
            if other(step).varies or other(step).handed or by.numel() > 1:
                late = step
            else:
                ends = tuple(None if end is None else end + float(by) for end in ends)  # type: ignore[assignment]
    return ends, clamp, late


def _ends(node: Val) -> Ends:
    """The bounds of a clamp that are numbers."""
    if node.op == "clamp":
        low, high = (number_of(a) for a in node.args[1:3])
        return low, high
    bounds = [number_of(a) for a in node.args if a is not node.flow and not is_mask(a.value)]
    values = numbers(node.value)
    if len(bounds) != 1 or bounds[0] is None or not values.numel():
        return None, None
    if float(values.max()) <= bounds[0]:
        return None, bounds[0]
    return (bounds[0], None) if float(values.min()) >= bounds[0] else (None, None)
