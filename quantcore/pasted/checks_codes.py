"""Mistakes up to the stored codes: rounding, casts and clamps, scale, zero point, axes."""

from collections.abc import Iterator

import torch

from quantcore.pasted.case import ROOM, Case, Found, bound, closest, extreme, formula, near, number
from quantcore.pasted.forms import divided, reduction, written_divisor
from quantcore.pasted.quantizer import SMALL, bits_of, is_integral, other, type_limits
from quantcore.pasted.trace import Val, ancestors, numbers


def check_codes(case: Case) -> Iterator[Found]:
    """Yield what may be wrong with a quantizer up to its stored codes."""
    yield from _rounding(case)
    multiplied = _multiplied(case)
    if multiplied is not None:
        yield multiplied
        return
    wrong_axis = _axes(case)
    if wrong_axis is not None:
        yield wrong_axis
    else:
        yield from _cast(case)
        yield from _symmetric(case) if case.form.is_single else _asymmetric(case) if case.form.is_span else ()
    yield from _zero_rounding(case)
    yield from _twice(case)


def _rounding(case: Case) -> Iterator[Found]:
    node = case.chain.round
    if node.name in ("round", "rint", "around") or case.half or case.random:
        return
    name = {"floor": "floor rounds down", "ceil": "ceil rounds up", "floor_divide": "// rounds down"}.get(node.name, "trunc rounds toward zero")
    if node.op == "cast":
        dtype = str(getattr(node.value, "dtype", "an integer")).removeprefix("torch.")
        yield Found(
            "truncated", node.line,
            f"x / scale is cast to {dtype} without rounding: the cast drops the fraction, so the error is up to one step "
            "instead of half a step.",
            "Round before the cast: torch.round(…) or np.rint(…).",
            # an image times 255 may need no rounding
            not (case.form.kind == "given" and case.chain.scalings[0].op == "mul"), ("round",),
        )  # fmt: skip
        return
    yield Found(
        "truncated", node.line, f"{name}, so the error is up to one step instead of half a step.",
        "Round to nearest: torch.round(…) or np.rint(…).", True, ("round",),
    )  # fmt: skip


def _multiplied(case: Case) -> Found | None:
    if case.meant[1] != "multiplied":
        return None
    return Found(
        "multiplied", case.chain.scalings[0].line,
        "x is multiplied by the scale; codes count steps of the scale, so x must be divided by it.",
        "Quantize with torch.round(x / scale), dequantize with codes * scale.", True, ("scale",),
    )  # fmt: skip


def _axes(case: Case) -> Found | None:
    """Scales of one axis applied along another; only a square tensor shows it, on all others the code fails."""
    if case.meant[1] != "axis":
        return None
    node = reduction(case.chain)
    line = node.line if node is not None else case.chain.scalings[0].line
    return Found(
        "wrong-axis", line,
        "The scales of this reduction are aligned with another axis than the one they belong to: x / scale applies them "
        "along the wrong axis, or fails where the lengths differ.",
        "Keep the reduced axis: amax(dim=…, keepdim=True).", True, ("scale",),
    )  # fmt: skip


def _in_line(node: Val, line: int) -> str:
    return "" if node.line == line else f" in line {node.line}"


def _cast(case: Case) -> Iterator[Found]:
    cast, limits = case.chain.cast, case.cast_limits
    if cast is None or limits is None or cast.flow is None:
        return
    low, high, clamp, late = case.clamped
    if late is not None:
        if not late.handed and clamp is not None:
            yield Found(
                "zero-point-after-clamp", late.line,
                f"The zero point is added after the clamp{_in_line(clamp, late.line)}, which therefore clips x / scale instead of "
                f"the codes, and nothing keeps the sum in {limits[0]}..{limits[1]} before its cast to {case.dtype}.",
                "Add the zero point first, then clamp, then cast.", True, ("late",),
            )  # fmt: skip
        return
    if clamp is not None and any(b is not None and not limits[0] <= b <= limits[1] for b in (low, high)):
        fits = _fitting(low, high, bits_of(cast) or 64)
        line = cast.line if fits else clamp.line
        yield Found(
            "clamp-bounds", line,
            f"The clamp{_in_line(clamp, line)} keeps {bound(low)}..{bound(high)}, but {case.dtype} holds {limits[0]}..{limits[1]}: "
            f"codes outside that range wrap around in the cast{_in_line(cast, line)}.",
            f"Cast to {fits}, or clamp to {limits[0]}..{limits[1]}." if fits else f"Clamp to {limits[0]}..{limits[1]}.",
        )  # fmt: skip
    elif low is None or high is None:
        yield from _unclamped(case, limits, cast)


def _fitting(low: float | None, high: float | None, bits: int) -> str:
    """The integer type of this width that holds the bounds; empty if there is none."""
    if low is None or high is None:
        return ""
    if low >= 0 and high < 1 << bits:
        return f"uint{bits}"
    return f"int{bits}" if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1) else ""


def _wraps(case: Case) -> bool:
    """Whether a code does not fit its type on one of the tensors."""
    for chain in case.chains:
        limits = type_limits(chain.cast.value) if chain.cast is not None else None
        if limits is not None and chain.cast is not None and chain.cast.flow is not None:
            codes = numbers(chain.cast.flow.value)
            if bool((codes.trunc() < limits[0]).any() or (codes.trunc() > limits[1]).any()):
                return True
    return False


def _unclamped(case: Case, limits: tuple[int, int], cast: Val) -> Iterator[Found]:
    """A cast without a clamp, on a tensor where a code does not fit."""
    form, zero, codes = case.form, case.zero, f"{limits[0]}..{limits[1]}"
    if not _wraps(case) or form.kind == "unknown":
        return
    certain = not (case.zero_varies or case.zero_handed)
    if form.kind == "given" and case.chain.factor.numel() == 1 and zero is not None:
        s = float(case.chain.factor)
        ends = f"{(limits[0] - zero) * s:.4g}..{(limits[1] - zero) * s:.4g}"
        why = f"with the scale {s:.4g}, values outside {ends} need codes outside {codes} and wrap around"
        certain = case.chain.scalings[0].op == "div" or not _inverse_number(case)
    elif form.kind == "handed":
        why, certain = "codes wrap around where the scale does not cover x, and the scale is unknown here", False
    elif form.kind in ("percentile", "signed percentile"):
        why = f"values beyond the {extreme(case)} need codes outside {codes} and wrap around"
    elif form.kind == "percentiles":
        why, certain = "values beyond the percentiles need codes outside the type and wrap around", True
    elif form.kind == "max":
        why, certain = f"the scale covers only max(x), so a value below -max(x) can need a code below {limits[0]} and wrap around", False
    elif form.kind == "span" and not case.zero_varies and not zero:
        why = f"without a zero point, a value beyond {limits[1]} steps of (max - min) / {number(closest(form.divisor))} wraps around"
    elif form.kind == "abs" and zero is not None:
        low, high = (zero if case.one_sided else zero - form.divisor), zero + form.divisor
        why = f"codes reach {number(round(low))}..{number(round(high))}, and those outside {codes} wrap around"
    else:
        why, certain = "rounding can take the largest value one code too far, where it wraps around", False
    yield Found("cast-without-clamp", cast.line, f"Nothing clamps the codes before the cast to {case.dtype}: {why}.",
                f"Clamp to {codes} before the cast.", certain, ("cast",) if certain else ())  # fmt: skip


def _inverse_number(case: Case) -> bool:
    return all(s.op == "mul" for s in case.chain.scalings)


def _symmetric(case: Case) -> Iterator[Found]:
    form, zero = case.form, case.zero
    if zero is None or case.random or (case.chain.shift[0] is not case.chain.data and case.chain.shift[1].numel() > 1):
        return
    low, high = case.bounds or (None, None)
    divisor = closest(form.divisor)
    signed = low - zero < 0 if low is not None else divisor in (127, 7, 1, 32767)
    node = reduction(case.chain)
    if form.kind in ("max", "signed percentile") and signed and not case.one_sided:
        yield _signed_extreme(case, node.line if node is not None else divided(case.chain).line)
    if low is None or high is None:
        return
    top, line = high - zero, divided(case.chain).line
    lost = form.kind in ("abs", "percentile") and not case.one_sided and low - zero >= 0
    if min(divisor, written_divisor(case.chain)) > top + ROOM:
        what = "is clipped" if case.clamp else "wraps around"
        yield Found(
            "divisor", line,
            f"{extreme(case)} / {number(round(divisor, 3))} gives codes up to {number(round(divisor + zero))}, but the codes are "
            f"{number(low)}..{number(high)}: everything larger than {number(top)} steps ({top / divisor:.0%} of {extreme(case)}) {what}.",
            f"Divide by {number(top)}." if top > 0 else "Divide by the largest code.", True, ("scale",),
        )  # fmt: skip
    elif case.clamp and divisor * 1.9 < top and not lost:
        yield Found(
            "unused-codes", line,
            f"{extreme(case)} / {number(round(divisor, 3))} gives codes up to {number(round(divisor + zero))}, though the clamp allows "
            f"{number(low)}..{number(high)}.",
            f"Divide by {number(top)} if all codes are meant to be used.", False,
        )  # fmt: skip
    if lost:
        yield Found(
            "negatives-lost", _zero_line(case) or (case.clamp or case.chain.stored).line,
            f"No code in {number(low)}..{number(high)} lies below the zero point {number(zero)}: every negative value "
            f"becomes {number(zero)}.",
            f"Use zero point {number((high + 1) // 2)} with {extreme(case)} / {number(high - (high + 1) // 2)}, or signed codes.",
            True, ("zero",),
        )  # fmt: skip


def _signed_extreme(case: Case, line: int) -> Found:
    """The finding for an extreme of x where the extreme of |x| is needed."""
    if case.form.kind == "max":
        return Found(
            "max-of-signed-values", line,
            "max(x) ignores the magnitude of negative values: where -min(x) exceeds max(x), they lie outside the range.",
            "Take the maximum of |x|: x.abs().max() or np.abs(x).max().", True, ("scale",),
        )  # fmt: skip
    return Found(
        "percentile-of-signed-values", line,
        f"The {extreme(case)} ignores the magnitude of negative values: those below minus that percentile lie outside the range.",
        "Take the percentile of |x|: torch.quantile(x.abs(), …).", True, ("scale",),
    )  # fmt: skip


def _zero_line(case: Case) -> int:
    """The line where a zero point of 0 was written or added; 0 if there is none."""
    for step in case.chain.zeros:
        added = other(step)
        if not added.varies and numbers(added.value).numel() == 1 and float(numbers(added.value)) == 0:
            return added.line or step.line
    return 0


def _asymmetric(case: Case) -> Iterator[Found]:
    codes, divisor = case.bounds, closest(case.form.divisor)
    line = divided(case.chain).line
    if codes is not None and min(divisor, written_divisor(case.chain)) > codes[1] - codes[0] + ROOM:
        what = "are clipped" if case.clamp else "wrap around"
        yield Found(
            "divisor", line,
            f"The range is divided into {number(round(divisor, 3))} steps, but the codes {number(codes[0])}..{number(codes[1])} "
            f"span only {number(codes[1] - codes[0])}: codes outside that range {what}.",
            f"Divide by {number(codes[1] - codes[0])}.", True, ("scale",),
        )  # fmt: skip
    elif codes is not None and case.clamp and divisor * 1.9 < codes[1] - codes[0]:
        yield Found(
            "unused-codes", line,
            f"The range is divided into {number(round(divisor, 3))} steps, though the clamp allows {number(codes[0])}..{number(codes[1])}.",
            f"Divide by {number(codes[1] - codes[0])} if all codes are meant to be used.", False,
        )  # fmt: skip
    if case.zero == 0 and not case.one_sided:
        where = _zero_line(case)
        yield Found(
            "zero-point-left-out", where or line,
            f"{formula(case)} is the step of an asymmetric range, but the zero point is {'0' if where else 'missing'}: codes run "
            "from min/scale to max/scale instead of covering the codes of the type.",
            f"Add the zero point {number(codes[0]) if codes else 'qmin'} - round(min / scale), or use max|x| with a symmetric scale.",
            True, ("zero",),
        )  # fmt: skip
    elif case.zero_varies and codes is not None and not case.random:
        yield from _zero_formula(case, codes, divisor)


def _zero_formula(case: Case, codes: tuple[float, float], divisor: float) -> Iterator[Found]:
    """Whether the zero point maps the bounds of the range to the bounds of the codes."""
    low_code, high_code = codes
    step = next(s for s in case.chain.zeros if other(s).varies)
    line = other(step).line or step.line
    negated, meant, offs = True, True, []
    for chain in case.chains:
        low, _ = case.ends(chain)
        # with percentiles, the lower one takes the place of the minimum
        zero = chain.zero.broadcast_to(low.shape)
        right = low_code - low
        negated &= any(near(z, right) for z in (2 * low_code - zero, -zero)) and not near(zero, right)
        offs.append(zero - right)
    off = torch.cat([o.flatten() for o in offs])
    meant = case.form.kind == "span" and abs(divisor - (high_code - low_code)) <= ROOM
    if negated and case.form.kind == "span":
        yield Found(
            "zero-point-sign", line,
            "The zero point has the wrong sign: min(x) / scale is added to x / scale, so min(x) gets twice its code.",
            "Use zero_point = qmin - round(min / scale).", True, ("zero",),
        )  # fmt: skip
    elif meant and float(off.abs().min()) > 1.5 and near(off, off.median()):
        got = round(float(low_code + off.median()))
        yield Found(
            "zero-point-range", line,
            f"With this zero point, min(x) gets the code {got}, but the codes begin at {number(low_code)}: it is meant for a "
            f"code range other than {number(low_code)}..{number(high_code)}.",
            f"Use zero_point = {number(low_code)} - round(min / scale).", True, ("zero",),
        )  # fmt: skip


def _zero_rounding(case: Case) -> Iterator[Found]:
    if case.random:
        return
    place = case.chain.steps.index(case.chain.round)
    scale = {id(a) for s in case.chain.scalings for a in ancestors(other(s))}
    for i, step in enumerate(case.chain.steps):
        zero = other(step)
        if step.op not in ("add", "sub") or not zero.varies or zero.handed:
            continue
        own = [a for a in ancestors(zero) if id(a) not in scale]
        cut = next((a for a in own if _drops_fraction(a)), None)
        whole = all(is_integral(numbers(other(c.steps[i]).value)) for c in case.chains if len(c.steps) > i)
        if cut is not None:
            yield Found(
                "zero-point-not-rounded", zero.line or cut.line,
                "The zero point is cast to an integer without rounding, which shifts the range by up to one step.",
                "Round it before the cast: round(…).", True, ("zero",),
            )  # fmt: skip
        elif not whole and i > place and case.chain.cast is not None and not any(s.op == "round" for s in case.chain.steps[i:]):
            yield Found(
                "zero-point-not-rounded", step.line,
                "The zero point is not an integer and is added after rounding, so the cast truncates the sum.",
                "Round the zero point.", True, ("zero",),
            )  # fmt: skip
        elif not whole and i < place:
            yield Found(
                "float-zero-point", zero.line or step.line,
                "The zero point stays a float, as in HQQ, so there may be no code for exactly 0.",
                "Round it if 0 must be exact.", False,
            )  # fmt: skip


def _drops_fraction(val: Val) -> bool:
    """Whether an operation cuts off fractions instead of rounding."""
    if not val.args or val.args[0].value is None or val.name in ("round", "rint", "around"):
        return False
    to_integer = val.name == "int" or (val.op == "cast" and bits_of(val) is not None)
    if not (to_integer or (val.op == "round" and val.name in ("floor", "ceil", "trunc", "fix"))):
        return False
    before = val.args[0]
    half = before.op == "add" and any(isinstance(a.value, float) and a.value == 0.5 for a in before.args)
    return not half and not is_integral(numbers(before.value))


def _twice(case: Case) -> Iterator[Found]:
    earlier = case.chain.earlier
    if earlier is None or (earlier.factor.shape == case.chain.factor.shape and torch.allclose(earlier.factor, case.chain.factor, rtol=1e-3)):
        return
    line = (earlier.end or earlier.stored).line
    yield Found(
        "quantized-twice", case.chain.scalings[0].line,
        f"This tensor was already quantized and dequantized (line {line}): rounding twice can move a value by more than half a step.",
        "Quantize the original tensor once.",
    )  # fmt: skip


def check_overflowing_zero(case: Case) -> Iterator[Found]:
    """A zero point that does not fit its type, on a tensor all of whose values have one sign."""
    for step in case.chain.zeros:
        for a in ancestors(other(step)):
            limits = type_limits(a.value)
            if a.op == "cast" and limits is not None and (bits_of(a) or 64) <= SMALL // 2 and a.args and a.varies:
                before = numbers(a.args[0].value).trunc()
                if bool((before < limits[0]).any() or (before > limits[1]).any()):
                    dtype = str(getattr(a.value, "dtype", "")).removeprefix("torch.")
                    yield Found(
                        "zero-point-not-clamped", other(step).line or step.line,
                        f"If all values of x have the same sign, the zero point can lie outside {dtype} and wrap around in the cast.",
                        "Let the range include 0, or clamp the zero point.", False,
                    )  # fmt: skip
                    return
