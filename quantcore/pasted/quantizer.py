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

from quantcore.pasted.trace import NUMBERS, Trace, Val, ancestors, is_mask, numbers

SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate
FLOAT = 99  # bits: wider than any integer type
SCALINGS, SHIFTS, _CLAMPS = ("mul", "div", "floor_divide"), ("add", "sub"), ("clamp", "mask", "where")
_BENT = ("unary", "pow", "neg")  # what is scaled and rounded after these is another tensor
_MOST_STEPS = 50_000  # of all ways together
Ends = tuple[float | None, float | None]


@dataclass(frozen=True, eq=False)
class Chain:
    """A quantizer on one tensor.

    ``data``: what is scaled; ``codes``: the steps from its scaling to the codes that are stored, of which ``round``
    rounds and ``cast`` casts to a small integer; ``back``: the steps from there to the dequantized values ``end``;
    ``factor``: what one step of the codes is worth, shaped to broadcast to the data; ``zero``: what is added, in codes;
    ``unit``, ``offset``: the same of the dequantized values; ``ends``: what the codes are clamped to before the cast, by
    ``clamp`` last, after which ``late`` adds what is no number; ``earlier``: the quantizer whose dequantized values the
    data is.
    """

    data: Val
    codes: list[Val]
    round: Val
    cast: Val | None
    back: list[Val]
    end: Val | None
    factor: Tensor
    zero: Tensor
    unit: Tensor
    offset: Tensor
    ends: Ends
    clamp: Val | None
    late: Val | None
    earlier: "Chain | None"

    @cached_property
    def x(self) -> Tensor:
        """The values of the data."""
        return numbers(self.data.value)

    @property
    def scale(self) -> Tensor:
        """The factor of each element."""
        return self.factor.broadcast_to(self.x.shape)

    @property
    def scalings(self) -> list[Val]:
        """The products and quotients that scale the data."""
        return [s for s in self.codes if s.op in SCALINGS]

    @property
    def zeros(self) -> list[Val]:
        """The sums and differences up to the codes that are stored, but for a half that makes truncation round."""
        return [s for s in self.codes if s.op in SHIFTS and not is_half(s, self.round)]

    @cached_property
    def scale_nodes(self) -> list[Val]:
        """All values that the scale was computed from, and the scale."""
        return [node for s in self.scalings for node in ancestors(other(s))]

    @cached_property
    def shift(self) -> Tensor:
        """What was added to the tensor to give the data."""
        val, total = self.data, torch.tensor(0.0, dtype=torch.float64)
        while val.flow is not None and val.op in (*SHIFTS, "clamp", "copy") and not is_flipped(val):
            total = total + added(val) if val.op in SHIFTS else total
            val = val.flow
        return total


def other(node: Val) -> Val:
    """The operand that is not the data."""
    return next((a for a in node.args if a is not node.flow), node.args[-1])


def added(shift: Val) -> Tensor:
    """What a sum or difference adds to the data."""
    return numbers(other(shift).value) * (-1 if shift.op == "sub" else 1)


def is_flipped(node: Val) -> bool:
    """Whether the data is subtracted or divides."""
    return node.op in ("sub", "div", "floor_divide") and node.args[0] is not node.flow


def is_half(step: Val, rounding: Val) -> bool:
    """Whether a step moves every number by a half away from zero, before a rounding that truncates."""
    if step.op not in SHIFTS or not step.flow or not (rounding.name in ("trunc", "fix") or rounding.op == "cast"):
        return False
    by, before = added(step), numbers(step.flow.value)
    there = before.isfinite()
    return step.index < rounding.index and by.shape == before.shape and torch.equal(by[there], before[there].sign() / 2)


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


def chains(trace: Trace) -> Iterator[Chain]:
    """The quantizers of an evaluation, one or more for each end of the tensor's ways through it."""
    room = _MOST_STEPS
    goes_on = {id(v.flow) for v in trace.vals if v.data}
    for val in trace.vals:
        if val.data and id(val) not in goes_on and val.is_array:
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
        steps = [s for s in way[first:end] if s.op in (*SCALINGS, *SHIFTS, *_CLAMPS, "signed", "round", "cast")]
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
    unit, offset = torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.0, dtype=torch.float64)
    factor, zero, last = unit, offset, _last(steps, rounding)
    while data.op == "abs" and data.flow and any(s.op == "signed" for s in steps):
        data = data.flow  # whose signs come back
    for i, step in enumerate(steps):
        try:
            if step.op in SCALINGS:
                by = numbers(other(step).value)
                unit = unit / by if step.op == "mul" else unit * by
                if bool(offset.any()):
                    offset = offset * by if step.op == "mul" else offset / by
            elif step.op in SHIFTS and not is_half(step, steps[rounding]):
                offset = offset + added(step)
            if i == last:
                factor, zero = unit, offset
                factor.broadcast_to(data.value.shape)
        except RuntimeError:  # the shapes do not fit
            if i <= last:
                return None
            unit = unit * torch.nan
            break
    codes, back = steps[: last + 1], steps[last + 1 :]
    cast = _cast(codes)
    unscaled = any(s.op in SCALINGS for s in back)
    end = next((s for s in reversed(back) if s.op in (*SCALINGS, *SHIFTS)), None) if unscaled else None
    clamped = _clamped(codes[: codes.index(cast)] if cast else codes)
    return Chain(data, codes, steps[rounding], cast, back, end, factor, zero, unit, offset, *clamped, earlier)


def _last(steps: list[Val], rounding: int) -> int:
    """The place of the last step of the codes that are stored."""
    until = next((i for i, s in enumerate(steps) if i > rounding and s.op in SCALINGS), len(steps))
    casts = [s.op == "cast" and bits_of(s) < FLOAT for s in steps]
    last = max(
        i for i in range(rounding, until) if i == rounding or steps[i].op in (*_CLAMPS, "signed", "round") or casts[i]
    )
    later = [i for i in range(last + 1, until) if steps[i].op in SHIFTS]
    # without a cast, a zero point may be added last; a single shift before a scaling is that of dequantizing
    return later[0] if len(later) > (until < len(steps)) and _cast(steps[: last + 1]) is None else last


def _cast(steps: list[Val]) -> Val | None:
    """The first cast to a small integer."""
    return next((s for s in steps if s.op == "cast" and bits_of(s) <= SMALL < bits_of(s.flow)), None)


def _clamped(steps: list[Val]) -> tuple[Ends, Val | None, Val | None]:
    """Bounds of the codes, the last clamp, and what is added after it that is no number."""
    low: float | None = None
    high: float | None = None
    clamp = late = None
    for step in steps:
        if step.op in _CLAMPS:
            new = _ends(step)
            low, high = new[0] if new[0] is not None else low, new[1] if new[1] is not None else high
            clamp, late = (clamp, late) if new == (None, None) else (step, None)
        elif step.op == "signed":
            low = None if high is None else -high
        elif step.op in SHIFTS and clamp is not None:
            by = added(step)
            if other(step).varies or other(step).handed or by.numel() > 1:
                late = step
            else:
                low, high = (None if end is None else end + float(by) for end in (low, high))
    return (low, high), clamp, late


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
