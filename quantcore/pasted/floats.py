"""Casts to 8-bit floats: what does not fit becomes NaN, infinite, or the largest value."""

from collections.abc import Iterator, Mapping

from torch import Tensor

from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.narrow import float_format
from quantcore.pasted.quantizer import between
from quantcore.pasted.values import Val
from quantcore.pasted.walk import Walk

_ORDINARY = ("positive", "negative")
_ROUNDED = 1.08  # times the largest value: what is below may still be rounded to it


def check_floats(walks: Mapping[str, Walk]) -> Iterator[CodeFinding]:
    """Yield casts to 8-bit floats without a clamp, on ordinary tensors with values that do not fit."""
    found, torch_cast = dict[int, tuple[str, float, float, bool]](), dict[int, bool]()
    for val in (val for name in _ORDINARY for val in walks[name].vals):
        if val.op != "cast" or not _loses(val) or val.args[0].value is None:
            continue
        before, most = val.args[0].numbers, float_format(val.dtype).max
        if bool((before.isfinite() & (before.abs() > most * _ROUNDED)).any()):
            low, high = (float(end) for end in before[before.isfinite()].aminmax())
            _, least, largest, certain = found.get(val.line, ("", low, high, True))
            ends = min(low, least), max(high, largest)
            found[val.line] = (val.dtype, *ends, certain and not val.handed)
            torch_cast[val.line] = isinstance(val.value, Tensor)
    for line, (dtype, low, high, certain) in found.items():
        most = float_format(dtype).max
        becomes = "NaN, or the largest value, by torch's version" if torch_cast[line] else "NaN"
        becomes = "infinite" if dtype == "float8_e5m2" else becomes
        why = f"on the tensors tried, they reach {between((low, high))}, and those outside become {becomes}"
        yield finding("wrapped", line, certain, dtype=dtype, limits=between((-most, most)), why=why)


def _loses(val: Val) -> bool:
    """Tell whether a cast loses what does not fit: 4 and 6 bits have neither NaN nor infinity."""
    return val.is_small_float and val.dtype.startswith("float8") and "e8m0" not in val.dtype
