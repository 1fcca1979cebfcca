"""The mistakes of a quantizer in dequantizing: what the codes come back as, and what they stand for."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.pasted.chain import SCALINGS, SHIFTS, SMALL, Chain, near
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.quantizer import Quantizer, block_extremes, number
from quantcore.pasted.values import Val, ancestors

# operations that dequantizing consists of
_PLAIN = (*SCALINGS, *SHIFTS, "cast", "copy", "shape", "neg", "decode")
_COARSE = 1 / 32  # of the largest scale: how much a scale may change when it is quantized


def check_dequantize(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what is wrong in (codes - zero point) · scale, and whether its type holds the difference."""
    steps = [s for s in q.back if s.op in SHIFTS]
    small = [s for s in steps if s.flow and s.bits <= SMALL]
    if q.ordinary and all(map(has_quantized_scale, q.ordinary)):
        return
    wraps = [s for s in small if s.flow and not torch.equal(s.flow.numbers + s.added, s.numbers)]
    for s in wraps:
        yield q.found("dequantize_overflow", s.line, dtype=s.dtype, bits=str(s.bits))
    scalings = [s for s in q.back if s.op in SCALINGS]
    if wraps or not scalings:
        return
    kind = _way_back(q)
    if kind:
        culprits = {"multiplied": scalings[0], "zero_point_after_scale": (steps or scalings)[-1]}
        line = culprits.get(kind, scalings[-1]).line
        yield q.found(kind, line, how="The codes are scaled in the same direction as x was")
    elif kind is None and all(dequantizes(chain) and _off(chain, q.divisor) > 1 for chain in q.ordinary):
        off = number(round(max(map(_steps_off, q.ordinary))))
        line = (q.end or scalings[-1]).line
        yield q.found("not_undone", line, off=off, way=_right_way(q), how=_how(q))


def check_signs(q: Quantizer, vals: list[Val], named: list[Val]) -> Iterator[CodeFinding]:
    """Yield that only absolute values come back, if none of the ``vals`` of an evaluation has the signs.

    ``named``: those that the code gives names to; absolute values with one are a tensor of its own.
    """
    at: Val | None = q.data
    while at is not None and at.name not in ("abs", "absolute", "fabs"):  # not a ReLU
        at = at.flow
    tells = ("lt", "le", "gt", "ge", "signbit")
    kept = any(v.op in ("sign", "signed") or (v.name in tells and any(a.data for a in v.args)) for v in vals)
    if at is None or at.flow is None or kept or any(at is one for one in named):
        return
    if any(c.end is None for c in q.ordinary):
        return
    ends = torch.cat([c.end.numbers.flatten() for c in q.ordinary if c.end is not None])
    negative = float((at.flow.numbers < 0).double().mean())
    if negative and bool((ends >= 0).all()):
        yield q.found("signs_lost", at.line, lost=f"{negative:.0%}")


def _way_back(q: Quantizer) -> str | None:
    """Return which mistake gives the dequantized values, within rounding on all tensors; "" if none does, and
    None if they are neither those of a mistake nor right."""
    left: list[str] | None = None
    for chain in q.ordinary:
        if chain.end is None:
            return ""
        codes, end = chain.codes[-1].numbers, chain.end.numbers
        if not codes.numel() == end.numel() == chain.x.numel():
            return ""
        codes, end, scale = codes.reshape(chain.x.shape), end.reshape(chain.x.shape), chain.scale
        zero = _whole_zero(chain)
        shifts = [s.added for s in chain.back if s.op in SHIFTS]
        ways = {
            "": [(codes - zero) * scale],
            "multiplied": [(codes + by) / scale for by in (-zero, torch.zeros(1), *shifts)],
            "zero_point_after_scale": [codes * scale - zero],
            "zero_point_forgotten": [codes * scale],
            "zero_point_added": [(codes + zero) * scale],
        }
        if shifts and near(zero, 0.0, 0.01):
            ways[""] = [codes * scale]
            if near(shifts[0], shifts[0].round(), 1e-6):  # a zero point, and not an end of the range
                ways["zero_point_not_added"] = [(codes + shifts[0]) * scale]
        room = scale.abs() * (1.01 + 1e-4 * zero.abs().max()) + 1e-6 * end.abs()
        fits = [k for k, each in ways.items() if any(bool(((end - way).abs() <= room).all()) for way in each)]
        left = [k for k in fits if left is None or k in left]
    return left[0] if left else None


def _whole_zero(chain: Chain) -> Tensor:
    """Return the zero point, in codes, together with what was added to the tensor before it was scaled."""
    return chain.zero + chain.shift / chain.factor


def after_codes(chain: Chain) -> list[Val]:
    """Return the values from the codes, without these, to the dequantized values."""
    found, val = list[Val](), chain.end
    while val is not None and val is not chain.codes[-1]:
        found.append(val)
        val = val.flow
    return found[::-1]


def dequantizes(chain: Chain) -> bool:
    """Tell whether codes are scaled as dequantizing does: by what the scale is made of, and not by what comes
    from the codes themselves, which only rescales these."""
    way, codes = after_codes(chain), chain.codes[-1].index
    if not bool(chain.factor.isfinite().all() and chain.factor.ne(0).all()):
        return False
    again = any(s.op == "round" or (s.op == "cast" and s.bits < (s.flow or s).bits) for s in chain.back)
    if again or not way or any(v.op not in _PLAIN for v in way):
        return False
    own = {s.other.index for s in chain.scalings}
    made = [ancestors(s.other) for s in way if s.op in SCALINGS and not s.is_flipped]
    return any(
        any(v.varies or v.handed or v.index in own for v in nodes) and all(v.index != codes for v in nodes)
        for nodes in made
    )


def has_quantized_scale(chain: Chain) -> bool:
    """Tell whether the scale of the way back is that of the codes, quantized in turn."""
    before, after = set[int](), set[int]()
    for step in chain.scalings:
        before |= {a.index for a in ancestors(step.other) if a.op == "reduce"}
    coarse, worth = False, torch.ones(1, dtype=torch.float64)
    for step in (v for v in after_codes(chain) if v.op in SCALINGS):
        nodes = ancestors(step.other)
        coarse |= any(n.op in ("round", "level") or n.name == "nested_scales" for n in nodes)
        after |= {n.index for n in nodes}
        worth = worth * step.other.numbers if step.op == "mul" else worth / step.other.numbers
    if not coarse or not before & after:
        return False
    most = chain.scale.max()
    try:
        return near(worth.broadcast_to(chain.scale.shape) / most, chain.scale / most, _COARSE)
    except RuntimeError:  # of another shape
        return False


def _steps_off(chain: Chain) -> float:
    """Return by how many steps of the scale the dequantized values are off at most."""
    assert chain.end is not None
    codes, end = (v.numbers.reshape(chain.x.shape) for v in (chain.codes[-1], chain.end))
    return float(((end - (codes - _whole_zero(chain)) * chain.scale) / chain.scale).abs().max())


def _how(chain: Chain) -> str:
    """Return what is wrong in the values, from what a code is worth in them."""
    worth = torch.ones(1, dtype=torch.float64)
    for val in after_codes(chain):
        if val.op in SCALINGS:
            by = val.other.numbers
            worth = worth * by if val.op == "mul" else worth / by
        elif val.op == "neg" or val.is_flipped:
            worth = -worth
    for sign, what in ((1, "the scale is right, the offset is not"), (-1, "they have the opposite sign")):
        if near(worth / chain.factor, sign, 2e-3):
            return what
    return "they have another scale"


def _off(chain: Chain, divisor: float) -> float:
    """Return by how many steps the values are off at most, at the step on the way where that is least."""
    codes, scale = chain.codes[-1].numbers.reshape(chain.x.shape), chain.scale
    right, least = (codes - _whole_zero(chain)) * scale, float("inf")
    factors = [torch.ones(1, dtype=torch.float64)]
    for step in chain.codes[: chain.codes.index(chain.round)]:
        if step.op not in SCALINGS:
            break  # only what scales the tensor before the codes do may be left in the values
        by = step.other.numbers
        factors.append(factors[-1] / by if step.op == "mul" else factors[-1] * by)
    way = after_codes(chain)
    for val, after in zip(way, [*way[1:], None], strict=True):
        if val.numbers.numel() == right.numel() and not (after and _goes_on(chain, val, after, divisor)):
            values = val.numbers.reshape(right.shape)
            for factor in factors[:-1]:
                room = (scale / factor).abs() * 1.01 + 2e-3 * (right / factor).abs()
                least = min(least, float(((values - right / factor).abs() / room).max()))
    return least


def _goes_on(chain: Chain, val: Val, after: Val, divisor: float) -> bool:
    """Tell whether a step still belongs to dequantizing: in the same line, an end of the range or the number
    that divides it once more."""
    if after.line != val.line or after.op not in (*SHIFTS, *SCALINGS):
        return False
    by = after.other.numbers.abs()
    if after.op in SCALINGS:
        return not after.other.varies and after.other.number == divisor > 3
    ends = block_extremes(chain.x - chain.shift, chain.scale if chain.factor.numel() > 1 else chain.factor)
    return any(near(by - end.abs(), 0.0, 1e-6) for end in ends if by.numel() in (1, end.numel()))


def _right_way(q: Quantizer) -> str:
    """Return how the codes are dequantized."""
    inner = "codes * scale" if q.zero_point == 0 else "(codes - zero_point) * scale"
    if not bool(q.shift.any()):
        return inner
    return f"{inner} + min" if q.is_rest else f"{inner}, plus what was taken off x before"
