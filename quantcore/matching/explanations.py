"""What mistakes did to the values of a tensor, in sentences computed from them."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quantcore.formats import IntFormat
from quantcore.granularity import PerTensor, block_bounds, block_name, block_shape
from quantcore.matching.hypotheses.corruption import (
    ROUNDINGS,
    ZERO_POINTS,
    Corruption,
    element_inputs,
    reproduce,
)
from quantcore.matching.hypotheses.mistaken_scales import MOST, PERCENTILES
from quantcore.matching.hypotheses.scale_from_codes import MAX_BITS, ROUNDED, interval
from quantcore.numerics import apart
from quantcore.programs import Program
from quantcore.qparams import QParams, choose_qparams, wrap
from quantcore.scheme import Scheme, facts_of
from quantcore.wording import count

# Scales of a short formula
_DIVIDED = ("amax_over_half_range", "full_range", "amax_over_half_codes", "max_of_sides")
SHOWN = 2  # elements that a sentence names


class NegativesLost(str):
    """The sentence on negative values that became 0."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class _Explained:
    """A candidate that gives every code; ``codes`` on the axes of x, other tensors one number per element."""

    x: Tensor
    codes: Tensor
    scheme: Scheme
    corruption: Corruption
    program: Program
    params: QParams
    format: IntFormat
    scale: Tensor
    zero_point: Tensor  # as used
    unclamped: Tensor  # codes before the clamp


def explain_corruption(
    x: Tensor, codes: Tensor, scheme: Scheme, corruption: Corruption, own_scale: bool
) -> tuple[str, ...]:
    """Return sentences, without full stops, on what went wrong, with numbers computed from x.

    Args:
        x: in the dtype in which the library is given it.
        codes: the codes that this scheme and corruption give, on the axes of x.
        own_scale: whether the scale is given or named, so that the possible scales are not mentioned.
    """
    fmt = scheme.format
    assert isinstance(fmt, IntFormat)
    of_scale = _least(x, scheme) or _scale_rule(scheme)
    if not corruption.computed and fmt.signed and scheme.range_setting.ends_are_elements:
        # nothing went wrong; the arithmetic would take several times the memory of x
        return tuple(filter(None, (of_scale,)))
    params = choose_qparams(x, scheme)
    inputs = element_inputs(x, scheme, params, corruption)
    scale, z, unclamped = (inputs.of(name) for name in ("s", "z", "v"))
    t = _Explained(x, codes, scheme, corruption, inputs.program, params, fmt, scale, z, unclamped)
    kinds = set(corruption.computed)
    explanations = [
        of_scale,
        _asymmetric(t) if "zero_point_left_out" in kinds else "",
        _zero_points(t) if kinds & ZERO_POINTS else "",
        f"the range starts at 0, but min(x) is {x.min().item():.7g}" if "range_from_zero" in kinds else "",
        _percentile(t) if "signed_percentile" in kinds else "",
        _float16(t) if "scale_float16" in kinds else "",
        _rounded(t, kinds),
        _wrapped(t) if "wrapped" in kinds else "",
        _kept(t) if "unclamped" in kinds else "",
        _negatives(t) if not {"wrapped", "unclamped"} & kinds else "",
        "" if own_scale else _allowed(t),
    ]
    return tuple(sentence for sentence in explanations if sentence)


def _least(x: Tensor, scheme: Scheme) -> str:
    """Say which scales are the least that the library allows, whatever x is."""
    rules = scheme.in_dtype(x.dtype).rules.scale
    least = rules.eps
    if not scheme.range_setting.ends_are_elements or not least or least != rules.eps_replacement:
        return ""
    scale = choose_qparams(x, scheme).scale
    n = int((scale == torch.tensor(least, dtype=torch.float32)).sum())
    which = "the scale is" if scale.numel() == 1 else f"{n:,} of {scale.numel():,} scales are"
    return f"{which} {least:.7g}, the least that {scheme.convention.library} allows" if n else ""


def _scale_rule(scheme: Scheme) -> str:
    """Say how a symmetric scale is computed, if not with the largest code."""
    facts = facts_of(scheme)
    if not (scheme.symmetric and facts.min_max and facts.rules.scale.symmetric_scale in _DIVIDED):
        return ""
    rule = facts.symmetric_rule.said(facts.names)
    return "" if rule == f"max|x| / {scheme.format.symmetric_max}" else f"the scale is {rule}"


def _asymmetric(t: _Explained) -> str:
    """Return the formula of the scale, if it is (high - low) / steps."""
    low, high, scale = t.params.low, t.params.high, t.params.scale
    if low is None or high is None or not t.scheme.range_setting.ends_are_elements:
        return ""
    steps = t.format.qmax - t.format.qmin
    if not torch.allclose((high - low) / steps, scale, rtol=1e-5, atol=0):
        return ""
    if scale.numel() > 1:
        return f"{scale.numel():,} asymmetric scales, (high - low) / {steps}, ranging from {_span(scale)}"
    minus = f"+ {-low.item():.7g}" if low.item() < 0 else f"- {low.item():.7g}"
    return f"asymmetric scale: ({high.item():.7g} {minus}) / {steps} = {scale.item():.7g}"


def _zero_points(t: _Explained) -> str:
    right = t.params.zero_point.to(torch.float32)
    used = t.program.write("z", {"z": right}, torch.empty_like(right))
    if right.numel() == 1:
        return f"zero_point {used.item():g} instead of {right.item():g}"
    return f"zero_points from {_span(used)} instead of {_span(right)}" if used.any() else (
        f"zero_point 0 in all {right.numel():,} blocks instead of {_span(right)}"
    )  # fmt: skip


def _percentile(t: _Explained) -> str:
    beyond = int((t.x.abs() > t.scale * t.format.qmax).sum())
    elements = f"in {beyond:,} of {t.x.numel():,} elements"
    if not isinstance(t.scheme.granularity, PerTensor):
        return f"|x| exceeds the range {elements}"
    high = t.scale.reshape(-1)[0]
    values = t.x.reshape(-1).float()
    fits = [p for p in PERCENTILES if torch.quantile(values, p / 100) / t.format.qmax == high]
    name = f"{fits[0]:g}th percentile of x" if fits else "range"
    return f"{name} = {(high * t.format.qmax).item():.7g}; |x| exceeds it {elements}"


def _float16(t: _Explained) -> str:
    right = t.params.scale
    used = t.program.write("s", {"s": right})
    zero = int((used == 0).sum())
    if zero:
        verb = "underflows" if zero == 1 else "underflow"
        return f"{count(zero, 'scale')} {verb} to 0 in float16, so x / scale is infinite"
    at = tuple(int(i) for i in (used != right).nonzero()[0]) if bool((used != right).any()) else ()
    return f"scale {right[at].item():.9g} is rounded to {used[at].item():.9g} in float16" if at else ""


def _rounded(t: _Explained, kinds: set[str]) -> str:
    """Say how many codes differ from rounding once, half to even."""
    if not kinds & (ROUNDINGS | {"quantized_twice"}):
        return ""
    others = tuple(k for k in t.corruption.computed if k not in ROUNDINGS | {"quantized_twice"})
    once = dataclasses.replace(t.scheme, convention=t.scheme.convention.changed(rounding="half_even"))
    right = reproduce(t.x, once, Corruption(others)).to(torch.int64)
    way = "from quantizing x once" if "quantized_twice" in kinds else "from rounding half to even"
    right = right.reshape(-1)
    n = int((right != t.codes.reshape(-1)).sum())
    return f"{count(n, 'code')} {'differs' if n == 1 else 'differ'} {way}{_some(t, right)}"


def _wrapped(t: _Explained) -> str:
    outside = (t.unclamped < t.format.qmin) | (t.unclamped > t.format.qmax)
    before = torch.where(outside, t.unclamped, t.codes.to(torch.float32)).reshape(-1).to(torch.int64)
    assert torch.equal(wrap(t.unclamped, t.format)[outside].to(torch.int64), t.codes[outside].to(torch.int64))
    return f"{count(int(outside.sum()), 'code')} wrapped{_some(t, before)}"


def _kept(t: _Explained) -> str:
    outside = (t.codes < t.format.qmin) | (t.codes > t.format.qmax)
    n = int(outside.sum())
    first = int(outside.reshape(-1).nonzero()[0])
    verb = "lies" if n == 1 else "lie"
    code = int(t.codes.reshape(-1)[first])
    return f"{count(n, 'code')} {verb} outside {t.format}: {code} at {_place(t, first)}"


def _negatives(t: _Explained) -> str:
    """Say how many negative values became 0 because no code lies below the zero_point."""
    if t.format.signed:
        return ""
    lost = (
        (t.x < 0)
        & (t.unclamped < t.format.qmin)
        & (t.zero_point == t.format.qmin)
        & (t.codes == t.format.qmin)
    )
    n = int(torch.count_nonzero(lost))
    if not n:
        return ""
    return NegativesLost(
        f"there are no codes for negative values: {n:,} of {t.x.numel():,} elements became 0"
    )


def _allowed(t: _Explained) -> str:
    """Say which scales the codes allow, or those of the first channel, if the scale was derived from them."""
    fmt, granularity = t.format, t.scheme.granularity
    if t.scheme.range_setting.ends_are_elements:
        return ""
    if fmt.bits > MAX_BITS or t.x.numel() > MOST or "unclamped" in t.corruption.computed:
        return ""
    shape = tuple(t.x.shape)
    first = block_bounds(shape, block_shape(granularity, shape), (0,) * len(shape))
    x, codes = (each[tuple(slice(*span) for span in first)] for each in (t.x, t.codes))
    place = "" if x.numel() == t.x.numel() else f" of {block_name(first, shape)}"
    z, s = int(t.zero_point.reshape(-1)[0]), float(t.scale.reshape(-1)[0])
    kinds = t.corruption.computed
    rounding = next((kind for kind in kinds if kind in ROUNDED), "")
    low, high = interval(x, codes, fmt, z, "wrapped" in kinds, s, rounding)
    allowed = f"the codes{place} allow scales from {apart(low, s)} to {apart(high, s)}"
    return allowed if low < s < high else ""


def _some(t: _Explained, before: Tensor) -> str:
    """Name the first elements whose code changed."""
    codes = t.codes.reshape(-1).to(torch.int64)
    places = (before != codes).nonzero().reshape(-1)
    named = [f"{int(before[i])} → {int(codes[i])} at {_place(t, int(i))}" for i in places[:SHOWN]]
    more = ", …" if len(places) > SHOWN else ""
    return f": {', '.join(named)}{more}" if named else ""


def _place(t: _Explained, flat: int) -> str:
    return str(tuple(int(i) for i in np.unravel_index(flat, t.x.shape)))


def _span(values: Tensor) -> str:
    low, high = values.min().item(), values.max().item()
    return f"{low:.7g} to {high:.7g}"
