"""What is checked of codes: rounding, clamp and cast, and the scale against the codes that there are."""

from collections.abc import Iterator

from quantcore.code_reading.checks.chain import Cast, Chain
from quantcore.code_reading.checks.found import Found
from quantcore.code_reading.checks.scale import check_axes, check_scale
from quantcore.code_reading.checks.words import bound, number
from quantcore.code_reading.checks.zero_point import check_zero_point
from quantcore.code_reading.values.known import Num, Op, Param, Stat, Steps, Unknown


def check(chain: Chain) -> Iterator[Found]:
    """All that is found of a quantizer up to its stored codes."""
    if not chain.stored.of("round"):
        return
    yield from _rounding(chain)
    yield from _cast(chain)
    yield from check_scale(chain)
    yield from check_zero_point(chain)
    yield from check_axes(chain)
    if chain.codes.data.twice is not None and chain.codes.data.twice.codes.scale != chain.codes.scale:
        yield Found(
            "quantized-twice", chain.codes.ops[0].line,
            f"This tensor was already quantized and dequantized (line {chain.codes.data.twice.line}): rounding twice can move "
            "a value by more than half a step.",
            "Quantize the original tensor once.",
        )  # fmt: skip


def _rounding(chain: Chain) -> Iterator[Found]:
    if chain.stored.fogged:
        return
    first = chain.stored.of("round")[0]
    if first.sign < 0:
        kind = next((op.value for op in chain.stored.of("cast") if op.line == first.line), "an integer")
        yield Found(
            "truncated", first.line,
            f"x / scale is cast to {kind} without rounding: the cast drops the fraction, so the error is up to one step "
            "instead of half a step.",
            "Round before the cast: torch.round(…) or np.rint(…).",
            not (chain.codes.inverse and isinstance(chain.codes.scale, Num)),  # an image times 255
        )  # fmt: skip
    elif first.value in ("floor", "ceil", "toward_zero"):
        name = {
            "floor": "floor rounds down",
            "ceil": "ceil rounds up",
            "toward_zero": "trunc rounds toward zero",
        }[first.value]
        yield Found(
            "truncated", first.line,
            f"{name}, so the error is up to one step instead of half a step.",
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
                f"sum is cast to {kind} without a clamp: codes outside {kind.low}..{kind.high} wrap around.",
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
            f"The clamp{_of_line(cast.clamp, where)} keeps {bounds}, but {kind} holds {kind.low}..{kind.high}: codes "
            f"outside wrap around in the cast{_of_line(cast.op, where)}.",
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
        return "codes wrap around where the scale does not cover x, and the scale is unknown here", False
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
