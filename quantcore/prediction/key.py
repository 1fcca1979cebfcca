"""The answer key of one number: what counts as right, how it is computed, and what known mistakes give."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from typing import NamedTuple

from quantcore.errors import QuantError
from quantcore.mistakes import MISTAKES

SLACK = Fraction(1, 10**6)  # of a number that a mistake gives, which float32 arithmetic computed


class KnownWrong(NamedTuple):
    """A wrong number, the mistake in `MISTAKES` that gives it, and a sentence that explains it."""

    value: str
    mistake: str
    sentence: str


@dataclass(frozen=True)
class Mark:
    """The mark of one answer.

    ``kind``: "right", "blank", "not a number", "too few digits", "not an integer", a likely error, or "wrong"
    where none explains it; ``sentence``: what went wrong, with the numbers, empty if nothing did;
    ``answer``: the right answer; ``mistake``: its name in `MISTAKES`, "" without one.
    """

    typed: str
    kind: str
    sentence: str
    answer: str
    mistake: str = ""

    @property
    def right(self) -> bool:
        """Whether the answer is right."""
        return self.kind == "right"


@dataclass(frozen=True)
class NumberKey:
    """The answer key of one number.

    Attributes:
        right: the right number.
        digits: significant digits asked for; 0: an integer.
        accepted: further numbers that are right, exact, such as "1/3".
        tolerance: how far from one of these an answer may be; "": half a unit of the last digit asked for.
        how: the arithmetic of the right number.
        wrong: what known mistakes give, the likeliest first.

    Raises:
        QuantError: a number in it is not one.
    """

    right: str
    digits: int = 0
    accepted: tuple[str, ...] = ()
    tolerance: str = ""
    how: str = ""
    wrong: tuple[KnownWrong, ...] = ()

    def __post_init__(self) -> None:
        for text in (self.right, *self.accepted, *filter(None, [self.tolerance])):
            try:
                Fraction(text)
            except (ValueError, ZeroDivisionError):
                raise QuantError(f"{text[:40]!r} in an answer key is not a number; type one.") from None

    def accepts(self, typed: Decimal) -> bool:
        """Tell whether a number counts as right."""
        return any(self._near(typed, Fraction(text)) for text in (self.right, *self.accepted))

    def marks(self, text: str) -> list[Mark]:
        """Return every mark that an answer can get, the likeliest first."""
        return list(self._marks(text))

    def _marks(self, text: str) -> Iterator[Mark]:
        value = read(text)
        if value is None:
            sentence = f"{text.strip()[:20]!r} is not a number; type one." if text.strip() else ""
            yield Mark(text, "not a number" if sentence else "blank", sentence, self.right)
        elif self.accepts(value):
            yield Mark(text, "right", "", self.right)
        elif not self.digits and not self.tolerance and value != value.to_integral_value():
            yield Mark(text, "not an integer", f"The answer is an integer: round it. {self.how}", self.right)
        else:
            yield from self._wrong(text, value)

    def _wrong(self, text: str, value: Decimal) -> Iterator[Mark]:
        is_short = bool(self.digits) and self._rounds_to(value)
        found = dict[str, Mark]()
        for known in self.wrong:
            given = MISTAKES[known.mistake].in_answers if known.mistake in MISTAKES else None
            if given and self._gives(value, Fraction(known.value), exactly=is_short):
                mark = Mark(text, given.kind, known.sentence, self.right, known.mistake)
                found.setdefault(known.sentence, mark)
        yield from found.values()
        if is_short:
            more = f"Correct as far as it goes; give {self.digits} significant digits."
            yield Mark(text, "too few digits", more, self.right)
        elif found:
            return
        elif self._is_cut_off(value):
            sentence = f"The digits after the last one were cut off; round it: {self.right}."
            yield Mark(text, "rounding", sentence, self.right)
        elif not self.digits and not self.tolerance and abs(value - Decimal(self.right)) == 1:
            off = "high" if value > Decimal(self.right) else "low"
            yield Mark(text, "off by one", f"Too {off} by one. {self.how}".strip(), self.right)
        else:
            yield Mark(text, "wrong", self.how, self.right)

    def _near(self, typed: Decimal, value: Fraction, slack: Fraction = Fraction(0)) -> bool:
        if self.tolerance:
            most = Fraction(self.tolerance)
        else:
            most = unit(value, self.digits) / 2 if self.digits else Fraction(0)
        return abs(Fraction(typed) - value) <= most + slack

    def _gives(self, typed: Decimal, known: Fraction, exactly: bool) -> bool:
        """Tell whether a mistake that gives ``known`` explains what was typed; ``exactly``: unrounded."""
        slack = SLACK * abs(known) if self.digits else Fraction(0)
        return abs(Fraction(typed) - known) <= slack if exactly else self._near(typed, known, slack)

    def _rounds_to(self, typed: Decimal) -> bool:
        """Whether it has fewer digits than asked for, and a right number rounds to it."""
        if len(typed.as_tuple().digits) >= self.digits or not typed:
            return False
        half = Fraction(10) ** int(typed.as_tuple().exponent) / 2
        every = map(Fraction, (self.right, *self.accepted))
        return any(abs(Fraction(typed) - value) <= half for value in every)

    def _is_cut_off(self, typed: Decimal) -> bool:
        """Tell whether it is a right number truncated to the digits asked for, or to more."""
        step, given = Fraction(10) ** int(typed.as_tuple().exponent), abs(Fraction(typed))
        same = (
            abs(Fraction(text))
            for text in (self.right, *self.accepted)
            if Fraction(text) * Fraction(typed) > 0
        )
        return bool(self.digits) and any(0 < value - given < step for value in same)


def unit(value: Fraction, digits: int) -> Fraction:
    """Return a unit of the last of so many significant digits of a number; 0 for 0."""
    if not value:
        return Fraction(0)
    exponent = (Decimal(abs(value.numerator)) / Decimal(value.denominator)).adjusted()
    return Fraction(10) ** (exponent - digits + 1)


def read(text: str) -> Decimal | None:
    """Read the number that was typed, with either minus sign, and a decimal point or comma.

    A fraction, a percentage, and a space after the sign are read too.

    >>> str(read("- 0,5")), str(read("3/8")), str(read("12.5 %")), read("1/0")
    ('-0.5', '0.375', '0.125', None)
    """
    plain = re.sub(r"^([-+]) +", r"\1", text.strip().replace("−", "-").replace(",", "."))
    number, percent = (plain[:-1].strip(), 100) if plain.endswith("%") else (plain, 1)
    above, _, below = number.partition("/")
    try:
        value = Decimal(above) / Decimal(below or 1) / percent
    except (InvalidOperation, DivisionByZero, Overflow):
        return None
    # float32 goes from 1e-45 to 3e38; far beyond that, Decimal's own arithmetic fails
    return value if value.is_finite() and abs(value.adjusted()) < 60 else None


def as_typed(value: float | Fraction, digits: int) -> str:
    """Write a number with so many significant digits, 0 for an integer, without an exponent.

    >>> as_typed(0.10551, 3), as_typed(-0.0, 0), as_typed(1250000.0, 3)
    ('0.106', '0', '1250000')
    """
    exact = Decimal(f"{float(value):.{digits}g}" if digits else f"{float(value):.0f}")
    return f"{exact.normalize() or Decimal():f}"
