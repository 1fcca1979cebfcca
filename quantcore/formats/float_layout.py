"""The layout of a small float: its bits, and which patterns encode infinity and NaN."""

from dataclasses import dataclass

from quantcore import notation
from quantcore.errors import QuantError

NAN_STYLES = ("none", "ieee", "all_ones", "negative_zero")
SIGN_STYLES = ("bit", "nan", "dropped")
MAX_BITS, MAX_EXPONENT = 16, 8


@dataclass(frozen=True)
class FloatLayout:
    """The bits of a float; `FloatFormat` documents the arguments."""

    exponent: int
    mantissa: int
    bias: int = None  # type: ignore[assignment]  # filled in below
    infinities: bool = False
    nan: str = "none"
    saturate: bool = True
    sign: str = "bit"
    subnormals: bool = True

    def __post_init__(self) -> None:
        for name in ("exponent", "mantissa"):
            object.__setattr__(self, name, notation.integer(getattr(self, name), name))
        if not (1 <= self.exponent <= MAX_EXPONENT and 0 <= self.mantissa <= MAX_BITS):
            raise QuantError(
                f"exponent={self.exponent} and mantissa={self.mantissa} bits are not supported; choose 1 to "
                f"{MAX_EXPONENT} exponent bits and 0 or more mantissa bits."
            )
        usual = (1 << (self.exponent - 1)) - 1
        object.__setattr__(self, "bias", usual if self.bias is None else notation.integer(self.bias, "bias"))
        self._check_words()
        self._check_specials()
        self._check_reach()

    def _check_words(self) -> None:
        for name, known in (("nan", NAN_STYLES), ("sign", SIGN_STYLES)):
            if getattr(self, name) not in known:
                word = str(getattr(self, name))[:40]
                raise QuantError(f"{name} must be one of {', '.join(known)}, not {word!r}.")
        for name in ("infinities", "saturate", "subnormals"):
            if not isinstance(getattr(self, name), bool):
                raise QuantError(f"{name} must be true or false, not {str(getattr(self, name))[:40]!r}.")

    def _check_specials(self) -> None:
        if self.nan == "ieee" and not (self.infinities and self.mantissa):
            raise QuantError(
                "nan=ieee needs infinities=true and a mantissa bit; choose nan=all_ones otherwise."
            )
        if self.sign != "bit" and self.nan == "negative_zero":
            raise QuantError("nan=negative_zero needs a sign bit; choose nan=all_ones, or sign=bit.")
        if self.sign == "nan" and self.nan == "none":
            raise QuantError("sign=nan needs a pattern for NaN; choose nan=all_ones, or sign=dropped.")
        if not (self.saturate or self.infinities or self.nan != "none"):
            raise QuantError("Without infinity and NaN, numbers must saturate; choose saturate=true.")

    def _check_reach(self) -> None:
        if not 2 <= self.bits <= MAX_BITS or self.top < 1:
            raise QuantError(
                f"exponent={self.exponent} and mantissa={self.mantissa} give {self.bits} bits, and the "
                f"largest number has pattern {self.top}; choose at most {MAX_BITS} bits, and enough for a "
                "positive number."
            )
        smallest = self.lowest_exponent - self.mantissa * self.subnormals
        highest = max(self.top >> self.mantissa, self.subnormals) - self.bias
        # float32's own normal numbers, and 2^-127, which e8m0 has too
        if self.lowest_exponent < (-126 if self.mantissa else -127) or smallest > 0 or highest > 127:
            raise QuantError(
                f"bias={self.bias} puts normal numbers at 2^{self.lowest_exponent} to 2^{highest}; choose a "
                "bias that keeps them within 2^-126 to 2^127, as in float32, and the smallest number at "
                "most 1."
            )

    @property
    def bits(self) -> int:
        """Bits per code."""
        return (self.sign == "bit") + self.exponent + self.mantissa

    @property
    def sign_bit(self) -> int:
        """The pattern of the sign bit; 0 without a sign."""
        return (self.sign == "bit") << (self.exponent + self.mantissa)

    @property
    def lowest_exponent(self) -> int:
        """The exponent of the smallest normal number, a power of two."""
        return self.subnormals - self.bias

    @property
    def infinity(self) -> int | None:
        """The pattern of +infinity."""
        if not self.infinities:
            return None
        if self.nan == "ieee":
            return ((1 << self.exponent) - 1) << self.mantissa
        return self._ones - (self.nan == "all_ones")

    @property
    def top(self) -> int:
        """The pattern of the largest finite number; all below it are finite and in ascending order."""
        return self._ones - (self.nan == "all_ones") if self.infinity is None else self.infinity - 1

    @property
    def quiet_nan(self) -> int:
        """The pattern of NaN, without its sign; if there is no NaN, the pattern of -0."""
        match self.nan:
            case "ieee":  # the quiet one: the highest bit of the mantissa
                return (((1 << self.exponent) - 1) << self.mantissa) | 1 << (self.mantissa - 1)
            case "all_ones":
                return self._ones
        return self.sign_bit

    @property
    def _ones(self) -> int:
        return (1 << (self.exponent + self.mantissa)) - 1
