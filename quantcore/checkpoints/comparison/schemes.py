"""Why two quantized tensors differ: their formats, the rule for their scales, zero points, or codes alone.

Libraries divide max |w| by 7, 7.5 or 8 for int4, and max - min by 15 or 16: where both sides have the same
blocks, the ratio of their scales tells which. Only parameters are read, and of codes some rows.
"""

import math
from itertools import product

import torch
from torch import Tensor

from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Refused
from quantcore.checkpoints.statement import Fact, Statement
from quantcore.errors import QuantError
from quantcore.formats import FloatFormat, IntFormat

_MOST = 0.9  # of the blocks
_TOLERANCE = 2.0**-7.5  # relative, of a ratio of scales that are both rounded to bfloat16
_EXACT = 2.0**-20
_SAMPLE = 1 << 18  # codes that are compared
_QUANTILES = 1 << 20  # scales whose spread is told, at most


def why_different(a: Layout, b: Layout) -> Statement | None:
    """Return why a tensor of A differs from that of B; None if parameters and codes don't tell.

    Both are whole tensors of equal shape in the same order of rows.
    """
    if any(isinstance(one, Refused) or one.holds_values for one in (a, b)) or a.shape != b.shape:
        return None
    try:
        return _of_parameters(a, b)
    except QuantError:  # said where it is compared
        return None


def _said(words: str, **facts: Fact) -> Statement:
    return Statement("why_different", "note", words, facts)


def _of_parameters(a: Layout, b: Layout) -> Statement | None:
    first, second = (one.parameters() for one in (a, b))
    if first.scale is None or second.scale is None:
        return None
    if a.blocks.grid != b.blocks.grid or first.scale.shape != second.scale.shape:
        words = "{differs}: A has a scale per {a} elements, B per {b}."
        return _said(words, a=_block(a), b=_block(b))
    found = _of_scales(a, b, first.scale.double().abs(), second.scale.double().abs())
    zeros = [one.zero_point if one.zero_point is not None else one.min for one in (first, second)]
    if found is not None or zeros[0] is None or zeros[1] is None or zeros[0].shape != zeros[1].shape:
        return found or _of_codes(a, b)
    away = (zeros[1].double() - zeros[0].double()).reshape(-1)
    share = float((away != 0).double().mean())
    if share and bool((away == away[0]).all()):
        words = "{differs}: scales are equal, but every zero point of B is A's plus {by}."
        return _said(words, by=float(away[0]))
    if share:
        return _said("{differs}: scales are equal, but {share:%} of the zero points differ.", share=share)
    return _of_codes(a, b)


def _block(layout: Layout) -> str:
    return " × ".join(str(n) for n in layout.blocks.block)


def _of_scales(a: Layout, b: Layout, first: Tensor, second: Tensor) -> Statement | None:
    known = (first > 0) & (second > 0) & first.isfinite() & second.isfinite()
    if not bool(known.any()):
        return None
    ratio = second[known] / first[known]
    middle = float(ratio.median())

    def share_of(value: float, tolerance: float) -> float:
        return float(((ratio / value - 1).abs() <= tolerance).double().mean())

    if share_of(1.0, _EXACT) >= _MOST:
        return None
    facts: dict[str, Fact] = {"ratio": middle, "scales": int(known.sum())}
    near = min(product(_divisors(a), _divisors(b)), key=lambda d: abs(d[0] / d[1] / middle - 1))
    share = share_of(near[0] / near[1], _TOLERANCE)
    if a.symmetric == b.symmetric and near[0] != near[1] and share >= _MOST:
        what = "max |w|" if a.symmetric else "max − min"
        words = (
            f"{{differs}}: A divides {what} by {{a}}, B by {{b}}; B's scales are {{ratio}} times A's in "
            "{share:%} of {scales:block}."
        )
        return _said(words, a=f"{near[0]:g}", b=f"{near[1]:g}", share=share, **facts)
    share = share_of(1.0, _TOLERANCE)
    if share >= _MOST:
        words = "{differs}: {share:%} of {scales:scale} are equal but for rounding them to a dtype."
        return _said(words, share=share, **facts)
    share = share_of(middle, _TOLERANCE)
    if share >= _MOST:
        words = "{differs}: B's scales are {ratio} times A's in {share:%} of {scales:block}."
        return _said(words, share=share, **facts)
    low, high = (float(q) for q in torch.quantile(ratio[:_QUANTILES], torch.tensor([0.05, 0.95]).double()))
    words = (
        "{differs}: B's scales are {low} to {high} times A's (median {ratio} of {scales:block}), as a search "
        "for scales or other weights make them."
    )
    return _said(words, low=low, high=high, **facts)


def _divisors(layout: Layout) -> tuple[float, ...]:
    """Return what libraries divide the largest magnitude, or the range, by."""
    element = layout.element
    if isinstance(element, IntFormat):
        top, every = (1 << (element.bits - 1)) - 1, (1 << element.bits) - 1
        return (float(top), top + 0.5, top + 1.0) if layout.symmetric else (float(every), every + 1.0)
    return (float(element.max),) if isinstance(element, FloatFormat) else (1.0,)


def _of_codes(a: Layout, b: Layout) -> Statement | None:
    if str(a.element) != str(b.element):
        return None
    rows = slice(0, max(1, min(a.shape[0], _SAMPLE // max(1, math.prod(a.shape[1:])))))
    first, second = (one.codes(rows).to(torch.int32) for one in (a, b))
    differ = first != second
    if not bool(differ.any()):
        return None
    share, step = float(differ.double().mean()), float(((first - second).abs() == 1)[differ].double().mean())
    words = "{differs}: scales are equal, but {share:%} of the codes differ, {step:%} of these by one"
    words += ", as error feedback (GPTQ) or another rounding moves them." if step >= _MOST else "."
    return _said(words, share=share, step=step)
