"""The mistakes of a quantizer: what differs from the one it is meant to be, and the line of the operation."""

from collections.abc import Iterator

import numpy as np
import torch

from quantcore.pasted.case import TO_NEAREST, Case, between, block_extremes, near, number
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.quantizer import (
    FLOAT,
    SCALINGS,
    SHIFTS,
    SMALL,
    Chain,
    added,
    bits_of,
    dtype_of,
    is_integral,
    other,
    type_limits,
)
from quantcore.pasted.trace import Val, ancestors, numbers

_ROOM = 1.01  # tolerated excess of the divisor, in codes: max|x| / 128 clips one code, and libraries use it
_ROUNDS = {
    "floor": "floor rounds down",
    "ceil": "ceil rounds up",
    "floordiv": "// rounds down",
    "floor_divide": "// rounds down",
}


def check_codes(case: Case) -> Iterator[CodeFinding]:
    """Yield what may be wrong with a quantizer up to its stored codes."""
    chain = case.chain
    yield from _rounding(case)
    if case.form.multiplied:
        yield case.found("multiplied", chain.scalings[0].line, how="x is multiplied by the scale")
        return
    if case.form.axis != -1:  # only a square tensor shows it, on all others the code fails
        yield case.found("wrong-axis", case.reduced.line)
    else:
        yield from _cast(case)
        yield from _scale(case)
    yield from _zero_rounding(case)
    if chain.earlier is None:
        return
    first = chain.earlier.factor
    if first.shape != chain.factor.shape or not torch.allclose(first, chain.factor, rtol=1e-3):
        before = (chain.earlier.end or chain.earlier.codes[-1]).line
        yield case.found("quantized-twice", chain.scalings[0].line, before=str(before))


def _rounding(case: Case) -> Iterator[CodeFinding]:
    node = case.chain.round
    if case.rule in ("round", "half up", "half away") or case.random:
        return
    how = _ROUNDS.get(node.name, "trunc rounds toward zero")
    if node.op == "cast":
        how = f"x / scale is cast to {dtype_of(node)} without rounding, which drops the fraction"
    # an image times 255 may need no rounding
    image = node.op == "cast" and case.form.kind == "given" and case.chain.scalings[0].op == "mul"
    yield case.found("truncated", node.line, not image, how=how)


def _cast(case: Case) -> Iterator[CodeFinding]:
    """Whether the codes are clamped, to what their type holds, when they are cast to it."""
    cast, limits, clamp, late = case.chain.cast, case.limits, case.chain.clamp, case.chain.late
    if cast is None or limits is None:
        return
    ends = [end for end in case.chain.ends if end is not None]
    if late is not None:
        if not late.handed:
            yield case.found("zero-point-after-clamp", late.line)
    elif clamp is not None and not all(limits[0] <= end <= limits[1] for end in ends):
        types = [np.iinfo(f"{sign}int{bits_of(cast)}") for sign in ("u", "")]
        fits = next(
            (t.dtype for t in types if len(ends) == 2 and t.min <= ends[0] and ends[1] <= t.max), None
        )
        fix = f"Cast to {fits}, or clamp" if fits else "Clamp"
        yield case.found(
            "clamp-bounds", (cast if fits else clamp).line, fix=fix, kept=between(*case.chain.ends)
        )
    elif len(ends) < 2:
        yield from _unclamped(case, limits, cast)


def _unclamped(case: Case, limits: tuple[int, int], cast: Val) -> Iterator[CodeFinding]:
    """A cast without a clamp, on a tensor where a code does not fit."""
    chain, kind, zero = case.chain, case.form.kind, case.zero
    # a scale that does not depend on the tensor does not follow its outliers either
    fixed = kind in ("given", "handed") and "outlier" in case.special
    tried = [*case.chains, case.special["outlier"]] if fixed else case.chains
    uncast = (numbers(c.cast.flow.value).flatten() for c in tried if c.cast and c.cast.flow)
    codes = torch.cat(list(uncast)).trunc().nan_to_num(0.0)
    low, high = float(codes.min()), float(codes.max())
    if kind == "unknown" or (low >= limits[0] and high <= limits[1]):
        return
    held = between(*limits)
    why = f"on the tensors tried, they reach {between(low, high)}, and those outside {held} do not fit"
    certain = zero is not None and kind not in ("handed", "max") and (zero == 0 or kind != "span")
    if kind == "given":
        certain &= chain.factor.numel() == 1 and any(s.op == "div" for s in chain.scalings)
        if chain.factor.numel() == 1 and zero is not None:
            step = float(chain.factor)
            ends = f"{(limits[0] - zero) * step:.4g}..{(limits[1] - zero) * step:.4g}"
            why = f"with the scale {step:.4g}, values outside {ends} need codes outside {held}"
    yield case.found("cast-without-clamp", cast.line, certain or kind == "percentiles", why=why)


def _scale(case: Case) -> Iterator[CodeFinding]:
    """Whether the divisor and the zero point belong to the codes."""
    form, zero, bounds = case.form, case.zero, case.bounds
    if form.is_span:
        yield from _divisor(case)
        yield from _asymmetric_zero(case)
    if not form.is_single or zero is None or case.random or case.chain.shift.numel() > 1:
        return
    signed = bounds[0] < zero if bounds else case.divisor in (127, 7, 1, 32767)
    if form.kind in ("max", "signed percentile") and signed and not case.one_sided:
        yield case.found(f"{form.kind.removeprefix('signed ')}-of-signed-values", case.reduced.line)
    lost = form.kind in ("abs", "percentile") and not case.one_sided and not signed
    yield from _divisor(case, lost)
    if lost and bounds:
        middle = (bounds[1] + 1) // 2
        line = case.zero_line or (case.chain.clamp or case.chain.codes[-1]).line
        yield case.found("negatives-lost", line, middle=number(middle), rest=number(bounds[1] - middle))


def _divisor(case: Case, lost: bool = False) -> Iterator[CodeFinding]:
    """Whether the scale's extreme is divided by the number of steps that the codes have for it."""
    if case.bounds is None:
        return
    (low, high), divisor, is_span, clamp = case.bounds, case.divisor, case.form.is_span, case.chain.clamp
    most = high - low if is_span else high - (case.zero or 0)
    reach = f"{number(divisor)} steps"
    beyond = "codes outside them"
    if not is_span:
        reach = f"codes up to {number(round(divisor + (case.zero or 0)))}"
        beyond = f"everything larger than {number(most)} steps ({most / divisor:.0%} of {case.extreme})"
    facts = {"reach": reach, "most": number(most) if most > 0 else "the largest code"}
    if min(divisor, case.written_divisor) > most + _ROOM:
        how = "the clamp clips" if clamp else "the cast overflows for"
        yield case.found("divisor", case.divided.line, lost=f"{how} {beyond}", **facts)
    elif clamp and divisor * 1.9 < most and not lost:
        yield case.found("unused-codes", case.divided.line, **facts)


def _asymmetric_zero(case: Case) -> Iterator[CodeFinding]:
    """Whether the zero point maps the bounds of the range to the bounds of the codes."""
    if case.zero == 0 and not case.one_sided:
        where = case.zero_line
        yield case.found("zero-point-left-out", where or case.divided.line, zero="0" if where else "missing")
    step = next((s for s in case.chain.zeros if other(s).varies), None)
    if step is None or case.bounds is None or case.random or case.form.kind != "span":
        return  # with percentiles, the lower one takes the place of the minimum
    (low, high), offs, negated = case.bounds, list[torch.Tensor](), True
    for chain in case.chains:
        lowest = block_extremes(chain.x, chain.scale if chain.factor.numel() > 1 else chain.factor)[0]
        right = low - lowest / chain.scale
        zero = chain.zero.broadcast_to(right.shape)
        negated &= any(near(z, right) for z in (2 * low - zero, -zero)) and not near(zero, right)
        offs.append((zero - right).flatten())
    off, line = torch.cat(offs), other(step).line or step.line
    shifted = float(off.abs().min()) > 1.5 and near(off, off.median())
    if negated:
        yield case.found("zero-point-sign", line)
    elif shifted and abs(case.divisor - (high - low)) <= _ROOM:
        yield case.found("zero-point-range", line, got=str(round(low + float(off.median()))))


def _zero_rounding(case: Case) -> Iterator[CodeFinding]:
    """Whether the zero point is an integer, and rounded to one."""
    chain, scale = case.chain, {id(node) for node in case.chain.scale_nodes}
    for i, step in enumerate(chain.codes if not case.random else ()):
        zero = other(step)
        if step not in chain.zeros or not zero.varies or zero.handed:
            continue
        cut = next((a for a in ancestors(zero) if id(a) not in scale and _drops_fraction(a)), None)
        whole = all(is_integral(other(c.codes[i])) for c in case.chains if len(c.codes) > i)
        early = step in case.early
        if cut is not None:
            yield case.found("zero-point-not-rounded", zero.line or cut.line, where="by its conversion")
        elif not whole and not early and chain.cast and not any(s.op == "round" for s in chain.codes[i:]):
            where = "with that of the codes, by their cast"
            yield case.found("zero-point-not-rounded", step.line, where=where)
        elif not whole and early:
            yield case.found("float-zero-point", zero.line or step.line)


def _drops_fraction(val: Val) -> bool:
    """Whether an operation cuts off fractions instead of rounding."""
    if not val.args or val.args[0].value is None or val.name in TO_NEAREST:
        return False
    to_integer = val.op == "cast" and (val.name == "int" or bits_of(val) < FLOAT)
    if not to_integer and val.name not in ("floor", "ceil", "trunc", "fix"):
        return False
    before = val.args[0]
    half = before.op == "add" and any(isinstance(a.value, float) and a.value == 0.5 for a in before.args)
    return not half and not is_integral(before)


def check_dequantize(case: Case) -> Iterator[CodeFinding]:
    """Yield what is wrong after the codes were stored: (codes - zero point) · scale, in a type that holds the difference."""
    chain = case.chain
    shifts = [s for s in chain.back if s.op in SHIFTS]
    overflow = [s for s in shifts if bits_of(s) <= SMALL and _wraps(s)]
    for s in overflow:
        yield case.found("dequantize-overflow", s.line, dtype=dtype_of(s), bits=str(bits_of(s)))
    unscale = next((s.line for s in chain.back if s.op in SCALINGS), None)
    if unscale is None:
        return
    right = all(near(c.unit, 1.0, 1e-2) for c in case.chains)
    if not right and all(near(c.unit / c.factor**2, 1.0, 1e-2) for c in case.chains):
        yield case.found("multiplied", unscale, how="The codes are scaled in the same direction as x was")
    elif right and not overflow:
        yield from _zero_point(case, shifts)


def _wraps(shift: Val) -> bool:
    """Whether a sum or difference of codes is not what it would be in a wider type."""
    assert shift.flow is not None
    return not torch.equal(numbers(shift.flow.value) + added(shift), numbers(shift.value))


def _zero_point(case: Case, shifts: list[Val]) -> Iterator[CodeFinding]:
    """Yield what is wrong if the zero point is left in the dequantized values, or was never in the codes."""
    line = next(s.line for s in reversed(case.chain.back) if s.op in SCALINGS)
    found = [
        [v.broadcast_to(c.x.shape) for v in (c.shift / c.factor, c.zero, c.offset / c.factor, c.factor)]
        for c in case.chains
    ]
    first, zero, offset, scale = (torch.cat([parts[i].flatten() for parts in found]) for i in range(4))
    zero, off = zero + first, offset + first  # in codes: the zero point, and by how much x̂ is too large
    within = 1.01 + 1e-4 * float(off.abs().max())
    if float(off.abs().median()) <= 1.6:
        return
    if shifts and near(off, zero - zero / scale, within * max(1.0, float(1 / scale.min()) * 1e-4)):
        yield case.found("zero-point-after-scale", shifts[-1].line)
    elif near(off, zero, within):
        yield case.found("zero-point-forgotten", line)
    elif near(off, 2 * zero, within):
        yield case.found("zero-point-added", line)
    elif near(zero, 0.0, 0.01) and shifts:
        yield case.found("zero-point-not-added", line)


def check_special(case: Case) -> Iterator[CodeFinding]:
    """Yield what does not show on an ordinary tensor."""
    special = case.special
    if "one-sided" in special:
        yield from _overflowing_zero(case, special["one-sided"])
    if case.form.kind in ("given", "handed"):
        return
    empty = [special[name].factor for name in ("zeros", "constant") if name in special]
    if any(bool((factor.eq(0) | ~factor.isfinite()).any()) for factor in empty):
        yield case.found(
            "zero-scale",
            case.divided.line,
            scale="The scale" if case.form.kind == "unknown" else case.formula,
        )
    for val in special["subnormal"].scale_nodes if "subnormal" in special else ():
        half = val.op == "cast" and dtype_of(val).endswith("float16")
        if half and bool((numbers(val.value).eq(0) & numbers(val.args[0].value).ne(0)).any()):
            yield case.found("scale-in-float16", val.line)


def _overflowing_zero(case: Case, chain: Chain) -> Iterator[CodeFinding]:
    """A zero point that does not fit its type, on a tensor all of whose values have one sign."""
    for step in chain.zeros:
        for a in ancestors(other(step)):
            limits = type_limits(a)
            if a.op == "cast" and limits and a.args and a.varies and bits_of(a) <= SMALL // 2:
                before = numbers(a.args[0].value).trunc()
                if bool((before < limits[0]).any() or (before > limits[1]).any()):
                    yield case.found(
                        "zero-point-not-clamped", other(step).line or step.line, dtype=dtype_of(a)
                    )
                    return
