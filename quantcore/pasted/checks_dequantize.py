"""Mistakes after the codes were stored: (codes - zero point) · scale, in a type that holds the difference."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.pasted.case import Case
from quantcore.pasted.forms import near
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.quantizer import SMALL, Chain, bits_of, dtype_of, other, sign
from quantcore.pasted.trace import numbers


def check_dequantize(case: Case) -> Iterator[CodeFinding]:
    """Yield what is wrong after the codes were stored."""
    overflow = list(_overflow(case.chain))
    yield from overflow
    factors = [(c, 1 / c.product(c.unscale)) for c in case.chains if c.unscale]
    if not case.chain.unscale:
        return
    try:
        right = all(near(factor / c.factor, 1.0, 1e-2) for c, factor in factors)
        inverse = not right and all(near(factor * c.factor, 1.0, 1e-2) for c, factor in factors)
    except RuntimeError:  # the shapes do not fit
        return
    if inverse:
        how = "The codes are scaled in the same direction as x was"
        yield finding("multiplied", case.chain.unscale[0].line, how=how)
    elif right and not overflow:
        yield from _zero_point(case)


def _overflow(chain: Chain) -> Iterator[CodeFinding]:
    for node in chain.shifts:
        bits = bits_of(node)
        if node.op == "cast" or bits is None or bits > SMALL or node.flow is None:
            continue
        right = numbers(node.flow.value) + sign(node) * numbers(other(node).value)
        if not torch.equal(right, numbers(node.value)):
            yield finding("dequantize-overflow", node.line, dtype=dtype_of(node), bits=str(bits))


def _off(chain: Chain) -> tuple[Tensor, Tensor, Tensor] | None:
    """By how many codes the dequantized values are too large, the zero point in the codes, and the step, each where
    nothing was clipped."""
    assert chain.end is not None
    x, scale = chain.x, chain.scale
    root, shift = chain.shift
    if root.value.shape != chain.data.value.shape or chain.end.value.shape != x.shape:
        return None
    zero = chain.zero.broadcast_to(x.shape) + (shift / scale).broadcast_to(x.shape)
    origin = numbers(root.value)
    kept = (numbers(chain.stored.value) - origin / scale - zero).abs() <= 1.01
    off = (numbers(chain.end.value) - origin) / scale
    return (off[kept], zero[kept], scale[kept]) if int(kept.sum()) > 8 else None


def _zero_point(case: Case) -> Iterator[CodeFinding]:
    """Yield what is wrong if the zero point is left in the dequantized values, or was never in the codes."""
    parts = [_off(c) for c in case.chains]
    if any(p is None for p in parts):
        return
    off, zero, scale = (torch.cat([p[i] for p in parts if p is not None]) for i in range(3))
    chain, line = case.chain, case.chain.unscale[-1].line
    if float(off.abs().median()) <= 1.6 or near(off, 0.0, 1.6):
        return
    tolerance = 1.01 + 1e-4 * float(off.abs().max())
    if chain.loose and near(off, zero - zero / scale, tolerance * max(1.0, float(1 / scale.min()) * 1e-4)):
        yield finding("zero-point-after-scale", chain.loose[0].line)
    elif near(off, zero, tolerance):
        yield finding("zero-point-forgotten", line)
    elif near(off, 2 * zero, tolerance):
        yield finding("zero-point-added", line)
    elif near(zero, 0.0, 0.01) and chain.shifts:
        yield finding("zero-point-not-added", line)
