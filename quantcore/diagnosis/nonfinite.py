"""NaN and infinity, in x or in x̂."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from quantcore.diagnosis.context import Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import MAX_BOXES, Finding, cell, index, number
from quantcore.numerics import CHUNK
from quantcore.wording import count


@kind(
    FindingExample("Silent NaN", "0, 0.5, 1, -1", "int8 given(1e-40) torch.fake_quantize"),
    ("mistakes", "scale-in-float16"),
)
def nan(context: Context) -> Iterator[Finding]:
    """Find NaN and infinity: in x, if the library accepts them, or in x̂ if the format can't represent x."""
    notes = [note for note in context.result.warnings if "NaN" in note]
    if context.finite and not notes and math.isfinite(context.report.sse):
        return
    x = context.result.x.reshape(-1)
    places = _nonfinite(context.result.dequantized if context.finite and not notes else x)
    if notes and not len(places):
        places = _nonfinite(context.result.dequantized)
    n = len(places)
    if not n and not notes:  # only the sums exceed float64
        return
    first = context.element(int(places[0])) if n else None
    at = "" if first is None else f", first at {index(first)}"
    facts: dict[str, Any] = {"elements": n, "tensor": "x̂" if context.finite else "x"}
    if first is not None:
        facts["at"] = first
    if context.finite and not notes:
        facts["value"] = float(x[int(places[0])])
        said = (
            f"{count(n, 'element')} {'dequantizes' if n == 1 else 'dequantize'} to NaN or infinity{at}, "
            f"where x is {number(facts['value'])}: {_why_not(context, int(places[0]))}."
        )
    else:
        what = f"{count(n, 'element')} of x {'is' if n == 1 else 'are'} NaN or infinite{at}. "
        said = "" if context.finite else what
        said += notes[0] if notes else "Replace them: most metrics are undefined."
    cells = tuple(cell(context.element(int(i))) for i in places[:MAX_BOXES])
    # not of the kind: looking for it in every scheme that is tried takes long, and their SQNR is NaN anyway
    yield nan.finding(said, cells, facts=facts, severity="error")


def _nonfinite(values: Tensor) -> Tensor:
    """Return the flat indices of NaN and infinity, in the memory of a few elements at a time."""
    flat = values.reshape(-1)
    starts = range(0, flat.numel(), CHUNK)
    return torch.cat([(~flat[i : i + CHUNK].isfinite()).nonzero()[:, 0] + i for i in starts])


def _why_not(context: Context, flat: int) -> str:
    """Say why the element at a flat index of x is not finite after dequantization."""
    block = context.blocks_of(flat)
    for name, parameter in (
        ("scale", context.result.scale),
        ("zero point", context.result.params.zero_point),
    ):
        found = float(parameter[block])
        if not math.isfinite(found):
            return f"the {name} of its block is {'NaN' if math.isnan(found) else number(found)}"
    return f"{context.scheme.format} can't represent it at this scale"
