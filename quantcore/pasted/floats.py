"""Casts to 8-bit floats: what does not fit becomes NaN, infinite, or the largest value."""

from collections.abc import Iterator, Mapping

import torch

from quantcore.pasted.kinds import CodeFinding, finding
from quantcore.pasted.quantizer import between
from quantcore.pasted.walk import Walk

_ORDINARY = ("positive", "negative")
_ROUNDED = 1.08  # times the largest value: what is below may still be rounded to it


def check_floats(walks: Mapping[str, Walk]) -> Iterator[CodeFinding]:
    """Yield casts to 8-bit floats without a clamp, on ordinary tensors with values that do not fit."""
    found: dict[int, tuple[str, float, float, bool]] = {}
    for val in (val for name in _ORDINARY for val in walks[name].vals):
        if val.op != "cast" or not val.dtype.startswith("float8") or val.args[0].value is None:
            continue
        before, most = val.args[0].numbers, torch.finfo(getattr(torch, val.dtype)).max
        if bool((before.isfinite() & (before.abs() > most * _ROUNDED)).any()):
            low, high = (float(end) for end in before[before.isfinite()].aminmax())
            _, least, largest, certain = found.get(val.line, ("", low, high, True))
            ends = min(low, least), max(high, largest)
            found[val.line] = (val.dtype, *ends, certain and not val.handed)
    for line, (dtype, low, high, certain) in found.items():
        most = torch.finfo(getattr(torch, dtype)).max
        becomes = "infinite" if dtype == "float8_e5m2" else "NaN, or the largest value, by torch's version"
        why = f"on the tensors tried, they reach {between((low, high))}, and those outside become {becomes}"
        yield finding("wrapped", line, certain, dtype=dtype, limits=between((-most, most)), why=why)
