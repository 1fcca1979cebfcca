"""Which kinds of finding can't occur for which formats, and why; all others are looked for."""

from quantcore.formats import CodebookFormat, FloatFormat
from quantcore.scheme import Scheme

# Formats differ in what dequantizes a code: an integer minus an integer or a float zero_point, an integer plus a
# minimum, or a table of values
FAMILIES = ("integer", "float zero_point", "min", "float", "codebook")


def family_of(scheme: Scheme) -> str:
    """The family of a scheme's format, one of `FAMILIES`."""
    if isinstance(scheme.format, FloatFormat):
        return "float"
    if isinstance(scheme.format, CodebookFormat):
        return "codebook"
    if scheme.rules.zero_point.is_min and not scheme.symmetric:
        return "min"
    return "integer" if scheme.rules.zero_point.is_integer else "float zero_point"


_NO_ZERO_POINT = "the format has no zero point"
_ASYMMETRIC = "the range of asymmetric codes follows the data on both sides"
# kind -> family -> why it can't occur there
IMPOSSIBLE: dict[str, dict[str, str]] = {
    "wrapped": {
        "float": "overflow saturates, or gives infinity or NaN, which `nan` reports",
        "codebook": "a number beyond the table takes the outermost value",
    },
    "zero_point_outside": {
        "float zero_point": "any finite zero point can be stored",
        "min": "a minimum is not a code",
        "float": _NO_ZERO_POINT,
        "codebook": _NO_ZERO_POINT,
    },
    "zero_point_clamped": {
        "float zero_point": "a float zero point is not clamped to the codes",
        "min": "a minimum is not clamped to the codes",
        "float": _NO_ZERO_POINT,
        "codebook": _NO_ZERO_POINT,
    },
    "per_channel": {"min": "minima are stored per group, never one for the tensor"},
    "one_sided": {"float zero_point": _ASYMMETRIC, "min": _ASYMMETRIC},
}
_NO_SQNR = "the SQNR is not defined, so no other scheme is known to be better"
_NO_RANGE = "the range is not finite"
# kind -> why it can't be told of a tensor that contains NaN or infinity
IMPOSSIBLE_NONFINITE: dict[str, str] = {
    "one_sided": _NO_SQNR,
    "outlier_channel": _NO_SQNR,
    "outlier_element": _NO_SQNR,
    "clipped_too_much": _NO_SQNR,
    "clips_too_little": _NO_SQNR,
    "codes_unused": _NO_SQNR,
    "per_channel": _NO_SQNR,
    "small_groups": _NO_SQNR,
    "spare_bits": _NO_SQNR,
    "scale_out_of_range": _NO_SQNR,
    "better_scheme": _NO_SQNR,
    "zero_point_clamped": _NO_RANGE,
}


def applies(kind: str, scheme: Scheme, *, finite: bool) -> bool:
    """Whether a kind of finding can occur for a scheme's format and, if x is not finite, for such a tensor."""
    if not finite and kind in IMPOSSIBLE_NONFINITE:
        return False
    return family_of(scheme) not in IMPOSSIBLE.get(kind, {})
