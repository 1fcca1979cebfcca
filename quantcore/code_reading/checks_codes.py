"""What is checked of codes: rounding, clamp and cast, and the scale against the codes that there are."""

from collections.abc import Iterator
from typing import NamedTuple

from quantcore.code_reading.chain import Cast, Chain
from quantcore.code_reading.values import Inverse, Num, Op, Param, Real, Stat, Steps, Unknown
from quantcore.code_reading.words import bound, extreme, number
from quantcore.code_reading.words import scale as write_scale


class Found(NamedTuple):
    """A finding before it is given its source: see `CodeFinding`."""

    kind: str
    line: int
    what: str
    fix: str
    certain: bool = True


_ROOM = 1.01  # codes beyond the end: max|x| / 128 is clipped by one, and libraries do it


def check(chain: Chain) -> Iterator[Found]:
    """All that is found of a quantizer up to its stored codes."""
    if not chain.stored.of("round"):
        return
    yield from _rounding(chain)
    yield from _cast(chain)
    yield from _scale(chain)
    yield from _zero_point(chain)
    yield from _axes(chain)
    if chain.codes.data.twice is not None and chain.codes.data.twice.codes.scale != chain.codes.scale:
        yield Found(
            "quantized-twice", chain.codes.ops[0].line,
            f"What is quantized here was quantized before, in line {chain.codes.data.twice.line}: two roundings can "
            "move a value by more than half a step.",
            "Quantize the original tensor, once.",
        )  # fmt: skip


def _rounding(chain: Chain) -> Iterator[Found]:
    if chain.stored.fogged:
        return
    first = chain.stored.of("round")[0]
    if first.sign < 0:
        kind = next((op.value for op in chain.stored.of("cast") if op.line == first.line), "an integer")
        yield Found(
            "truncated", first.line,
            f"x / scale is cast to {kind} without being rounded: the cast drops what follows the point, so errors "
            "reach a whole step instead of half of one.",
            "Round before the cast: torch.round(…) or np.rint(…).",
        )  # fmt: skip
    elif first.value in ("floor", "ceil", "toward_zero"):
        name = {
            "floor": "floor rounds down",
            "ceil": "ceil rounds up",
            "toward_zero": "trunc rounds towards zero",
        }[first.value]
        yield Found(
            "truncated", first.line,
            f"{name}, so errors reach a whole step instead of half of one.",
            "Round to the nearest: torch.round(…) or np.rint(…).",
        )  # fmt: skip


def _cast(chain: Chain) -> Iterator[Found]:
    cast = chain.cast
    if cast is None or chain.stored.fogged:
        return
    low, high = cast.bounds
    line, kind = cast.op.line, cast.kind
    outside = [b for b in (low, high) if isinstance(b, int | float) and not kind.low <= b <= kind.high]
    if cast.late is not None:
        if isinstance(cast.late.value, Steps):
            yield Found(
                "zero-point-after-clamp", cast.late.line,
                f"The zero point is added after the clamp of line {cast.clamp.line if cast.clamp else line}, and the "
                f"sum is cast to {kind} unclamped: codes beyond {kind.low}..{kind.high} wrap around.",
                "Add the zero point first, then clamp, then cast.",
            )  # fmt: skip
        return
    if outside:
        assert cast.clamp is not None
        bounds = f"{bound(low)}..{bound(high)}"
        other = _fitting(low, high, kind.bits)
        where = line if other else cast.clamp.line
        yield Found(
            "clamp-bounds", where,
            f"The clamp{_of_line(cast.clamp, where)} keeps {bounds}, but {kind} holds {kind.low}..{kind.high}: what "
            f"lies beyond wraps around in the cast{_of_line(cast.op, where)}.",
            f"Cast to {other}, or clamp to {kind.low}..{kind.high}." if other else f"Clamp to {kind.low}..{kind.high}.",
        )  # fmt: skip
    elif low is None or high is None:
        yield from _unclamped(chain, cast)


def _of_line(op: Op, line: int) -> str:
    return "" if op.line == line else f" of line {op.line}"


def _fitting(low: float | str | None, high: float | str | None, bits: int) -> str:
    """The type of that width which holds the bounds."""
    if isinstance(low, int | float) and isinstance(high, int | float):
        if low >= 0 and high < 1 << bits:
            return f"uint{bits}"
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return f"int{bits}"
    return ""


def _unclamped(chain: Chain, cast: Cast) -> Iterator[Found]:
    """A cast that nothing was clamped for: does the scale keep the codes in the type?"""
    kind, scale = cast.kind, chain.codes.scale
    why, certain = _reason(chain, cast)
    if not why:
        return
    yield Found(
        "cast-without-clamp",
        cast.op.line,
        f"Nothing clamps the codes before the cast to {kind}: {why}.",
        f"Clamp to {kind.low}..{kind.high} before the cast."
        if not isinstance(scale, Unknown)
        else "Clamp first.",
        certain,
    )


def _reason(chain: Chain, cast: Cast) -> tuple[str, bool]:
    """Why a code may not fit, and whether that is certain; "" where none does, or nothing is known."""
    kind, data = cast.kind, chain.codes.data
    shift = chain.zero.get("scale", 0.0)
    plain = chain.zero_is_known and not any(isinstance(k, Stat) for k in chain.zero)
    if chain.codes.multiplied:
        return "", False
    if isinstance(chain.codes.scale, Num):
        s = chain.codes.scale.value
        low, high = (None if b is None else round(b / s) + shift for b in (data.low, data.high))
        if data.absolute or data.one_sided:
            low = shift
        if low is not None and high is not None and kind.low <= low and high <= kind.high:
            return "", False
        if not plain:
            return f"a value whose code lies outside {kind.low}..{kind.high} wraps around", not chain.names
        ends = f"{(kind.low - shift) * s:.4g}..{(kind.high - shift) * s:.4g}"
        return (
            f"with the scale {s:.4g}, values outside {ends} need codes outside {kind.low}..{kind.high} and wrap around"
        ), not chain.codes.inverse
    if isinstance(chain.codes.scale, Param):
        return "codes wrap around where the scale does not cover x, and the scale is not known here", False
    single, span = chain.single, chain.span
    if single is not None and plain and single[0].data.root == data.root:
        stat, divisor = single
        bottom = shift if data.one_sided else shift - divisor
        fits = bottom >= kind.low - 0.5 and shift + divisor < kind.high + 0.5
        if stat.p is not None:
            return (
                f"values beyond the {stat.p:g}th percentile need codes outside {kind.low}..{kind.high} and wrap around",
                True,
            )
        if not stat.absolute and not data.one_sided:
            return (
                f"the scale covers only max(x), so a value below -max(x) can need a code below {kind.low} and wrap around",
                False,
            )
        if not fits:
            return (
                f"codes reach {number(round(bottom))}..{number(round(shift + divisor))}, and those outside {kind.low}..{kind.high} wrap around",
                True,
            )
    elif span is not None and span[0].data.root == data.root:
        if span[0].p is not None or span[1].p is not None:
            return "values beyond the percentiles need codes outside the type and wrap around", True
        if plain and not chain.zero:
            return (
                f"without a zero point, a value beyond {kind.high} steps of (max - min) / {number(round(span[2], 3))} wraps around",
                True,
            )
        if chain.zero_is_known and not plain:
            return "rounding can take the largest value one code too far, where it wraps around", False
    return "", False


def _scale(chain: Chain) -> Iterator[Found]:
    scale = chain.codes.scale
    first = chain.codes.ops[0].line
    if isinstance(scale, Real) and scale.known:
        line = scale.divided or first
        if scale.half:
            yield Found(
                "scale-in-float16", scale.half,
                "The scale is cast to float16, whose smallest number above 0 is 6e-8: a scale below half of that becomes 0.",
                "Keep scales in float32, or make sure that they are large enough.", False,
            )  # fmt: skip
        if not scale.guard:
            yield Found(
                "zero-scale", line,
                f"{write_scale(scale)} is 0 for a tensor (or channel) without a range, and x / 0 is not a number.",
                "Keep the scale above 0, for example with .clamp(min=1e-12).", False,
            )  # fmt: skip
        if chain.codes.multiplied and (chain.single or chain.span):
            yield Found(
                "multiplied", first,
                f"x is multiplied by the scale {write_scale(scale)}; codes count steps of the scale, so x is divided by it.",
                "torch.round(x / scale), and codes * scale on the way back.",
            )  # fmt: skip
            return
        if chain.stored.fogged or not chain.zero_is_known:
            return
        if chain.single is not None and not chain.steps and not chain.codes.data.shift:
            yield from _symmetric(chain, *chain.single, line)
        elif chain.span is not None:
            yield from _asymmetric(chain, *chain.span, line)


def _symmetric(chain: Chain, stat: Stat, divisor: float, line: int) -> Iterator[Found]:
    if stat.data.root != chain.codes.data.root:
        return
    data, z = chain.codes.data, chain.zero.get("scale", 0.0)
    low, high = chain.bounds or (None, None)
    signed = low - z < 0 if low is not None else divisor in (127, 7, 1, 32767)
    if not stat.absolute and not data.one_sided and not stat.data.one_sided and signed:
        if stat.p is not None:
            yield Found(
                "percentile-of-signed-values", stat.line,
                f"The {stat.p:g}th percentile of x ignores how large the negative values are: those below "
                "minus that percentile lie outside the range.",
                "Take the percentile of |x|: torch.quantile(x.abs(), …).",
            )  # fmt: skip
        else:
            yield Found(
                "max-of-signed-values", stat.line,
                "max(x) ignores how large the negative values are: where -min(x) is larger than max(x), they lie "
                "outside the range.",
                "Take the maximum of |x|: x.abs().max().",
            )  # fmt: skip
    if low is None or high is None:
        return
    top = high - z
    lost = stat.absolute and not data.one_sided and low - z >= 0
    if divisor > top + _ROOM:
        limit = f"{number(low)}..{number(high)}"
        end = "is clipped" if chain.clamp else "wraps around"
        yield Found(
            "divisor", line,
            f"{extreme(stat)} / {number(round(divisor, 3))} gives codes up to {number(round(divisor + z))}, but there are only "
            f"{limit}: whatever is larger than {number(top)} steps, {top / divisor:.0%} of {extreme(stat)}, {end}.",
            f"Divide by {number(top)}." if top > 0 else "Divide by the largest code.",
        )  # fmt: skip
    elif chain.clamp and divisor * 1.9 < top and not lost:
        yield Found(
            "unused-codes", line,
            f"{extreme(stat)} / {number(round(divisor, 3))} gives codes up to {number(round(divisor + z))}, though the clamp allows "
            f"{number(low)}..{number(high)}.",
            f"Divide by {number(top)} if all codes are meant to be used.", False,
        )  # fmt: skip
    if lost:
        yield Found(
            "negatives-lost", _zero_line(chain) or (chain.clamp or chain.stored.ops[-1]).line,
            f"The codes {number(low)}..{number(high)} have none below the zero point {number(z)}: every negative "
            f"value becomes {number(z)}.",
            f"Use the zero point {number((high + 1) // 2)} with {extreme(stat)} / {number(high - (high + 1) // 2)}, or signed codes.",
        )  # fmt: skip


def _zero_line(chain: Chain) -> int:
    """Where a zero point of 0 was written, or added."""
    zeros = [op for op in chain.stored.of("add") if isinstance(op.value, Num) and op.value.value == 0]
    return (zeros[0].value.line or zeros[0].line) if zeros else 0


def _asymmetric(chain: Chain, high: Stat, low: Stat, divisor: float, line: int) -> Iterator[Found]:
    if high.data.root != chain.codes.data.root or high.data != low.data:
        return
    ends = chain.bounds
    if ends is not None and divisor > ends[1] - ends[0] + _ROOM:
        end = "are clipped" if chain.clamp else "wrap around"
        yield Found(
            "divisor", line,
            f"The range is divided into {number(round(divisor, 3))} steps, but the codes {number(ends[0])}..{number(ends[1])} "
            f"have only {number(ends[1] - ends[0])}: codes beyond {end}.",
            f"Divide by {number(ends[1] - ends[0])}.",
        )  # fmt: skip
    elif ends is not None and chain.clamp and divisor * 1.9 < ends[1] - ends[0]:
        yield Found(
            "unused-codes", line,
            f"The range is divided into {number(round(divisor, 3))} steps, though the clamp allows {number(ends[0])}..{number(ends[1])}.",
            f"Divide by {number(ends[1] - ends[0])} if all codes are meant to be used.", False,
        )  # fmt: skip
    if not chain.zero and not chain.names:
        where = _zero_line(chain)
        yield Found(
            "zero-point-left-out", where or line,
            f"{write_scale(chain.codes.scale)} is the step of an asymmetric range, but the zero point is "
            f"{'0' if where else 'left out'}: codes run from min/scale to max/scale, not over the codes of the type.",
            f"Add the zero point {number(ends[0]) if ends else 'qmin'} - round(min / scale), or use max|x| with a "
            "symmetric scale.",
        )  # fmt: skip


def _zero_point(chain: Chain) -> Iterator[Found]:
    rounds = [i for i, op in enumerate(chain.stored.ops) if op.name == "round"]
    for i, op in enumerate(chain.stored.ops):
        if op.name != "add" or not isinstance(op.value, Steps):
            continue
        z, line = op.value, op.value.line or op.line
        if not z.rounding and not z.known and not z.terms:
            continue
        if z.rounding in ("toward_zero", "floor", "ceil"):
            yield Found(
                "zero-point-not-rounded", line,
                "The zero point is cast to an integer without being rounded: the range is moved by up to a whole step.",
                "Round first: round(…), then the cast.",
            )  # fmt: skip
        elif not z.rounding and i > rounds[0] and chain.cast and not any(r > i for r in rounds):
            yield Found(
                "zero-point-not-rounded", op.line,
                "The zero point is not an integer, and is added after the rounding: the cast truncates the sum.",
                "Round the zero point.",
            )  # fmt: skip
        elif not z.rounding and i < rounds[0]:
            yield Found(
                "float-zero-point", line,
                "The zero point stays a float, as in HQQ: 0 itself need not have a code of its own.",
                "Round it where 0 must be exact.", False,
            )  # fmt: skip
        if z.kind and z.kind.bits <= 8 and not z.clamped and not any(s.zero for s, _ in z.terms):
            yield Found(
                "zero-point-not-clamped", line,
                f"Where all values of x have one sign, the zero point lies outside {z.kind} and wraps around in the cast.",
                "Let the range include 0, or clamp the zero point.", False,
            )  # fmt: skip
    yield from _formula(chain)


def _formula(chain: Chain) -> Iterator[Found]:
    """The ends of the range must meet the ends of the codes."""
    span, terms = chain.span, {k: v for k, v in chain.zero.items() if k != "scale"}
    if span is None or not chain.zero_is_known or len(terms) != 1 or chain.codes.multiplied:
        return
    stat, factor = next(iter(terms.items()))
    assert isinstance(stat, Stat)
    line = next((op.value.line or op.line for op in chain.steps), chain.codes.ops[0].line)
    if stat.p is not None or stat not in span[:2]:
        return
    const = chain.zero.get("scale", 0.0)
    if abs(factor - 1) < 1e-6:
        yield Found(
            "zero-point-sign", line,
            f"The zero point has the wrong sign: {extreme(stat)} / scale is added to x / scale, so {extreme(stat)} gets twice "
            "its own code.",
            "The zero point is qmin - round(min / scale).",
        )  # fmt: skip
    elif (
        abs(factor + 1) < 1e-6
        and chain.bounds
        and abs(span[2] - (chain.bounds[1] - chain.bounds[0])) <= _ROOM
    ):
        end = chain.bounds[stat.end == "max"]
        if abs(const - end) > 1.5:
            yield Found(
                "zero-point-range", line,
                f"With this zero point {extreme(stat)} gets the code {number(const)}, but the codes {'end' if stat.end == 'max' else 'begin'} at "
                f"{number(end)}: it belongs to other codes than {number(chain.bounds[0])}..{number(chain.bounds[1])}.",
                f"The zero point is {number(chain.bounds[0])} - round(min / scale).",
            )  # fmt: skip


def _axes(chain: Chain) -> Iterator[Found]:
    scale = chain.codes.scale
    if isinstance(scale, Inverse) or not isinstance(scale, Real) or not scale.terms:
        return
    stat, data = scale.terms[0][0], chain.codes.data
    if stat.axes is None or stat.keepdim or stat.data.layout or data.layout or stat.data.root != data.root:
        return
    if data.rank == 1 or (_misplaced(stat) is False):
        return
    axes = ", ".join(map(str, stat.axes))
    if stat.placed:
        what = f"The scales of axis {axes} reduced are laid out with {stat.placed.replace(':', '(')}), which puts them along another axis."
    else:
        what = (
            f"Reducing axis {axes} without keepdim leaves the scales on the last axis, so that x / scale uses them along "
            "another axis, or fails where the lengths differ."
        )
    yield Found(
        "wrong-axis",
        stat.line,
        what,
        f"Keep the axis: amax({axes if len(stat.axes) == 1 else stat.axes}, keepdim=True).",
    )


def _misplaced(stat: Stat) -> bool:
    """Whether what is left of the axes meets others of x; False also where that is not known."""
    assert stat.axes is not None
    if len(stat.axes) != 1:
        negative = all(a < 0 for a in stat.axes)
        prefix = sorted(stat.axes) == list(range(len(stat.axes)))
        return not stat.placed and not negative and not prefix
    axis = stat.axes[0]
    if not stat.placed:
        return axis != 0
    where = {"unsqueeze:0": 0, "unsqueeze:1": 1, "unsqueeze:-1": -1, "view:-1,1": 1, "reshape:-1,1": 1,
             "view:1,-1": 0, "reshape:1,-1": 0, "expand_dims:0": 0, "expand_dims:1": 1}.get(stat.placed)  # fmt: skip
    return (axis == 0 and where in (1, -1)) or (axis in (1, -1) and where == 0)
