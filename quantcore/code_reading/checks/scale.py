"""Checks of the scale: its divisor against the available codes, its extremes, its axes."""

from collections.abc import Iterator

from quantcore.code_reading.checks.words import extreme, number, scale_formula
from quantcore.code_reading.quantizer import Quantizer
from quantcore.code_reading.record import Found
from quantcore.code_reading.values.python import Num
from quantcore.code_reading.values.quantities import Inverse, Real, Stat

ROOM = 1.01  # tolerated excess of the divisor, in codes: max|x| / 128 clips one code, and libraries use it


def check_scale(quantizer: Quantizer) -> Iterator[Found]:
    """Yield what is wrong with the scale, given the available codes."""
    scale = quantizer.codes.scale
    first = quantizer.codes.ops[0].line
    if isinstance(scale, Real) and scale.known:
        line = scale.divided or first
        if scale.half:
            yield Found(
                "scale-in-float16", scale.half,
                "The scale is cast to float16, whose smallest number above 0 is 6e-8: a scale below half of that underflows to 0.",
                "Keep scales in float32, or make sure they are large enough.", False,
            )  # fmt: skip
        if not scale.guard:
            yield Found(
                "zero-scale", line,
                f"{scale_formula(scale)} is 0 where the range is empty, and x / 0 gives NaN or infinity.",
                "Keep the scale above 0: scale.clamp(min=1e-12) or np.maximum(scale, 1e-12).", False,
            )  # fmt: skip
        if quantizer.codes.multiplied and (quantizer.single or quantizer.span):
            yield Found(
                "multiplied", first,
                f"x is multiplied by the scale {scale_formula(scale)}; codes count steps of the scale, so x must be divided by it.",
                "Quantize with torch.round(x / scale), dequantize with codes * scale.",
            )  # fmt: skip
            return
        if quantizer.stored.obscured or not quantizer.zero_is_known:
            return
        if quantizer.single is not None and not quantizer.steps and not quantizer.codes.data.shift:
            yield from _symmetric(quantizer, *quantizer.single, line)
        elif quantizer.span is not None:
            yield from _asymmetric(quantizer, *quantizer.span, line)


def _symmetric(quantizer: Quantizer, stat: Stat, divisor: float, line: int) -> Iterator[Found]:
    if stat.data.root != quantizer.codes.data.root:
        return
    data, z = quantizer.codes.data, quantizer.zero.get("scale", 0.0)
    low, high = quantizer.bounds or (None, None)
    signed = low - z < 0 if low is not None else divisor in (127, 7, 1, 32767)
    if not stat.absolute and not data.one_sided and not stat.data.one_sided and signed:
        yield _signed_extreme(stat)
    if low is None or high is None:
        return
    top = high - z
    lost = stat.absolute and not data.one_sided and low - z >= 0
    if divisor > top + ROOM:
        limit = f"{number(low)}..{number(high)}"
        what = "is clipped" if quantizer.clamp else "wraps around"
        yield Found(
            "divisor", line,
            f"{extreme(stat)} / {number(round(divisor, 3))} gives codes up to {number(round(divisor + z))}, but the codes are "
            f"{limit}: everything larger than {number(top)} steps ({top / divisor:.0%} of {extreme(stat)}) {what}.",
            f"Divide by {number(top)}." if top > 0 else "Divide by the largest code.",
        )  # fmt: skip
    elif quantizer.clamp and divisor * 1.9 < top and not lost:
        yield Found(
            "unused-codes", line,
            f"{extreme(stat)} / {number(round(divisor, 3))} gives codes up to {number(round(divisor + z))}, though the clamp allows "
            f"{number(low)}..{number(high)}.",
            f"Divide by {number(top)} if all codes are meant to be used.", False,
        )  # fmt: skip
    if lost:
        yield Found(
            "negatives-lost", _zero_line(quantizer) or (quantizer.clamp or quantizer.stored.ops[-1]).line,
            f"No code in {number(low)}..{number(high)} lies below the zero point {number(z)}: every negative value "
            f"becomes {number(z)}.",
            f"Use zero point {number((high + 1) // 2)} with {extreme(stat)} / {number(high - (high + 1) // 2)}, or signed codes.",
        )  # fmt: skip


def _signed_extreme(stat: Stat) -> Found:
    """The finding for an extreme of x where the extreme of |x| is needed."""
    if stat.p is None:
        return Found(
            "max-of-signed-values", stat.line,
            "max(x) ignores the magnitude of negative values: where -min(x) exceeds max(x), they lie outside the "
            "range.",
            "Take the maximum of |x|: x.abs().max() or np.abs(x).max().",
        )  # fmt: skip
    return Found(
        "percentile-of-signed-values", stat.line,
        f"The {stat.p:g}th percentile of x ignores the magnitude of negative values: those below "
        "minus that percentile lie outside the range.",
        "Take the percentile of |x|: torch.quantile(x.abs(), …).",
    )  # fmt: skip


def _zero_line(quantizer: Quantizer) -> int:
    """The line where a zero point of 0 was written or added; 0 if there is none."""
    zeros = [op for op in quantizer.stored.of("add") if isinstance(op.value, Num) and op.value.value == 0]
    return (zeros[0].value.line or zeros[0].line) if zeros else 0


def _asymmetric(quantizer: Quantizer, high: Stat, low: Stat, divisor: float, line: int) -> Iterator[Found]:
    if high.data.root != quantizer.codes.data.root or high.data != low.data:
        return
    codes = quantizer.bounds
    if codes is not None and divisor > codes[1] - codes[0] + ROOM:
        what = "are clipped" if quantizer.clamp else "wrap around"
        yield Found(
            "divisor", line,
            f"The range is divided into {number(round(divisor, 3))} steps, but the codes {number(codes[0])}..{number(codes[1])} "
            f"span only {number(codes[1] - codes[0])}: codes outside that range {what}.",
            f"Divide by {number(codes[1] - codes[0])}.",
        )  # fmt: skip
    elif codes is not None and quantizer.clamp and divisor * 1.9 < codes[1] - codes[0]:
        yield Found(
            "unused-codes", line,
            f"The range is divided into {number(round(divisor, 3))} steps, though the clamp allows {number(codes[0])}..{number(codes[1])}.",
            f"Divide by {number(codes[1] - codes[0])} if all codes are meant to be used.", False,
        )  # fmt: skip
    if not quantizer.zero and not quantizer.names:
        where = _zero_line(quantizer)
        yield Found(
            "zero-point-left-out", where or line,
            f"{scale_formula(quantizer.codes.scale)} is the step of an asymmetric range, but the zero point is "
            f"{'0' if where else 'missing'}: codes run from min/scale to max/scale instead of covering the codes of the type.",
            f"Add the zero point {number(codes[0]) if codes else 'qmin'} - round(min / scale), or use max|x| with a "
            "symmetric scale.",
        )  # fmt: skip


def check_axes(quantizer: Quantizer) -> Iterator[Found]:
    """Yield a finding if the scales are applied along the wrong axis."""
    scale = quantizer.codes.scale
    if isinstance(scale, Inverse) or not isinstance(scale, Real) or not scale.terms:
        return
    stat, data = scale.terms[0][0], quantizer.codes.data
    if stat.axes is None or stat.keepdim or stat.data.layout or data.layout or stat.data.root != data.root:
        return
    if data.rank == 1 or (_misplaced(stat) is False):
        return
    axes = ", ".join(map(str, stat.axes))
    if stat.placed:
        what = f"The scales, reduced over axis {axes}, are reshaped with {stat.placed.replace(':', '(')}), which puts them along the wrong axis."
    else:
        what = (
            f"Reducing axis {axes} without keepdim aligns the scales with the last axis, so x / scale applies them along "
            "the wrong axis, or fails where the lengths differ."
        )
    yield Found(
        "wrong-axis",
        stat.line,
        what,
        f"Keep the axis: amax({axes if len(stat.axes) == 1 else stat.axes}, keepdim=True).",
    )


def _misplaced(stat: Stat) -> bool:
    """Whether the remaining axes are aligned with the wrong axes of x; False also if that is unknown."""
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
