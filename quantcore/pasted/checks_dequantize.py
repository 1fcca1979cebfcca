"""Mistakes after the codes were stored: (codes - zero point) · scale, in a type that holds the difference."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.pasted.case import Case, Found, near
from quantcore.pasted.forms import spread
from quantcore.pasted.quantizer import SMALL, Chain, bits_of, other, sign
from quantcore.pasted.trace import numbers

_ADVICE = "Dequantize with (codes - zero_point) * scale."


def check_dequantize(case: Case) -> Iterator[Found]:
    """Yield what is wrong after the codes were stored."""
    overflow = list(_overflow(case.chain))
    yield from overflow
    if not case.chain.unscale:
        return
    back = [_unscaled(c) for c in case.chains if c.unscale]
    if all(b is not None and near(b * b, 1.0, 1e-2) is False and _inverse(c) for b, c in zip(back, case.chains, strict=True)):
        yield Found(
            "multiplied", case.chain.unscale[0].line,
            "The codes are scaled in the same direction as x was, which does not dequantize them.",
            "Where x was divided by the scale, multiply the codes by it.",
        )  # fmt: skip
        return
    if not overflow and all(b is not None and near(b, 1.0, 1e-2) for b in back):
        yield from _zero_point(case)


def _overflow(chain: Chain) -> Iterator[Found]:
    for node in chain.shifts:
        bits = bits_of(node)
        if node.op == "cast" or bits is None or bits > SMALL or node.flow is None:
            continue
        right = numbers(node.flow.value) + sign(node) * numbers(other(node).value)
        if not torch.equal(right, numbers(node.value)):
            limits = str(node.value.dtype).removeprefix("torch.")
            yield Found(
                "dequantize-overflow", node.line,
                f"codes - zero_point is computed in {limits}, which has {bits} bits: differences that it does not hold wrap around.",
                "Convert first: (codes.float() - zero_point) * scale.",
            )  # fmt: skip


def _unscaled(chain: Chain) -> Tensor | None:
    """What the codes are multiplied by, over the step that they count."""
    total = torch.tensor(1.0, dtype=torch.float64)
    for node in chain.unscale:
        value = numbers(other(node).value)
        total = total * value if node.op == "mul" else total / value
    try:
        ratio: Tensor = total / chain.factor
    except RuntimeError:
        return None
    return ratio


def _inverse(chain: Chain) -> bool:
    """Whether the codes are multiplied by 1 / step."""
    ratio = _unscaled(chain)
    try:
        return ratio is not None and near(ratio * chain.factor * chain.factor, 1.0, 1e-2)
    except RuntimeError:
        return False


def _off(chain: Chain) -> tuple[Tensor, Tensor, Tensor] | None:
    """By how many codes the dequantized values are too large, the zero point in the codes, and the step, each where
    nothing was clipped."""
    assert chain.end is not None
    x = numbers(chain.data.value)
    root, shift = chain.shift
    if root.value.shape != chain.data.value.shape or chain.end.value.shape != x.shape:
        return None
    scale = spread(chain.factor, x)
    zero = chain.zero.broadcast_to(x.shape) + (shift / scale).broadcast_to(x.shape)
    origin = numbers(root.value)
    kept = (numbers(chain.stored.value) - origin / scale - zero).abs() <= 1.01
    off = (numbers(chain.end.value) - origin) / scale
    return (off[kept], zero[kept], scale[kept]) if int(kept.sum()) > 8 else None


def _zero_point(case: Case) -> Iterator[Found]:
    """Yield what is wrong if the zero point is left in the dequantized values, or was never in the codes."""
    parts = [_off(c) for c in case.chains]
    if any(p is None for p in parts):
        return
    off, zero, scale = (torch.cat([p[i] for p in parts if p is not None]) for i in range(3))
    chain = case.chain
    line = chain.unscale[-1].line
    if float(off.abs().median()) <= 1.6 or near(off, 0.0, 1.6):
        return
    tolerance = 1.01 + 1e-4 * float(off.abs().max())
    if chain.loose and near(off, zero - zero / scale, tolerance * max(1.0, float(1 / scale.min()) * 1e-4)):
        yield Found(
            "zero-point-after-scale", chain.loose[0].line,
            "The zero point is in units of codes, but is subtracted after scaling, in units of x.",
            "Subtract the zero point first: (codes - zero_point) * scale.",
        )  # fmt: skip
    elif near(off, zero, tolerance):
        yield Found(
            "zero-point-forgotten", line,
            "The codes include the zero point, but dequantizing does not subtract it: every value is too large by "
            "zero_point · scale.", _ADVICE,
        )  # fmt: skip
    elif near(off, 2 * zero, tolerance):
        yield Found(
            "zero-point-added", line,
            "The codes already include the zero point, and dequantizing adds it again: every value is too large by "
            "2 · zero_point · scale.", _ADVICE,
        )  # fmt: skip
    elif near(zero, 0.0, 0.01) and chain.shifts:
        yield Found(
            "zero-point-not-added", line, "Dequantizing subtracts a zero point that was never added to the codes.",
            "Add the zero point after rounding: round(x / scale) + zero_point.",
        )  # fmt: skip
