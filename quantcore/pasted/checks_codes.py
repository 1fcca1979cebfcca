"""Mistakes up to the stored codes: rounding, casts and clamps, scale, zero point, axes."""

from collections.abc import Iterator

import torch

from quantcore.pasted.case import TO_NEAREST, Case, between, extreme, formula, is_number, number
from quantcore.pasted.forms import block_extremes, closest, divided, near, reduction, written_divisor
from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.quantizer import SMALL, Chain, bits_of, dtype_of, is_integral, other, type_limits
from quantcore.pasted.trace import Val, ancestors, numbers

_ROOM = 1.01  # tolerated excess of the divisor, in codes: max|x| / 128 clips one code, and libraries use it
_ROUNDS = {"floor": "floor rounds down", "ceil": "ceil rounds up", "floor_divide": "// rounds down"}


def check_codes(case: Case) -> Iterator[CodeFinding]:
    """Yield what may be wrong with a quantizer up to its stored codes."""
    yield from _rounding(case)
    if case.form.multiplied:
        yield finding("multiplied", case.chain.scalings[0].line, how="x is multiplied by the scale")
        return
    if case.form.axis != -1:  # only a square tensor shows it, on all others the code fails
        yield finding("wrong-axis", (reduction(case.chain) or case.chain.scalings[0]).line)
    else:
        yield from _cast(case)
        yield from _scale(case)
    yield from _zero_rounding(case)
    earlier, factor = case.chain.earlier, case.chain.factor
    first = earlier.factor if earlier else factor
    if earlier and not (first.shape == factor.shape and torch.allclose(first, factor, rtol=1e-3)):
        before = (earlier.end or earlier.stored).line
        yield finding("quantized-twice", case.chain.scalings[0].line, before=str(before))


def _rounding(case: Case) -> Iterator[CodeFinding]:
    node = case.chain.round
    if case.rule in ("round", "half up") or case.random:
        return
    how = _ROUNDS.get(node.name, "trunc rounds toward zero")
    if node.op == "cast":
        how = f"x / scale is cast to {dtype_of(node)} without rounding, which drops the fraction"
    # an image times 255 may need no rounding
    image = node.op == "cast" and case.form.kind == "given" and case.chain.scalings[0].op == "mul"
    yield finding("truncated", node.line, not image, how=how)


def _in_line(node: Val, line: int) -> str:
    return "" if node.line == line else f" in line {node.line}"


def _cast(case: Case) -> Iterator[CodeFinding]:
    cast, limits = case.chain.cast, case.cast_limits
    if cast is None or limits is None:
        return
    low, high, clamp, late = case.clamped
    facts = {"dtype": case.dtype, "limits": between(*limits)}
    if late is not None:
        if not late.handed and clamp is not None:
            yield finding("zero-point-after-clamp", late.line, clamp=_in_line(clamp, late.line), **facts)
    elif clamp is not None and any(b is not None and not limits[0] <= b <= limits[1] for b in (low, high)):
        fits = _fitting(low, high, bits_of(cast) or 64)
        line = cast.line if fits else clamp.line
        facts |= {"clamp": _in_line(clamp, line), "cast": _in_line(cast, line), "kept": between(low, high)}
        yield finding("clamp-bounds", line, fix=f"Cast to {fits}, or clamp" if fits else "Clamp", **facts)
    elif low is None or high is None:
        yield from _unclamped(case, limits, cast, facts)


def _fitting(low: float | None, high: float | None, bits: int) -> str:
    """The integer type of this width that holds the bounds; empty if there is none."""
    if low is None or high is None:
        return ""
    if low >= 0 and high < 1 << bits:
        return f"uint{bits}"
    return f"int{bits}" if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1) else ""


def _unclamped(
    case: Case, limits: tuple[int, int], cast: Val, facts: dict[str, str]
) -> Iterator[CodeFinding]:
    """A cast without a clamp, on a tensor where a code does not fit."""
    chain, kind, zero = case.chain, case.form.kind, case.zero
    uncast = (numbers(c.cast.flow.value).flatten() for c in case.chains if c.cast and c.cast.flow)
    codes = torch.cat(list(uncast)).trunc().nan_to_num(0.0)
    low, high = float(codes.min()), float(codes.max())
    if kind == "unknown" or (low >= limits[0] and high <= limits[1]):
        return
    reach, held = between(low, high), facts["limits"]
    why = f"on the tensors tried, they reach {reach}, and those outside {held} do not fit"
    certain = zero is not None and kind not in ("handed", "max") and (zero == 0 or kind != "span")
    if kind == "given":
        certain &= chain.factor.numel() == 1 and any(s.op == "div" for s in chain.scalings)
    if kind == "given" and chain.factor.numel() == 1 and zero is not None:
        step = float(chain.factor)
        ends = f"{(limits[0] - zero) * step:.4g}..{(limits[1] - zero) * step:.4g}"
        why = f"with the scale {step:.4g}, values outside {ends} need codes outside {held}"
    yield finding("cast-without-clamp", cast.line, certain or kind == "percentiles", why=why, **facts)


def _scale(case: Case) -> Iterator[CodeFinding]:
    """Whether the divisor and the zero point belong to the codes."""
    form, zero, shift = case.form, case.zero, case.chain.shift
    if form.is_span:
        yield from _divisor(case)
        yield from _asymmetric_zero(case)
    if not form.is_single or zero is None or case.random:
        return
    if shift[0] is not case.chain.data and shift[1].numel() > 1:
        return
    low, high = case.bounds or (None, None)
    signed = low < zero if low is not None else closest(form.divisor) in (127, 7, 1, 32767)
    if form.kind in ("max", "signed percentile") and signed and not case.one_sided:
        kind = "max" if form.kind == "max" else "percentile"
        line = (reduction(case.chain) or divided(case.chain)).line
        yield finding(f"{kind}-of-signed-values", line, extreme=extreme(case))
    lost = form.kind in ("abs", "percentile") and not case.one_sided and not signed
    yield from _divisor(case, lost)
    if lost and low is not None and high is not None:
        middle = (high + 1) // 2
        facts = {"codes": between(low, high), "zero": number(zero), "extreme": extreme(case)}
        line = _zero_line(case) or (case.clamp or case.chain.stored).line
        yield finding("negatives-lost", line, middle=number(middle), rest=number(high - middle), **facts)


def _divisor(case: Case, lost: bool = False) -> Iterator[CodeFinding]:
    """Whether the scale's extreme is divided by the number of steps that the codes have for it."""
    if case.bounds is None:
        return
    (low, high), divisor, is_span = case.bounds, closest(case.form.divisor), case.form.is_span
    zero, line = case.zero or 0, divided(case.chain).line
    most = high - low if is_span else high - zero
    reach = f"{number(divisor)} steps" if is_span else f"codes up to {number(round(divisor + zero))}"
    steps = number(most) if most > 0 else "the largest code"
    facts = {"scale": formula(case), "reach": reach, "codes": between(low, high), "most": steps}
    if min(divisor, written_divisor(case.chain)) > most + _ROOM:
        beyond = f"everything larger than {number(most)} steps ({most / divisor:.0%} of {extreme(case)})"
        how = "the clamp clips" if case.clamp else "the cast overflows for"
        yield finding("divisor", line, lost=f"{how} {'codes outside them' if is_span else beyond}", **facts)
    elif case.clamp and divisor * 1.9 < most and not lost:
        yield finding("unused-codes", line, **facts)


def _zero_line(case: Case) -> int:
    """The line where a zero point of 0 was written or added; 0 if there is none."""
    constants = (step for step in case.chain.zeros if not other(step).varies and is_number(other(step), 0))
    return next((other(step).line or step.line for step in constants), 0)


def _asymmetric_zero(case: Case) -> Iterator[CodeFinding]:
    """Whether the zero point maps the bounds of the range to the bounds of the codes."""
    if case.zero == 0 and not case.one_sided:
        where, low = _zero_line(case), number(case.bounds[0]) if case.bounds else "qmin"
        facts = {"scale": formula(case), "zero": "0" if where else "missing", "low": low}
        yield finding("zero-point-left-out", where or divided(case.chain).line, **facts)
    if not case.zero_varies or case.bounds is None or case.random or case.form.kind != "span":
        return  # with percentiles, the lower one takes the place of the minimum
    (low_code, high_code), offs, negated = case.bounds, list[torch.Tensor](), True
    step = next(step for step in case.chain.zeros if other(step).varies)
    for chain in case.chains:
        lowest = block_extremes(chain.x, chain.scale if chain.factor.numel() > 1 else chain.factor)[0]
        right = low_code - lowest / chain.scale
        zero = chain.zero.broadcast_to(right.shape)
        negated &= any(near(z, right) for z in (2 * low_code - zero, -zero)) and not near(zero, right)
        offs.append((zero - right).flatten())
    off, line = torch.cat(offs), other(step).line or step.line
    fits = abs(closest(case.form.divisor) - (high_code - low_code)) <= _ROOM
    if negated:
        yield finding("zero-point-sign", line)
    elif fits and float(off.abs().min()) > 1.5 and near(off, off.median()):
        facts = {"got": str(round(low_code + float(off.median()))), "low": number(low_code)}
        yield finding("zero-point-range", line, codes=between(low_code, high_code), **facts)


def _zero_rounding(case: Case) -> Iterator[CodeFinding]:
    """Whether the zero point is an integer, and rounded to one."""
    steps = case.chain.steps if not case.random else ()
    scale = {id(node) for node in case.chain.scale_nodes}
    place = case.chain.steps.index(case.chain.round)
    for i, step in enumerate(steps):
        zero = other(step)
        if step.op not in ("add", "sub") or not zero.varies or zero.handed:
            continue
        cut = next((a for a in ancestors(zero) if id(a) not in scale and _drops_fraction(a)), None)
        whole = all(is_integral(numbers(other(c.steps[i]).value)) for c in case.chains if len(c.steps) > i)
        rounded = any(s.op == "round" for s in steps[i:])
        if cut is not None:
            yield finding("zero-point-not-rounded", zero.line or cut.line, where="by its conversion")
        elif not whole and i > place and case.chain.cast is not None and not rounded:
            yield finding("zero-point-not-rounded", step.line, where="with that of the codes, by their cast")
        elif not whole and i < place:
            yield finding("float-zero-point", zero.line or step.line)


def _drops_fraction(val: Val) -> bool:
    """Whether an operation cuts off fractions instead of rounding."""
    if not val.args or val.args[0].value is None or val.name in TO_NEAREST:
        return False
    to_integer = val.name == "int" or (val.op == "cast" and bits_of(val) is not None)
    if not (to_integer or (val.op == "round" and val.name in ("floor", "ceil", "trunc", "fix"))):
        return False
    before = val.args[0]
    half = before.op == "add" and any(isinstance(a.value, float) and a.value == 0.5 for a in before.args)
    return not half and not is_integral(numbers(before.value))


def check_special(case: Case) -> Iterator[CodeFinding]:
    """Yield what does not show on an ordinary tensor."""
    special = case.special
    if "one-sided" in special:
        yield from _overflowing_zero(special["one-sided"])
    if case.form.kind in ("given", "handed"):
        return
    empty = [special[name].factor for name in ("zeros", "constant") if name in special]
    if any(bool((factor.eq(0) | ~factor.isfinite()).any()) for factor in empty):
        scale = "The scale" if case.form.kind == "unknown" else formula(case)
        yield finding("zero-scale", divided(case.chain).line, scale=scale)
    for val in special["subnormal"].scale_nodes if "subnormal" in special else ():
        if val.op == "cast" and dtype_of(val).endswith("float16"):
            lost = numbers(val.value).eq(0) & numbers(val.args[0].value).ne(0)
            if bool(lost.any()):
                yield finding("scale-in-float16", val.line)


def _overflowing_zero(chain: Chain) -> Iterator[CodeFinding]:
    """A zero point that does not fit its type, on a tensor all of whose values have one sign."""
    for step in chain.zeros:
        for a in ancestors(other(step)):
            limits = type_limits(a.value)
            if a.op == "cast" and limits and a.args and a.varies and (bits_of(a) or 64) <= SMALL // 2:
                before = numbers(a.args[0].value).trunc()
                if bool((before < limits[0]).any() or (before > limits[1]).any()):
                    yield finding("zero-point-not-clamped", other(step).line or step.line, dtype=dtype_of(a))
                    return
