"""The mistakes of a quantizer: what differs from the one it is meant to be, and the line of the operation."""

import math
from collections.abc import Iterator

import numpy as np
import torch

from quantcore.numerics import WORDS
from quantcore.pasted.evaluation import FLOAT, Val, ancestors
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.quantizer import (
    SCALINGS,
    SHIFTS,
    SMALL,
    Quantizer,
    between,
    block_extremes,
    near,
    number,
)

_ROOM = 1.01  # tolerated excess of the divisor, in codes: max|x| / 128 clips one code, and libraries use it


def check_codes(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what may be wrong with a quantizer up to its stored codes."""
    node = q.round
    if q.rule in ("floor", "ceil", "toward_zero"):
        name = "//" if node.op == "floor_divide" else node.name
        how = f"{name} rounds x / scale {WORDS[q.rule]}"
        if node.op == "cast":
            how = f"x / scale is cast to {node.dtype} without rounding, which drops the fraction"
        # an image times 255 may need no rounding
        times = q.scalings[0].other.number if q.scalings[0].op == "mul" else None
        image = node.op == "cast" and q.kind == "given" and times in (255, 65535)
        yield q.found("toward_zero", node.line, not image, how=how)
    if q.multiplied:
        yield q.found("multiplied", q.scalings[0].line, how="x is multiplied by the scale")
        return
    if q.axis != -1:  # only a square tensor shows it, on all others the code fails
        yield q.found("other_axis", q.reduced.line)
    else:
        yield from _cast(q)
        if q.is_span:
            yield from _divisor(q)
            yield from _asymmetric_zero(q)
        elif q.is_single and q.zero_point is not None and q.shift.numel() == 1:
            yield from _single(q, q.zero_point)
    yield from _zero_rounding(q)
    first = q.earlier
    if first and not (first.factor.shape == q.factor.shape and near(first.factor / q.factor, 1.0, 1e-3)):
        before = (first.end or first.codes[-1]).line
        yield q.found("quantized_twice", q.scalings[0].line, before=str(before))


def _cast(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether the codes are clamped, to what their type holds, when they are cast to it."""
    cast, limits, clamp, late = q.cast, q.limits, q.clamp, q.late
    if cast is None or limits is None:
        return
    ends = [end for end in q.ends if end is not None]
    if late is not None:
        if not late.handed:
            yield q.found("zero_point_after_clamp", late.line)
    elif clamp and not all(limits[0] <= end <= limits[1] for end in ends):
        types = [np.iinfo(f"{sign}int{cast.bits}") for sign in ("u", "")] if len(ends) == 2 else []
        fits = next((t.dtype for t in types if t.min <= ends[0] and ends[1] <= t.max), None)
        line, fix = (cast.line, f"Cast to {fits}, or clamp") if fits else (clamp.line, "Clamp")
        yield q.found("other_format", line, fix=fix, kept=between(q.ends))
    elif len(ends) < 2:
        yield from _unclamped(q, limits, cast)


def _unclamped(q: Quantizer, limits: tuple[int, int], cast: Val) -> Iterator[CodeFinding]:
    """Yield a cast without a clamp, on a tensor where a code does not fit."""
    kind, zero = q.kind, q.zero_point
    # a scale that does not depend on the tensor does not follow its outliers either
    fixed = kind in ("given", "handed") and "outlier" in q.on
    tried = [*q.ordinary, q.on["outlier"]] if fixed else q.ordinary
    uncast = (c.cast.flow.numbers.flatten() for c in tried if c.cast and c.cast.flow)
    codes = torch.cat(list(uncast)).trunc().nan_to_num(0.0)
    low, high = float(codes.min()), float(codes.max())
    if kind == "unknown" or (low >= limits[0] and high <= limits[1]):
        return
    held = between(limits)
    why = f"on the tensors tried, they reach {between((low, high))}, and those outside {held} do not fit"
    certain = zero is not None and kind not in ("handed", "max") and (zero == 0 or kind != "span")
    if kind == "given":
        certain &= q.factor.numel() == 1 and any(s.op == "div" for s in q.scalings)
        if q.factor.numel() == 1 and zero is not None:
            step = float(q.factor)
            ends = f"{(limits[0] - zero) * step:.4g}..{(limits[1] - zero) * step:.4g}"
            why = f"with the scale {step:.4g}, values outside {ends} need codes outside {held}"
    yield q.found("wrapped", cast.line, certain or kind == "percentiles", why=why)


def _single(q: Quantizer, zero: float) -> Iterator[CodeFinding]:
    """Check whether the scale and the codes of a symmetric range hold values of both signs."""
    kind, bounds = q.kind, q.bounds
    signed = bounds[0] < zero if bounds else q.divisor in (127, 7, 1, 32767)
    if kind in ("max", "signed percentile") and signed and not q.one_sided:
        yield q.found("absolute_value" if kind == "max" else "signed_percentile", q.reduced.line)
    lost = kind in ("abs", "percentile") and not q.one_sided and not signed
    yield from _divisor(q, lost)
    if lost and bounds:
        middle = (bounds[1] + 1) // 2
        line = _zero_line(q) or (q.clamp or q.codes[-1]).line
        yield q.found("middle_left_out", line, middle=number(middle), rest=number(bounds[1] - middle))


def _divisor(q: Quantizer, lost: bool = False) -> Iterator[CodeFinding]:
    """Check whether the scale's extreme is divided by the number of steps that the codes have for it."""
    if q.bounds is None:
        return
    (low, high), divisor, zero, clamp = q.bounds, q.divisor, q.zero_point or 0, None not in q.ends
    most = high - low if q.is_span else high - zero
    facts = {"reach": f"{number(divisor)} steps", "most": number(most) if most > 0 else "the largest code"}
    beyond = "codes outside them"
    if not q.is_span:
        facts["reach"] = f"codes up to {number(round(divisor + zero))}"
        beyond = f"everything larger than {number(most)} steps ({most / divisor:.0%} of {q.extreme})"
    # the number as the code has it; a factor besides it narrows the range
    constant = next((a for a in q.divided.args if not a.varies), None)
    written = abs(constant.number or 0.0) if constant and q.divided not in q.scalings else 0.0
    written = math.inf if not written else written if q.divided.op == "div" else 1 / written
    if min(divisor, written) > most + _ROOM:
        how = "the clamp clips" if clamp else "the cast overflows for"
        yield q.found("divisor", q.divided.line, lost=f"{how} {beyond}", **facts)
    elif clamp and divisor * 1.9 < most and not lost:
        yield q.found("unused_codes", q.divided.line, **facts)


def _zero_line(q: Quantizer) -> int:
    """Return the line where a zero point of 0 was written or added; 0 if there is none."""
    constants = (s for s in q.zeros if not s.other.varies and s.other.number == 0)
    return next((s.added_line for s in constants), 0)


def _asymmetric_zero(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether the zero point maps the bounds of the range to the bounds of the codes."""
    if q.zero_point == 0 and not q.one_sided:
        where = _zero_line(q)
        yield q.found("zero_point_left_out", where or q.divided.line, zero="0" if where else "missing")
    step = next((s for s in q.zeros if s.other.varies), None)
    if step is None or q.bounds is None or q.kind != "span":
        return  # with percentiles, the lower one takes the place of the minimum
    (low, high), offs, negated = q.bounds, list[torch.Tensor](), True
    for chain in q.ordinary:
        lowest = block_extremes(chain.x, chain.scale if chain.factor.numel() > 1 else chain.factor)[0]
        right = low - lowest / chain.scale
        zero = chain.zero.broadcast_to(right.shape)
        negated &= any(near(z, right) for z in (2 * low - zero, -zero)) and not near(zero, right)
        offs.append((zero - right).flatten())
    off, line = torch.cat(offs), step.added_line
    shifted = float(off.abs().min()) > 1.5 and near(off, off.median())
    if negated:
        yield q.found("sign_of_low", line)
    elif shifted and abs(q.divisor - (high - low)) <= _ROOM:
        yield q.found("zero_point_range", line, got=str(round(low + float(off.median()))))


def _zero_rounding(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether the zero point is an integer, and rounded to one."""
    scale = {node.index for node in q.scale_nodes}
    for step in q.zeros:
        zero, i = step.other, q.codes.index(step)
        if not zero.varies or zero.handed:
            continue
        cut = next((a for a in ancestors(zero) if a.index not in scale and _drops_fraction(a)), None)
        whole = all(c.codes[i].other.is_integral for c in q.ordinary if len(c.codes) > i)
        early = step in q.early
        if cut is not None:
            yield q.found("zero_point_not_rounded", zero.line or cut.line, where="by its conversion")
        elif not whole and not early and q.cast and not any(s.op == "round" for s in q.codes[i:]):
            where = "with that of the codes, by their cast"
            yield q.found("zero_point_not_rounded", step.line, where=where)
        elif not whole and early:
            yield q.found("float_zero_point", zero.line or step.line)


def _drops_fraction(val: Val) -> bool:
    """Tell whether an operation cuts off fractions instead of rounding."""
    to_integer = val.op == "cast" and (val.name == "int" or val.bits < FLOAT)
    to_integer |= val.name in ("floor", "ceil", "trunc", "fix")
    if not to_integer or not val.args or val.args[0].value is None:
        return False
    before = val.args[0]
    half = before.op == "add" and any(isinstance(a.value, float) and a.value == 0.5 for a in before.args)
    return not half and not before.is_integral


def check_dequantize(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what is wrong in (codes - zero point) · scale, and whether its type holds the difference."""
    steps = [s for s in q.back if s.op in SHIFTS]
    small = [s for s in steps if s.flow and s.bits <= SMALL]
    wraps = [s for s in small if s.flow and not torch.equal(s.flow.numbers + s.added, s.numbers)]
    for s in wraps:
        yield q.found("dequantize_overflow", s.line, dtype=s.dtype, bits=str(s.bits))
    scalings = [s for s in q.back if s.op in SCALINGS]
    kind = "" if wraps or not scalings else _way_back(q)
    if kind:
        culprits = {"multiplied": scalings[0], "zero_point_after_scale": (steps or scalings)[-1]}
        line = culprits.get(kind, scalings[-1]).line
        yield q.found(kind, line, how="The codes are scaled in the same direction as x was")


def _way_back(q: Quantizer) -> str:
    """Return which mistake gives the dequantized values, within rounding on all tensors; empty for none."""
    left: list[str] | None = None
    for chain in q.ordinary:
        if chain.end is None:
            return ""
        codes, end = chain.codes[-1].numbers, chain.end.numbers
        if not codes.numel() == end.numel() == chain.x.numel():
            return ""
        codes, end, scale = codes.reshape(chain.x.shape), end.reshape(chain.x.shape), chain.scale
        zero = chain.zero + chain.shift / chain.factor
        shifts = [s.added for s in chain.back if s.op in SHIFTS]
        ways = {
            "": [(codes - zero) * scale],
            "multiplied": [(codes + by) / scale for by in (-zero, torch.zeros(1), *shifts)],
            "zero_point_after_scale": [codes * scale - zero],
            "zero_point_forgotten": [codes * scale],
            "zero_point_added": [(codes + zero) * scale],
        }
        if shifts and near(zero, 0.0, 0.01):
            ways |= {"": [codes * scale], "zero_point_not_added": [(codes + shifts[0]) * scale]}
        room = scale.abs() * (1.01 + 1e-4 * zero.abs().max()) + 1e-6 * end.abs()
        fits = [k for k, each in ways.items() if any(bool(((end - way).abs() <= room).all()) for way in each)]
        left = [k for k in fits if left is None or k in left]
    return left[0] if left else ""


def check_special(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what does not show on an ordinary tensor."""
    for step in q.on["one-sided"].zeros if "one-sided" in q.on else ():
        for a in ancestors(step.other):
            if a.op == "cast" and a.limits and a.args and a.varies and a.bits <= SMALL // 2:
                before = a.args[0].numbers.trunc()
                if bool((before.clamp(*a.limits) != before)[~before.isnan()].any()):
                    yield q.found("zero_point_not_clamped", step.added_line, dtype=a.dtype)
    if q.kind in ("given", "handed"):
        return
    empty = [q.on[name].factor for name in ("zeros", "constant") if name in q.on]
    if any(bool((factor.eq(0) | ~factor.isfinite()).any()) for factor in empty):
        name = "The scale" if q.kind == "unknown" else q.formula
        yield q.found("zero_scale", q.divided.line, scale=name)
    for val in q.on["subnormal"].scale_nodes if "subnormal" in q.on else ():
        half = val.op == "cast" and val.dtype.endswith("float16")
        if half and bool((val.numbers.eq(0) & val.args[0].numbers.ne(0)).any()):
            yield q.found("scale_float16", val.line)
