"""The numbers of a cell as a student computes them: exact arithmetic with the numbers that are shown.

Float32 arithmetic rounds every step, so it decides ties, and last digits, that nobody computes who works on
paper: 0.7385 / 7 is 0.1055, and in float32 a little less.
"""

import re
from collections.abc import Callable, Iterator
from fractions import Fraction

import torch

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.mistakes import Cell
from quantcore.numerics import NEAREST, decimal, rounding
from quantcore.quantization import Quantized
from quantcore.tracing import Trace

SHOWN = 6  # significant digits of a number that a class is shown
NEAR = 0.01  # how far the exact quotient may be from the one in float32 and still be the same arithmetic
SAME = 2e-5  # the same for scales, relative
Show = Callable[[float], str]


def shown(value: float) -> str:
    """Write a number for a class: at most 6 significant digits; integers in full.

    >>> shown(4.0880003), shown(1 / 3), shown(1234567.0)
    ('4.088', '0.333333', '1234567')
    """
    is_integer = float(value).is_integer()
    return decimal(value if is_integer else float(f"{value:.{SHOWN}g}"))


def without_tails(sentence: str) -> str:
    """Write the numbers of a sentence as a class is shown them, where that does not make it false.

    A number beside a tie keeps its digits, and so does one beside an integer where it is not rounded to the
    nearest.

    >>> without_tails("x / s = 4.0880003, rounded to 4."), without_tails("x / s = 2.4999998, rounded to 2.")
    ('x / s = 4.088, rounded to 4.', 'x / s = 2.4999998, rounded to 2.')
    """
    is_nearest = not any(word in sentence for word in ("down", "up to", "truncated"))

    def short(match: re.Match[str]) -> str:
        text = shown(float(match[0]))
        doubled = 2 * float(text)
        beside = doubled.is_integer() and (doubled % 2 or not is_nearest)
        return match[0] if beside and float(text) != float(match[0]) else text

    return re.sub(r"\d+\.\d{4,}(e[-+]\d+)?", short, sentence)


def exact_numbers(result: Quantized, asked: str, t: Trace, show: Show = decimal) -> list[Fraction]:
    """Return the exact numbers that the shown ones give, which the one in float32 may differ from.

    ``show``: how x, the scale and the ends of the range are shown.
    """
    if not t.scale or not all(map(_is_finite, (t.x, t.scale, t.zero_point))):
        return []
    numbers = {
        "codes": _codes,
        "scale": _scales,
        "zero_point": _zero_points,
        "dequantized": _values,
        "error": _errors,
    }.get(asked)
    return [] if numbers is None else list(dict.fromkeys(numbers(result, t, show)))


def _is_finite(value: float) -> bool:
    return abs(value) < float("inf")


def _codes(result: Quantized, t: Trace, show: Show) -> Iterator[Fraction]:
    """Yield the code where exact arithmetic is at, or on the other side of, a tie."""
    quotient = Fraction(show(t.x)) / Fraction(show(t.scale))
    rule = t.scheme.convention.coding.rounding
    if t.center is not None or abs(float(quotient) - t.quotient) > NEAR or rule not in NEAREST:
        return
    z = int(t.zero_point)
    before = quotient if t.summed is None else quotient + z
    code = _rounded(before, rule) + (z if t.summed is None else 0)
    yield Fraction(int(Cell(t, result).fit(code)))


def _rounded(value: Fraction, rule: str = "half_even") -> int:
    return int(rounding(rule)(torch.tensor([float(value)], dtype=torch.float64)))


def _scales(result: Quantized, t: Trace, show: Show) -> Iterator[Fraction]:
    """Yield the scale that the ends of the range give, if the library divides them by a number of steps."""
    if t.low is None or t.high is None or t.raw_scale is not None or not isinstance(_format(t), IntFormat):
        return
    low, high = Fraction(show(t.low)), Fraction(show(t.high))
    if t.scheme.symmetric:
        steps = Fraction(round(2 * t.high / t.scale), 2)  # 127, 127.5 or 128
    else:
        high, steps = high - low, Fraction((1 << _format(t).bits) - 1)
    found = high / steps if steps else Fraction(0)
    if abs(float(found) - t.scale) <= SAME * t.scale:
        yield found


def _format(t: Trace) -> IntFormat:
    fmt = t.scheme.format
    if not isinstance(fmt, IntFormat):
        raise QuantError(f"{fmt} is not an integer format; choose one, such as int8.")
    return fmt


def _zero_points(result: Quantized, t: Trace, show: Show) -> Iterator[Fraction]:
    """Yield the zero point where low / s is at, or on the other side of, a tie."""
    cell = Cell(t, result)
    if not cell.of_low or t.low is None:
        return
    for scale in (Fraction(show(t.scale)), *_scales(result, t, show)):
        steps = Fraction(show(t.low)) / scale
        if abs(float(steps) - cell.steps) <= NEAR:
            yield Fraction(int(cell.clamped(cell.fmt.qmin - _rounded(steps))))


def _values(result: Quantized, t: Trace, show: Show) -> Iterator[Fraction]:
    for code in {Fraction(int(t.code)), *_codes(result, t, show)}:
        found = (code - int(t.zero_point)) * Fraction(show(t.scale))
        if code != t.code or abs(float(found) - t.dequantized) <= SAME * abs(t.dequantized):
            yield found


def _errors(result: Quantized, t: Trace, show: Show) -> Iterator[Fraction]:
    for value in _values(result, t, show):
        yield Fraction(show(t.x)) - value
