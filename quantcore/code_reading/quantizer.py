"""A quantizer found in the code: from the division by the scale to the stored codes."""

from dataclasses import dataclass
from functools import cached_property

from quantcore.code_reading.values.operators import left_of
from quantcore.code_reading.values.python import DType, Num, Param
from quantcore.code_reading.values.quantities import Codes, Dequantized, Op, Real, Stat, Steps

SMALL = 16  # bits: codes are stored in integers of at most this width; wider ones are intermediate


@dataclass(frozen=True)
class Cast:
    """A cast to a small integer. ``bounds``: what the codes were clamped to before it, None where unbounded;
    ``clamp``: the last clamp before it; ``late``: what was added after that clamp, unless it is a number."""

    op: Op
    bounds: tuple[float | str | None, float | str | None]
    clamp: Op | None
    late: Op | None

    @property
    def dtype(self) -> DType:
        """The integer type."""
        assert isinstance(self.op.value, DType)
        return self.op.value


@dataclass(frozen=True, eq=False)
class Quantizer:
    """``codes``: with every step applied to them; ``dequantized``: their dequantization, if it could be followed to
    the end; ``returns``: whether they are dequantized at all."""

    codes: Codes
    dequantized: Dequantized | None = None
    returns: bool = False

    @cached_property
    def stored(self) -> Codes:
        """The codes up to the last rounding, clamp or cast to an integer."""
        last = max(
            (i for i, op in enumerate(self.codes.ops) if op.name in ("round", "clamp") or _is_integer(op)),
            default=0,
        )
        kept = self.codes.ops[: last + 1]
        # a zero point added after the last rounding belongs to the codes too, unless they are dequantized:
        # then it is the first step of dequantizing
        more = self.codes.ops[last + 1 :]
        if not self.returns and more and not self.codes.of("cast") and more[0].name == "add":
            kept = (*kept, more[0])
        return Codes(
            self.codes.data, self.codes.scale, kept, self.codes.multiplied, self.codes.inverse,
            any(op.name == "other" for op in kept),
        )  # fmt: skip

    @property
    def after(self) -> tuple[Op, ...]:
        """The steps applied to the stored codes when dequantizing."""
        return self.codes.ops[len(self.stored.ops) :]

    @cached_property
    def cast(self) -> Cast | None:
        """The last cast to a small integer."""
        found, clamp, late = None, None, None
        bounds: tuple[float | str | None, float | str | None] = (None, None)
        for op in self.stored.ops:
            low, high = bounds
            if op.name == "clamp":
                new_low, new_high = op.value
                bounds = (low if new_low is None else new_low, high if new_high is None else new_high)
                clamp, late = op, None
            elif op.name == "add" and isinstance(op.value, Num):
                bounds = (_shifted(low, op), _shifted(high, op))
            elif op.name in ("add", "other"):
                late = op if clamp else None
            elif op.name == "cast" and _is_integer(op) and op.value.bits <= SMALL:
                if found is not None and found.dtype.bits == op.value.bits:
                    continue  # the same bits reinterpreted
                found = Cast(op, bounds, clamp, late)
        return found

    @cached_property
    def bounds(self) -> tuple[float, float] | None:
        """The lowest and highest possible code, from the last clamp or else the type; None if unknown."""
        low: float | str | None = None
        high: float | str | None = None
        fixed = True
        for op in self.stored.ops:
            if op.name == "clamp":
                low, high = (
                    old if new is None else new for new, old in zip(op.value, (low, high), strict=True)
                )
                fixed = True
            elif op.name == "add" and isinstance(op.value, Num):
                low, high = _shifted(low, op), _shifted(high, op)
            elif op.name in ("add", "other"):
                fixed = False
        cast = self.cast
        if fixed and isinstance(low, int | float) and isinstance(high, int | float):
            return float(low), float(high)
        if low == "?" or high == "?" or cast is None:
            return None
        return float(cast.dtype.low), float(cast.dtype.high)

    @cached_property
    def clamp(self) -> Op | None:
        """The last clamp."""
        found = self.stored.of("clamp")
        return found[-1] if found else None

    @cached_property
    def zero(self) -> dict[object, float]:
        """What was added to x / scale, as factors by source: extremes, "scale" (a number of codes), other values."""
        return dict(left_of(self.stored) or ())

    @property
    def zero_is_known(self) -> bool:
        """Whether the zero point is computed from extremes and numbers alone."""
        return not self.stored.obscured and all(isinstance(k, Stat) or k == "scale" for k in self.zero)

    @property
    def steps(self) -> list[Op]:
        """The additions of zero points that are computed from extremes."""
        return [op for op in self.stored.of("add") if isinstance(op.value, Steps)]

    @property
    def scale(self) -> Real | None:
        """The scale, if it is computed from extremes with known factors."""
        scale = self.codes.scale
        return scale if isinstance(scale, Real) and scale.known and not scale.const else None

    @property
    def single(self) -> tuple[Stat, float] | None:
        """The single extreme that the scale is computed from, and its divisor."""
        scale = self.scale
        if scale is None or len(scale.terms) != 1 or scale.terms[0][1] <= 0:
            return None
        stat, factor = scale.terms[0]
        return (stat, 1 / factor) if stat.end in ("max", "high") else None

    @property
    def span(self) -> tuple[Stat, Stat, float] | None:
        """The high and low extremes whose difference gives the scale, and its divisor."""
        scale = self.scale
        if scale is None or len(scale.terms) != 2:
            return None
        (a, f), (b, g) = sorted(scale.terms, key=lambda term: -term[1])
        if (
            abs(f + g) > 1e-9 * f
            or a.absolute
            or b.absolute
            or a.end not in ("max", "high")
            or b.end not in ("min", "low")
        ):
            return None
        return a, b, 1 / f

    @property
    def names(self) -> bool:
        """Whether its scale or zero point is an unknown argument."""
        return isinstance(self.codes.scale, Param) or any(
            isinstance(op.value, Param) for op in self.codes.ops
        )


def _is_integer(op: Op) -> bool:
    return op.name == "cast" and isinstance(op.value, DType) and not op.value.floating


def _shifted(bound: float | str | None, op: Op) -> float | str | None:
    return bound + op.sign * op.value.value if isinstance(bound, int | float) else bound
