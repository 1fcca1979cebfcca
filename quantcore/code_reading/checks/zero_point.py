"""Checks of the zero point: its rounding, its type, and whether it maps the range onto the codes."""

from collections.abc import Iterator

from quantcore.code_reading.checks.scale import ROOM
from quantcore.code_reading.checks.words import extreme, number
from quantcore.code_reading.quantizer import Quantizer
from quantcore.code_reading.record import Found
from quantcore.code_reading.values.quantities import Stat, Steps


def check_zero_point(quantizer: Quantizer) -> Iterator[Found]:
    """Yield what is wrong with the zero point."""
    rounds = [i for i, op in enumerate(quantizer.stored.ops) if op.name == "round"]
    for i, op in enumerate(quantizer.stored.ops):
        if op.name != "add" or not isinstance(op.value, Steps):
            continue
        z, line = op.value, op.value.line or op.line
        if not z.rounding and not z.known and not z.terms:
            continue
        if z.rounding in ("toward_zero", "floor", "ceil"):
            yield Found(
                "zero-point-not-rounded", line,
                "The zero point is cast to an integer without rounding, which shifts the range by up to one step.",
                "Round it before the cast: round(…).",
            )  # fmt: skip
        elif not z.rounding and i > rounds[0] and quantizer.cast and not any(r > i for r in rounds):
            yield Found(
                "zero-point-not-rounded", op.line,
                "The zero point is not an integer and is added after rounding, so the cast truncates the sum.",
                "Round the zero point.",
            )  # fmt: skip
        elif not z.rounding and i < rounds[0]:
            yield Found(
                "float-zero-point", line,
                "The zero point stays a float, as in HQQ, so there may be no code for exactly 0.",
                "Round it if 0 must be exact.", False,
            )  # fmt: skip
        if z.dtype and z.dtype.bits <= 8 and not z.clamped and not any(s.zero for s, _ in z.terms):
            yield Found(
                "zero-point-not-clamped", line,
                f"If all values of x have the same sign, the zero point can lie outside {z.dtype} and wrap around in the cast.",
                "Let the range include 0, or clamp the zero point.", False,
            )  # fmt: skip
    yield from _formula(quantizer)


def _formula(quantizer: Quantizer) -> Iterator[Found]:
    """Whether the zero point maps the bounds of the range to the bounds of the codes."""
    span, terms = quantizer.span, {k: v for k, v in quantizer.zero.items() if k != "scale"}
    if span is None or not quantizer.zero_is_known or len(terms) != 1 or quantizer.codes.multiplied:
        return
    stat, factor = next(iter(terms.items()))
    assert isinstance(stat, Stat)
    line = next((op.value.line or op.line for op in quantizer.steps), quantizer.codes.ops[0].line)
    if stat.p is not None or stat not in span[:2]:
        return
    const = quantizer.zero.get("scale", 0.0)
    if abs(factor - 1) < 1e-6:
        yield Found(
            "zero-point-sign", line,
            f"The zero point has the wrong sign: {extreme(stat)} / scale is added to x / scale, so {extreme(stat)} gets twice "
            "its code.",
            "Use zero_point = qmin - round(min / scale).",
        )  # fmt: skip
    elif (
        abs(factor + 1) < 1e-6
        and quantizer.bounds
        and abs(span[2] - (quantizer.bounds[1] - quantizer.bounds[0])) <= ROOM
    ):
        bound = quantizer.bounds[stat.end == "max"]
        if abs(const - bound) > 1.5:
            yield Found(
                "zero-point-range", line,
                f"With this zero point, {extreme(stat)} gets the code {number(const)}, but the codes {'end' if stat.end == 'max' else 'begin'} at "
                f"{number(bound)}: it is meant for a code range other than {number(quantizer.bounds[0])}..{number(quantizer.bounds[1])}.",
                f"Use zero_point = {number(quantizer.bounds[0])} - round(min / scale).",
            )  # fmt: skip
