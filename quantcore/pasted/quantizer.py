"""The quantizers of an evaluation: the way of the tensor's elements from their scaling to codes and back."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.trace import Trace, Val, ancestors, numbers

SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate
_MOST_STEPS = 50_000  # of all ways together
_SCALINGS = ("mul", "div", "floor_divide")
_SHIFTS = ("add", "sub")
_BENT = ("unary", "pow", "neg")  # what is scaled and rounded after these is another tensor
_CLAMPS = ("clamp", "mask", "where")


@dataclass(frozen=True, eq=False)
class Chain:
    """``data``: what is scaled; ``scalings``: the products and quotients that scale it; ``before``: shifts and clamps
    between them and ``round``; ``post``: what follows it up to the codes that are stored; ``shifts``, ``unscale``,
    ``loose``: dequantization: shifts of the codes, the product that scales them, shifts of its result; ``end``: the
    last value; ``earlier``: the quantizer whose dequantized values these are."""

    data: Val
    scalings: tuple[Val, ...]
    round: Val
    before: tuple[Val, ...] = ()
    post: tuple[Val, ...] = ()
    shifts: tuple[Val, ...] = ()
    unscale: tuple[Val, ...] = ()
    loose: tuple[Val, ...] = ()
    earlier: "Chain | None" = None

    @property
    def stored(self) -> Val:
        """The codes that are stored."""
        return self.post[-1] if self.post else self.round

    @property
    def end(self) -> Val | None:
        """The dequantized values; None if there are none."""
        return (*self.loose[-1:], *self.unscale[-1:])[0] if self.unscale else None

    @cached_property
    def factor(self) -> Tensor:
        """What one step of the codes is worth in units of ``data``, shaped to broadcast to it."""
        return self.product(self.scalings)

    def product(self, scalings: tuple[Val, ...]) -> Tensor:
        """What one step is worth if these scale the data to codes."""
        total = torch.tensor(1.0, dtype=torch.float64)
        for node in scalings:
            value = numbers(other(node).value)
            total = total / value if node.op == "mul" else total * value
        return total

    @cached_property
    def x(self) -> Tensor:
        """The values of ``data``."""
        return numbers(self.data.value)

    @property
    def scale(self) -> Tensor:
        """The factor of each element."""
        return self.factor.broadcast_to(self.x.shape)

    @property
    def scale_nodes(self) -> list[Val]:
        """All values that the scale was computed from, and the scale."""
        return [node for s in self.scalings for node in ancestors(other(s))]

    @property
    def steps(self) -> tuple[Val, ...]:
        """Shifts, clamps, rounding and casts, in order, up to the stored codes."""
        return (*self.before, self.round, *self.post)

    @property
    def cast(self) -> Val | None:
        """The last cast to a small integer."""
        casts = (s for s in self.steps if s.op == "cast" and (bits_of(s) or 64) <= SMALL)
        return next((s for s in casts if s.flow is not None and (bits_of(s.flow) or 64) > SMALL), None)

    @property
    def zero(self) -> Tensor:
        """What is added to data / factor, in codes, up to the stored codes."""
        nothing = torch.tensor(0.0, dtype=torch.float64)
        return sum((sign(s) * numbers(other(s).value) for s in self.zeros), nothing)

    @property
    def zeros(self) -> list[Val]:
        """The shifts that add it, but for those of a rounding by floor(… + 0.5)."""
        return [s for s in self.steps if s.op in _SHIFTS]

    @cached_property
    def shift(self) -> tuple[Val, Tensor]:
        """The tensor before anything was added to it or clipped from it, and what was added, in its units."""
        val, total = self.data, torch.tensor(0.0, dtype=torch.float64)
        while val.flow is not None and val.op in (*_SHIFTS, "clamp", "copy"):
            if val.op in _SHIFTS:
                if _flipped(val):
                    break
                total = total + sign(val) * numbers(other(val).value)
            val = val.flow
        return val, total

    @property
    def origin(self) -> Val:
        """The tensor that the data is, or is a part of."""
        val = self.data
        while val.flow is not None and val.op in ("getitem", "shape"):
            val = val.flow
        return val

    @property
    def handed(self) -> bool:
        """Whether its scale is one that the code is given."""
        return any(other(s).handed for s in self.scalings)

    @property
    def varies(self) -> bool:
        """Whether its scale depends on the tensor."""
        return any(other(s).varies for s in self.scalings)


def other(node: Val) -> Val:
    """The operand that is not the data."""
    return next((a for a in node.args if a is not node.flow), node.args[-1])


def sign(node: Val) -> int:
    """Whether a shift adds or subtracts."""
    return -1 if node.op == "sub" else 1


def _flipped(node: Val) -> bool:
    """Whether the data is subtracted or divides."""
    return node.op in ("sub", "div", "floor_divide") and node.args[0] is not node.flow


def bits_of(node: Val) -> int | None:
    """The width of an integer type; None for floats."""
    limits = type_limits(node.value)
    return None if limits is None else (limits[1] - limits[0]).bit_length()


def dtype_of(node: Val | None) -> str:
    """The type of a tensor or array, as text; empty for None."""
    return str(getattr(node.value if node else None, "dtype", "")).removeprefix("torch.")


def type_limits(value: Any) -> tuple[int, int] | None:
    """The lowest and highest integer of a value's type; None for floats."""
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, torch.dtype) and not dtype.is_floating_point and dtype != torch.bool:
        info = torch.iinfo(dtype) if not str(dtype).startswith("torch.q") else None
        return (int(info.min), int(info.max)) if info else None
    if isinstance(dtype, np.dtype) and dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return None


def _is_rounding(node: Val) -> bool:
    if node.op in ("round", "floor_divide"):
        return True
    if node.op != "cast" or node.flow is None or bits_of(node) is None:
        return False
    return not is_integral(numbers(node.flow.value))


def is_integral(values: Tensor) -> bool:
    """Whether all values that are finite are integers."""
    return bool(torch.eq(values, values.round())[values.isfinite()].all())


def chains(trace: Trace) -> Iterator[Chain]:
    """The quantizers of an evaluation, one for each end of the tensor's ways through it."""
    room = _MOST_STEPS
    goes_on = {id(v.flow) for v in trace.vals if v.flow is not None and v.data}
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


@dataclass
class _Reading:
    """The quantizers met on the way of one end."""

    data: Val | None = None
    scalings: list[Val] = field(default_factory=list)
    before: list[Val] = field(default_factory=list)


def _along(way: list[Val]) -> Iterator[Chain]:
    reading, chain = _Reading(), None
    for node in way:
        scaled = node.op in _SCALINGS and not _flipped(node)
        divides, codes = _flipped(node) and node.op != "sub", chain is not None and not chain.unscale
        if node.op in _BENT or divides or (scaled and codes):
            reading = _Reading()
        elif scaled and not reading.scalings:
            reading = _Reading(node.flow, [node])
        elif scaled:
            reading.scalings.append(node)
        if reading.scalings and _is_rounding(node) and (chain is None or _rounds_anew(chain, node, reading)):
            if chain is not None:
                yield _stored(chain)
            assert reading.data is not None
            chain = Chain(reading.data, tuple(reading.scalings), node, tuple(reading.before), earlier=chain)
            reading = _Reading()
        elif chain is not None:
            chain = _longer(chain, node, scaled)
        if reading.scalings and (node.op in _SHIFTS or node.op in _CLAMPS):
            reading.before.append(node)
    if chain is not None:
        yield _stored(chain)


def _rounds_anew(chain: Chain, node: Val, reading: _Reading) -> bool:
    """Whether values that were dequantized are scaled and rounded again."""
    scaled = bool(chain.unscale and reading.scalings)
    return scaled and not is_integral(numbers((node.flow or node).value))


def _longer(chain: Chain, node: Val, scaled: bool) -> Chain:
    """The quantizer with one more step."""
    if scaled:
        return replace(chain, unscale=(*chain.unscale, node))
    if chain.unscale:
        return replace(chain, loose=(*chain.loose, node)) if node.op in _SHIFTS else chain
    if node.op in (*_SHIFTS, *_CLAMPS, "round", "cast"):
        return replace(chain, post=(*chain.post, node))
    return chain


def _stored(chain: Chain) -> Chain:
    """The quantizer with its steps divided into those of quantizing and those of dequantizing."""
    post = chain.post
    codes = [s.op in (*_CLAMPS, "round") or (s.op == "cast" and bits_of(s)) for s in post]
    last = max((i for i, is_codes in enumerate(codes) if is_codes), default=-1)
    more = [s for s in post[last + 1 :] if s.op in _SHIFTS]
    keeps = bool(more) and chain.cast is None and (not chain.unscale or len(more) > 1)
    if keeps:
        last = post.index(more[0])
    kept, rest = post[: last + 1], post[last + 1 :]
    return replace(chain, post=kept, shifts=tuple(s for s in rest if s.op in (*_SHIFTS, "cast")))


def bounds_of(steps: tuple[Val, ...]) -> tuple[float | None, float | None, Val | None, Val | None]:
    """What the codes are clamped to after these steps, the last clamp, and what was added after it that is no number."""
    low: float | None = None
    high: float | None = None
    clamp = late = None
    for node in steps:
        if node.op in _CLAMPS:
            new_low, new_high = _ends(node)
            low, high = (low if new_low is None else new_low), (high if new_high is None else new_high)
            clamp, late = (node, None) if (new_low, new_high) != (None, None) else (clamp, late)
        elif node.op in _SHIFTS and clamp is not None:
            added = other(node)
            if added.varies or added.handed or numbers(added.value).numel() > 1:
                late = node
            else:
                by = sign(node) * float(numbers(added.value))
                low, high = (None if low is None else low + by), (None if high is None else high + by)
    return low, high, clamp, late


def _ends(node: Val) -> tuple[float | None, float | None]:
    """The bounds of a clamp that are numbers."""
    if node.op == "clamp":
        low, high = (_number(a) for a in node.args[1:3])
        return low, high
    assert node.flow is not None
    mask = next((a for a in node.args if str(getattr(a.value, "dtype", "")).endswith("bool")), None)
    value = next((a for a in node.args if a is not node.flow and a is not mask), None)
    bound = _number(value) if value is not None else None
    if bound is None or mask is None:
        return None, None
    kept = numbers(node.flow.value)[torch.eq(numbers(node.value), numbers(node.flow.value))]
    if kept.numel() and float(kept.max()) <= bound:
        return None, bound
    return (bound, None) if kept.numel() and float(kept.min()) >= bound else (None, None)


def _number(val: Val) -> float | None:
    if val.value is None or isinstance(val.value, str):
        return None
    value = numbers(val.value)
    return float(value) if value.numel() == 1 else None
