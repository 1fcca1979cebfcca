"""What a convention is; `choices` has what each of its choices means."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from quantcore import notation
from quantcore.conventions import choices
from quantcore.errors import QuantError
from quantcore.granularity import Granularity
from quantcore.numerics import rounding

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
    kernel: choices.Kernel = "A"
    rounding: str = "half_even"
    overflow: choices.Overflow = "saturate"
    nan: choices.Nan = "refuse"
    nan_value: float = 0.0
    cast: choices.Cast = "none"
    zero_in_range: choices.ZeroInRange = "both"
    range_overflow: choices.RangeOverflow = "split"
    finite_range: bool = False
    widen_range: bool = False
    smallest_range: float = 0.0
    symmetric_scale: choices.SymmetricScale = "positive_steps"
    inverse: choices.Inverse = "of_scale"
    bad_inverse: choices.BadInverse = "kept"
    divisor: float = 1.0
    center: choices.Center = "none"
    least_value: float = 0.0
    zero_value: float = 0.0
    asymmetric_scale: choices.AsymmetricScale = "range"
    narrow_scale_bits: tuple[int, ...] = ()
    scale_precision: choices.Precision = "float32"
    smallest_scale: float = 2.0**-149
    replacement: float = 1.0
    coded_with: choices.CodedWith = "stored"
    zero_scale: choices.ZeroScale = "zero_codes"
    coded_least: float = 0.0
    coded_smallest: float = 0.0
    short_block: choices.ShortBlock = "as_others"
    bad_scale: choices.BadScale = "kept"
    zero_point: choices.ZeroPoint = "integer"
    zero_point_order: choices.ZeroPointOrder = "round_quotient"
    zero_point_precision: choices.Precision = "float32"
    zero_point_scale: choices.ZeroPointScale = "final"
    replaced_zero_point: choices.ReplacedZeroPoint = "computed"
    nan_zero_point: choices.NanZeroPoint = "lowest"
    unsigned_symmetric_zero_point: choices.UnsignedSymmetricZeroPoint = "middle"
    decoding: choices.Decoding = "scaled"
    code_bits: float = 0.0
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
        for name in _NUMBERS:
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
_NUMBERS = tuple(name for name, hint in _HINTS.items() if hint is float)
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
