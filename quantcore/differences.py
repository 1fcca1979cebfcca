"""What a convention does differently from the textbook, in words, for one scheme."""

from collections.abc import Callable

from quantcore.conventions import TEXTBOOK, Convention
from quantcore.formats import Format
from quantcore.kernels import KERNELS
from quantcore.range_setting import Given
from quantcore.scheme import Scheme

Words = Callable[[Convention, Format], str]


def differences(scheme: Scheme) -> list[str]:
    """Return one short phrase for each choice that parts this scheme's convention from the textbook.

    Choices that do not matter to the scheme (the asymmetric ones of a symmetric scheme, and the other way
    round) are left out.
    """
    c, fmt = scheme.convention.at(scheme.granularity), scheme.format
    phrases = _SYMMETRIC if scheme.symmetric else _ASYMMETRIC
    if isinstance(scheme.range_setting, Given):
        phrases = {name: phrases[name] for name in ("kernel", "nan")}
    changed = (name for name in phrases if getattr(c, name) != getattr(TEXTBOOK, name))
    said = (phrases[name](c, fmt) for name in changed)
    return [phrase for phrase in said if phrase]


def _kernel(c: Convention, fmt: Format) -> str:
    return f"codes are {KERNELS[c.kernel].formula}"


def _symmetric_scale(c: Convention, fmt: Format) -> str:
    steps = fmt.qmax - fmt.qmin
    match c.symmetric_scale:
        case "half_range":
            return f"the scale is max|x| / {steps / 2:g}"
        case "whole_range":
            narrowed = steps - (fmt.signed and not fmt.narrow and fmt.bits in c.narrow_scale_bits)
            return f"the scale is max|x| / {narrowed / 2:g}"
        case "larger_side":
            return f"the scale is the larger of low / {fmt.qmin} and high / {fmt.qmax}"
    above = steps // 2 + (steps == 3)
    return f"the scale is the larger of high / {above} and -low / {-(-steps // 2)}, found again from the grid"


def _zero_in_range(c: Convention, fmt: Format) -> str:
    if c.zero_in_range == "low":
        return "the range is lowered to 0, but not raised to it"
    return "the range need not include 0"


def _smallest_scale(c: Convention, fmt: Format) -> str:
    if c.widen_range:
        return f"a range whose scale is below {c.smallest_scale:.3g} is widened"
    if c.smallest_scale == 0:
        return "a scale of 0 stays 0" if c.smallest_range == 0 and c.asymmetric_scale == "range" else ""
    if c.smallest_scale == c.replacement:
        return f"no scale is below {c.smallest_scale:.3g}"
    return f"a scale below {c.smallest_scale:.3g} becomes {c.replacement:g}"


def _replacement(c: Convention, fmt: Format) -> str:
    if c.smallest_scale != TEXTBOOK.smallest_scale:
        return ""  # said there
    return f"a scale of 0 becomes {c.replacement:.3g}"


def _middle(c: Convention, fmt: Format) -> str:
    if fmt.signed:
        return ""
    if c.unsigned_symmetric_zero_point == "zero":
        return "the zero point is 0"
    return "" if fmt.bits in (8, 16) else f"the zero point is {(fmt.qmin + fmt.qmax) // 2}"


_NAN = {
    "zero": "NaN becomes code 0",
    "qmin": "NaN becomes qmin",
    "qmax": "NaN becomes qmax",
    "undefined": "NaN stays NaN",
}
_FIRST: dict[str, Words] = {
    "kernel": _kernel,
    "scale_precision": lambda c, fmt: "scale and zero point are found in float64",
}
_ENDS: dict[str, Words] = {
    "smallest_range": lambda c, fmt: f"no range is below {c.smallest_range:g}",
    "smallest_scale": _smallest_scale,
    "replacement": _replacement,
    "nan": lambda c, fmt: _NAN[c.nan],
}
_SYMMETRIC: dict[str, Words] = {
    **_FIRST,
    "symmetric_scale": _symmetric_scale,
    "unsigned_symmetric_zero_point": _middle,
    **_ENDS,
}
_ASYMMETRIC: dict[str, Words] = {
    **_FIRST,
    "asymmetric_scale": lambda c, fmt: "1/s is found first, and multiplies",
    "zero_in_range": _zero_in_range,
    "zero_point": lambda c, fmt: (
        "the zero point is a float, -low · (1/s)" + (", rounded" if c.zero_point == "float_rounded" else "")
    ),
    "zero_point_precision": lambda c, fmt: (
        "" if c.scale_precision == "float64" else "the zero point is found in float64"
    ),
    "zero_point_order": lambda c, fmt: "the zero point is rounded after the subtraction",
    **_ENDS,
}
