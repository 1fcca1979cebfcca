"""What a convention is: the choices, and what each of their values means.

With N = qmax - qmin, and (low, high) the range that the range setting found:

==============================  ======================================================================
choice                          values, the textbook's first
==============================  ======================================================================
kernel                          "A" round(x/s)+z · "B" round(x·(1/s))+z · "C" round(x/s+z) ·
                                "D" round(x·(1/s)+z) · "E" round(fma(x, 1/s, z)); see `kernels`
rounding                        "half_even" · "half_away" · "half_up" · "floor" · "ceil" ·
                                "toward_zero" · "stochastic", or with a seed "stochastic_7"; of codes,
                                the zero_point is always rounded half to even
overflow                        "saturate" codes are clamped · "wrap" modulo 2^bits, a cast without clamp
nan                             "refuse" NaN and infinity in x · the code that NaN becomes: "zero" ·
                                "qmin" · "qmax" · "undefined" (NaN stays NaN there; stored here as 0)
cast                            "none" · the integer that the rounded value is cast to before it is
                                clamped, where a value too large becomes the lowest: "int64" after z is
                                added · "int32" before, so that adding a negative z wraps around
zero_in_range                   "both" low = min(low, 0), high = max(high, 0) · "low" only that · "no"
range_overflow                  "split" high/N - low/N where high - low overflows · "infinite"
finite_range                    infinite ends become the largest float32
widen_range                     a range too narrow for smallest_scale is widened by N·smallest_scale
smallest_range                  what max|x|, or high - low, is raised to
symmetric_scale                 "positive_steps" max|x| / (2^(bits-1)-1), of a float format max|x| / its max · "half_range" max|x| / (N/2) ·
                                "whole_range" (max|x| + max|x|) / N · "larger_side" the larger of
                                low/qmin, high/qmax · "regridded" the larger of -low/ceil(N/2),
                                high/floor(N/2), then (floor(N/2)·d + ceil(N/2)·d) / N · powers of two
                                of blocks, see `scales_of_floats`: "power_floor" · "power_log2_floor" ·
                                "power_even" · "power_rounded" · "power_rounded_e2m1" · "power_ceil" ·
                                "power_log2_ceil"
asymmetric_scale                "range" (high - low) / N · "inverse_range" see `scales.inverse_range`
narrow_scale_bits               signed widths whose symmetric scale leaves out the lowest code
scale_precision                 "float32" · "float64", then cast
coded_least                     what a stored scale of 2^-127 counts as when x is divided by it; 0: itself
smallest_scale, replacement     a scale below the first becomes the second
bad_scale                       "kept" · refused are "nan" · "nonfinite"
zero_point                      "integer", in the format · "float" -low·(1/s) · "float_rounded"
zero_point_order                "round_quotient" qmin - round(low/s) · "round_difference" round(qmin - low/s)
zero_point_precision            "float32" · "float64"
zero_point_scale                "final" · "raw": before it was cast or replaced
replaced_zero_point             of a replaced scale: "computed" · "zero" · "zero_if_asymmetric"
nan_zero_point                  "lowest" -2^31 · "zero" · "wrapped": -2^31 taken from qmin in int32
unsigned_symmetric_zero_point   "middle" 2^(bits-1) · "observer" that for 8 and 16 bits, else
                                floor((qmin+qmax)/2) · "zero"
==============================  ======================================================================

Always: dequantized is float32(q - z) · s.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.granularity import Granularity
from quantcore.rounding import rounding

FLOAT32_EPS = 2.0**-23
FLOAT32_TINY = 2.0**-126  # the smallest normal number


@dataclass(frozen=True)
class Limit:
    """Something that a library's call can't do.

    ``of``: which property of scheme and shape, a key of `refusal.PROPERTIES`; ``allowed``: its values that
    work; ``words``: the library's rule, to be read after its name.
    """

    of: str
    allowed: tuple[Any, ...]
    words: str


@dataclass(frozen=True)
class Convention:
    """What a library does beyond format, symmetry, granularity and range setting.

    The defaults are the textbook's. ``variants``: what differs by granularity, as (its name, choice, value).
    ``formats``: the kinds of format that the call has. ``own_numbers``: what it also reports, see `encodings`. ``library``, ``version``, ``call``: what the record stands for; ``sources``: (choice, where it is written
    or how it was measured).

    Raises:
        QuantError: a value that the choice has not.
    """

    name: str
    kernel: Literal["A", "B", "C", "D", "E"] = "A"
    rounding: str = "half_even"
    overflow: Literal["saturate", "wrap"] = "saturate"
    nan: Literal["refuse", "zero", "qmin", "qmax", "undefined"] = "refuse"
    cast: Literal["none", "int32", "int64"] = "none"
    zero_in_range: Literal["both", "low", "no"] = "both"
    range_overflow: Literal["split", "infinite"] = "split"
    finite_range: bool = False
    widen_range: bool = False
    smallest_range: float = 0.0
    symmetric_scale: Literal[
        "positive_steps",
        "half_range",
        "whole_range",
        "larger_side",
        "regridded",
        "power_floor",
        "power_log2_floor",
        "power_even",
        "power_rounded",
        "power_rounded_e2m1",
        "power_ceil",
        "power_log2_ceil",
    ] = "positive_steps"
    asymmetric_scale: Literal["range", "inverse_range"] = "range"
    narrow_scale_bits: tuple[int, ...] = ()
    scale_precision: Literal["float32", "float64"] = "float32"
    smallest_scale: float = 2.0**-149
    replacement: float = 1.0
    coded_least: float = 0.0
    bad_scale: Literal["kept", "nan", "nonfinite"] = "kept"
    zero_point: Literal["integer", "float", "float_rounded"] = "integer"
    zero_point_order: Literal["round_quotient", "round_difference"] = "round_quotient"
    zero_point_precision: Literal["float32", "float64"] = "float32"
    zero_point_scale: Literal["final", "raw"] = "final"
    replaced_zero_point: Literal["computed", "zero", "zero_if_asymmetric"] = "computed"
    nan_zero_point: Literal["lowest", "zero", "wrapped"] = "lowest"
    unsigned_symmetric_zero_point: Literal["middle", "observer", "zero"] = "middle"
    variants: tuple[tuple[str, str, Any], ...] = field(default=(), repr=False)
    limits: tuple[Limit, ...] = field(default=(), repr=False, compare=False)
    formats: tuple[str, ...] = field(default=("int",), repr=False, compare=False)
    own_numbers: tuple[str, ...] = field(default=(), repr=False, compare=False)
    library: str = field(default="", repr=False, compare=False)
    version: str = field(default="", repr=False, compare=False)
    call: str = field(default="", repr=False, compare=False)
    sources: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, values in _CHOICES.items():
            value = getattr(self, name)
            if value not in values or isinstance(value, bool) != isinstance(values[0], bool):
                *others, last = map(str, values)
                raise QuantError(
                    f"{name}={str(value)[:40]!r} is not a choice; write {', '.join(others)} or {last}."
                )
        rounding(self.rounding)
        for name in ("smallest_range", "smallest_scale", "replacement", "coded_least"):
            number = notation.finite(getattr(self, name), name)
            if number < 0:
                raise QuantError(f"{name} must not be negative, and is {number:g}.")
            object.__setattr__(self, name, number)
        bits = self.narrow_scale_bits
        if not isinstance(bits, tuple) or any(type(b) is not int for b in bits):
            raise QuantError(
                f"narrow_scale_bits must be a list of widths such as [8,16], not {str(bits)[:40]}."
            )

    def __str__(self) -> str:
        changes = self.changes().items()
        arguments = ", ".join(f"{name}={notation.write_value(value)}" for name, value in changes)
        return f"{self.name}({arguments})" if arguments else self.name

    def changes(self) -> dict[str, Any]:
        """Return the choices that differ from the record of this name."""
        base = BASES.get(self.name, TEXTBOOK)
        kept = {v for v in base.variants if v in self.variants}
        undone = {choice for _, choice, _ in set(base.variants) - kept}
        return {
            name: getattr(self, name)
            for name in CHOICES
            if name in undone or getattr(self, name) != getattr(base, name)
        }

    def at(self, granularity: Granularity) -> "Convention":
        """Return the convention with the choices that hold for this granularity."""
        kind = notation.snake_case(type(granularity).__name__)
        changes = {choice: value for at, choice, value in self.variants if at == kind}
        return dataclasses.replace(self, variants=(), **changes) if changes else self

    def changed(self, **choices: Any) -> "Convention":
        """Return a copy with these choices, for every granularity.

        Raises:
            QuantError: a name that is not a choice, or a value that it has not.
        """
        unknown = sorted(set(choices) - set(CHOICES))
        if unknown:
            raise QuantError(
                f"{unknown[0][:40]!r} is not a choice of a convention; choices are {', '.join(CHOICES)}."
            )
        kept = tuple(v for v in self.variants if v[1] not in choices)
        return dataclasses.replace(self, variants=kept, **choices)

    @property
    def refuses_nonfinite(self) -> bool:
        """Whether NaN and infinity in x are refused."""
        return self.nan == "refuse"


_HINTS = get_type_hints(Convention)
_CHOICES: dict[str, tuple[Any, ...]] = {
    name: get_args(hint) if get_origin(hint) is Literal else (False, True)
    for name, hint in _HINTS.items()
    if get_origin(hint) is Literal or hint is bool
}
_DESCRIPTION = (
    "name",
    "variants",
    "limits",
    "formats",
    "own_numbers",
    "library",
    "version",
    "call",
    "sources",
)
# What decides numbers, in the order of the fields
CHOICES: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Convention) if f.name not in _DESCRIPTION)

TEXTBOOK = Convention(
    "textbook",
    library="textbook",
    call="quantcore.apply(x, scheme)",
    formats=("int", "float", "codebook"),
    limits=(Limit("group_length", (True,), "takes no group longer than its axis"),),
    sources=(
        ("all", "Jacob et al. 2018, arXiv 1712.05877, section 2.1; Nagel et al. 2021, arXiv 2106.08295, 2.2"),
    ),
)
# name -> the record that a changed copy is compared with; the package adds the libraries
BASES: dict[str, Convention] = {TEXTBOOK.name: TEXTBOOK}
