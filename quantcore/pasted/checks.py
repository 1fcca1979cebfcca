"""The mistakes of a quantizer: what differs from the one it is meant to be, and the line of the operation."""

import math
from collections.abc import Generator, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from quantcore.numerics import WORDS
from quantcore.pasted.chain import SMALL, Chain, near
from quantcore.pasted.kinds import CodeFinding
from quantcore.pasted.narrow import integer_limits
from quantcore.pasted.quantizer import Quantizer, between, block_extremes, number
from quantcore.pasted.values import FLOAT, Val, ancestors

_REAL = ("own", "positive", "negative", "outlier", "one-sided")  # probes like real tensors
RANGE_FROM_ZERO = ("mistakes", "range-without-minimum")
_BINADES = 16.0  # of an 8-bit float that may be left unused: all are about as precise
_ROOM = 1.01  # tolerated excess of the divisor, in codes: max|x| / 128 clips one code, and libraries use it


def check_codes(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what may be wrong with a quantizer up to its stored codes."""
    node = q.round
    if q.has_levels:
        yield from _levels(q)
        return
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
        elif q.is_single and q.zero_point is not None and (q.shift.numel() == 1 or q.is_rest):
            yield from _single(q, q.zero_point)
    yield from _zero_rounding(q)
    yield from _fractions(q)
    yield from _decimals(q)
    first = q.earlier
    if first and not (first.factor.shape == q.factor.shape and near(first.factor / q.factor, 1.0, 1e-3)):
        before = (first.end or first.codes[-1]).line
        yield q.found("quantized_twice", q.begin.line, before=str(before))


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
        types = [f"{sign}int{cast.bits}" for sign in ("u", "")] if len(ends) == 2 else []
        held = {name: integer_limits(name) or (0, 0) for name in types}
        fits = next((name for name, (low, high) in held.items() if low <= ends[0] and ends[1] <= high), None)
        line, fix = (cast.line, f"Cast to {fits}, or clamp") if fits else (clamp.line, "Clamp")
        yield q.found("other_format", line, fix=fix, kept=between(q.ends))
    elif len(ends) < 2 and not (yield from _clamped_late(q)):
        yield from _unclamped(q, limits, cast)


def _levels(q: Quantizer) -> Iterator[CodeFinding]:
    """Check the scale of codes that are places in a table, or 8-bit floats."""
    if q.multiplied:
        yield q.found("multiplied", q.scalings[0].line, how="x is multiplied by the scale")
    elif q.axis != -1:
        yield q.found("other_axis", q.reduced.line)
    elif q.is_single and q.levels is not None:
        for found in _single(q, 0.0):
            lost = found.mistake == "middle_left_out"
            yield replace(found, fix="Use a table with negative values too.") if lost else found


def _overflows(chain: Chain) -> bool:
    """Tell whether codes wrap around in the cast that stores them."""
    return bool(chain.casts) and bool(chain.cast_at(-1)[1].any())


def _clamped_late(q: Quantizer) -> Generator[CodeFinding, None, bool]:
    """Check whether a clamp comes after the cast, which it is meant to keep from wrapping; tell whether."""
    late = next(iter(q.clamps_after), None)
    if late is None:
        return False
    place = sum(cast.index < late.index for cast in q.casts) - 1
    cast = q.casts[place]
    low, high = cast.limits or (0, 0)
    ends = [a.number for a in late.args if a is not late.flow]
    idle = all(end is not None and not low + 1 < end < high - 1 for end in ends)
    real = [c for name, c in q.on.items() if name in _REAL and len(c.casts) > place]
    shown = next((c for c in real if bool(c.cast_at(place)[1].any())), None)
    if shown is None and not idle:
        return False
    why = "; on the tensors tried, there are none"
    if shown is not None:
        given = shown.cast_at(place)[0]
        why = f"; {_of(shown)}, the codes reach {between((float(given.min()), float(given.max())))}"
    clamp = "" if late.line == cast.line else f" in line {late.line}"
    certain = shown is not None or q.kind in ("given", "handed")
    facts = {"dtype": cast.dtype, "limits": between(cast.limits), "clamp": clamp, "why": why}
    yield q.found("cast_before_clamp", cast.line, certain, **facts)
    return True


def _of(chain: Chain) -> str:
    """Return the tensor of a quantizer as part of a sentence."""
    return f"of a tensor from {_ends(chain.x)}"


def _unclamped(q: Quantizer, limits: tuple[int, int], cast: Val) -> Iterator[CodeFinding]:
    """Yield a cast without a clamp, on a tensor where a code does not fit."""
    kind, zero = q.kind, q.zero_point
    # a scale that does not depend on the tensor does not follow its outliers either
    fixed = kind in ("given", "handed") and "outlier" in q.on
    tried = [*q.ordinary, q.on["outlier"]] if fixed else q.ordinary
    pairs = [c.cast_at(-1) for c in tried if c.casts]
    codes, beyond = (torch.cat([pair[i].flatten() for pair in pairs]) for i in (0, 1))
    if not bool(beyond.any()) or kind == "unknown":
        return
    reach = between((float(codes.min()), float(codes.max())))
    why = f"on the tensors tried, they reach {reach}, and those outside it wrap around"
    certain = zero is not None and kind not in ("handed", "max") and (zero == 0 or kind != "span")
    certain |= kind == "span" and all(_overflows(c) for name, c in q.on.items() if name in _REAL)
    if kind == "given":
        certain &= q.factor.numel() == 1 and any(s.op == "div" for s in q.scalings)
        if q.factor.numel() == 1 and zero is not None:
            step = float(q.factor)
            ends = f"{(limits[0] - zero) * step:.4g}..{(limits[1] - zero) * step:.4g}"
            why = f"with the scale {step:.4g}, values outside {ends} need other codes and wrap around"
    yield q.found("wrapped", cast.line, certain or kind == "percentiles", why=why)


def _single(q: Quantizer, zero: float) -> Iterator[CodeFinding]:
    """Check whether the scale and the codes of a symmetric range hold values of both signs."""
    kind, bounds = q.kind, q.bounds
    signed = q.signs or (bounds[0] < zero if bounds else q.divisor in (127, 7, 1, 32767))
    if kind in ("max", "signed percentile") and signed and not q.one_sided:
        yield q.found("absolute_value" if kind == "max" else "signed_percentile", q.reduced.line)
    lost = kind in ("abs", "percentile", "power") and not q.one_sided and not signed
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
    table = q.round.op == "level"
    most = high - low if q.is_span else high - zero
    facts = {"reach": f"{number(divisor)} steps", "most": number(most) if most > 0 else "the largest code"}
    beyond = "codes outside them"
    if not q.is_span:
        values = f"values up to {number(q.reach)}"
        facts["reach"] = values if q.has_levels else f"codes up to {number(round(q.reach + zero))}"
        share = f"{most / q.reach:.{1 if most / q.reach > 0.99 else 0}%}"
        of = "the range" if q.is_rest else q.extreme
        beyond = f"everything larger than {number(most)} steps ({share} of {of})"
    # the number as the code has it; a factor besides it narrows the range
    constant = next((a for a in q.divided.args if not a.varies), None)
    plain = constant and q.divided not in q.scalings and q.kind != "power"
    written = abs(constant.number or 0.0) if plain and constant else 0.0
    written = math.inf if not written else written if q.divided.op == "div" else 1 / written
    # codes that no clamp clips wrap around
    room = 0.01 if not clamp and any(_overflows(chain) for chain in q.ordinary) else _ROOM
    room = 0.01 * most if q.has_levels else room
    if q.round.is_small_float and not clamp:
        return  # what its cast does is a finding of its own
    if min(divisor, written) > most + room:
        how = "the table clips" if table else "the clamp clips" if clamp else "the cast overflows for"
        found = q.found("divisor", q.divided.line, lost=f"{how} {beyond}", **facts)
        if q.kind == "power":
            fits = number(2.0 ** math.floor(math.log2(most)))
            found = replace(found, fix=f"Let the scale be 2^floor(log2({q.extreme} / {fits})).")
        # max|x| divided by the steps of a range from min to max
        whole = q.kind == "abs" and low < 0 and divisor == high - low
        yield replace(found, lesson=RANGE_FROM_ZERO) if whole else found
    elif (clamp or table) and q.reach * (_BINADES if q.round.is_small_float else 1.9) < most and not lost:
        yield q.found("unused_codes", q.divided.line, **facts)


def _zero_line(q: Quantizer) -> int:
    """Return the line where a zero point of 0 was written or added; 0 if there is none."""
    return next((s.added_line for s in q.zeros if not bool(s.added.any())), 0)


def _asymmetric_zero(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether the zero point maps the bounds of the range to the bounds of the codes."""
    if q.zero_point == 0 and not q.one_sided:
        where = _zero_line(q)
        yield q.found("zero_point_left_out", where or q.divided.line, zero="0" if where else "missing")
    step = next((s for s in q.zeros if s.other.varies), None)
    if step is None or q.bounds is None or q.kind != "span" or q.zero_point == 0:
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


def _without_zero(q: Quantizer, chain: Chain, certain: bool) -> Iterator[CodeFinding]:
    """Check whether the zero point of a range that does not contain 0 is clamped: it fits no longer."""
    clamped = any(a.op in ("clamp", "pick", "where", "mask") for s in q.zeros for a in ancestors(s.other))
    if q.kind != "span" or q.bounds is None or not q.zeros or not (clamped or q.zero_point is None):
        return
    if any(bool(_misplaced(q, each, with_zero=True)[0].any()) for each in q.ordinary):
        return  # it does not fit any other range either
    lost, right = _misplaced(q, chain)
    if not bool(lost.any()):
        return
    back = (chain.codes[-1].numbers.reshape(chain.x.shape) - chain.zero) * chain.scale
    zero = chain.zero.broadcast_to(lost.shape)
    facts = {"given": _ends(chain.x[lost]), "back": _ends(back[lost])}
    facts |= {"got": number(float(zero[lost][0])), "want": number(round(float(right[lost][0])))}
    yield q.found("zero_point_clamped", q.zeros[-1].added_line, certain, **facts)


def _misplaced(q: Quantizer, chain: Chain, with_zero: bool = False) -> tuple[Tensor, Tensor]:
    """Return which elements have a range from min to max, with or without 0, whose zero point is another, and
    the right one."""
    assert q.bounds is not None
    lowest, highest = block_extremes(chain.x, chain.scale if chain.factor.numel() > 1 else chain.factor)
    whole = ((highest - lowest) / chain.scale - q.divisor).abs() <= 0.01 * q.divisor
    right = q.bounds[0] - lowest / chain.scale
    whole &= ((lowest <= 0) & (highest >= 0)) == with_zero
    return whole & ((chain.zero - right).abs() > 1.5), right


def _ends(values: Tensor) -> str:
    low, high = (f"{float(end):.4g}" for end in values.aminmax())
    return low if low == high else f"{low} to {high}"


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


def _fractions(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether what is added after the rounding leaves codes that are no integers."""
    late = [s for s in q.zeros if s not in q.early and not s.other.handed]
    # a half is that of a quantizer without a code for 0
    late = [s for s in late if not near(2 * s.added, (2 * s.added).round(), 1e-6)]
    codes = q.codes[-1].numbers
    odd = codes[(codes - codes.round()).abs() > 1e-6]
    if late and q.cast is None and odd.numel():
        yield q.found("fractional_codes", late[-1].added_line, code=f"{float(odd.flatten()[0]):.2f}")


def _decimals(q: Quantizer) -> Iterator[CodeFinding]:
    """Check whether the rounding keeps decimals, and no cast drops them."""
    codes = q.round.numbers
    odd = codes[(codes - codes.round()).abs() > 1e-6]
    if q.round.name in ("round", "around") and q.cast is None and odd.numel():
        yield q.found("decimals", q.round.line, name=q.round.name, code=f"{float(odd.flatten()[0]):.2f}")


def _drops_fraction(val: Val) -> bool:
    """Tell whether an operation cuts off fractions instead of rounding."""
    to_integer = val.op == "cast" and (val.name == "int" or val.bits < FLOAT)
    to_integer |= val.name in ("floor", "ceil", "trunc", "fix")
    if not to_integer or not val.args or val.args[0].value is None:
        return False
    before = val.args[0]
    half = before.op == "add" and any(isinstance(a.value, float) and a.value == 0.5 for a in before.args)
    return not half and not before.is_integral


def check_on(q: Quantizer, chain: Chain, of: str) -> Iterator[CodeFinding]:
    """Yield what goes wrong on one tensor, whether or not it does on others; ``of``: which one it is."""
    if q.cast is not None and q.clamp is None and not q.clamps_after and _overflows(chain):
        codes, beyond = chain.cast_at(-1)
        lost, reach = int(beyond.sum()), between((float(codes.min()), float(codes.max())))
        wrap = f"{lost:,} of {beyond.numel():,} codes {'wraps' if lost == 1 else 'wrap'} around"
        yield q.found("wrapped", q.cast.line, why=f"of {of}, they reach {reach}, and {wrap}")
    yield from _without_zero(q, chain, certain=True)


def check_special(q: Quantizer) -> Iterator[CodeFinding]:
    """Yield what does not show on an ordinary tensor."""
    for step in q.on["one-sided"].zeros if "one-sided" in q.on else ():
        for a in ancestors(step.other):
            if a.op == "cast" and a.limits and a.args and a.varies and a.bits <= SMALL // 2:
                before = a.args[0].numbers.trunc()
                if bool((before.clamp(*a.limits) != before)[~before.isnan()].any()):
                    yield q.found("zero_point_not_clamped", step.added_line, dtype=a.dtype)
    if "one-sided" in q.on:
        yield from _without_zero(q, q.on["one-sided"], certain=False)
    if q.kind in ("given", "handed", "table", "float"):
        return
    empty = [q.on[name].factor for name in ("zeros", "constant") if name in q.on]
    if any(bool((factor.eq(0) | ~factor.isfinite()).any()) for factor in empty):
        name = "The scale" if q.kind == "unknown" else q.formula
        yield q.found("zero_scale", q.divided.line, scale=name)
    for val in q.on["subnormal"].scale_nodes if "subnormal" in q.on else ():
        half = val.op == "cast" and val.dtype == "float16"
        if half and bool((val.numbers.eq(0) & val.args[0].numbers.ne(0)).any()):
            yield q.found("scale_float16", val.line)
