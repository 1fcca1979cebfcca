"""The dtype of x: what a library loses where it computes in half precision."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from quantcore.analysis import decibels, errors
from quantcore.conventions import Convention
from quantcore.diagnosis.context import ALIKE_DB, BETTER_DB, Context
from quantcore.diagnosis.kind import FindingExample, kind
from quantcore.diagnosis.record import Finding
from quantcore.errors import QuantError
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme
from quantcore.tensors import HALF, Generated
from quantcore.wording import count, joined

MOST = 0.8  # a part that alone costs at least this much of the loss in dB is named
# what a library computes -> the choices that say in which dtype
_PARTS: Mapping[str, tuple[str, ...]] = {
    "scale": ("width_dtype", "scale_precision", "scale_dtype", "zero_point_precision"),
    "codes": ("coding_dtype",),
    "values": ("decoding_dtype",),
}


@kind(
    FindingExample(
        "Codes computed in bfloat16", Generated("normal", (16, 64)), "int8 per_channel(0) torchao", "bfloat16"
    ),
    ("error", "sqnr"),
    finite=True,
    impossible={
        "float zero_point": "libraries compute these in float32, or their codes have few bits",
        "min": "libraries that store minima compute in float32",
        "float": "values of a few bits lose little by it",
        "codebook": "libraries compute indices into a table in float32",
    },
)
def half_precision(context: Context) -> Iterator[Finding]:
    """Find what computing in half precision costs: the scheme computed in float32 is better."""
    result, rules = context.result, context.result.computed.rules
    own = {part: changes for part in _PARTS if (changes := _in_float32(rules, part))}
    if result.dtype.itemsize != 2 or not own:
        return
    now, whole = context.report.sqnr_db, _computed(result, result.scheme)
    if whole is None or not whole[1] - now >= ALIKE_DB:
        return
    found, then = whole
    alone = {
        part: _computed(result, dataclasses.replace(result.computed, convention=rules.changed(**changes)))
        for part, changes in own.items()
    }
    worst = next((part for part, one in alone.items() if one and one[1] - now >= MOST * (then - now)), "")
    dtype = str(result.dtype).removeprefix("torch.")
    differ = int(torch.count_nonzero(found.codes != result.codes))
    most = f" (most in the {worst})" if worst and len(own) > 1 else ""
    yield half_precision.finding(
        f"Computing {joined(list(own))} in {dtype}, as {context.scheme.convention.name} does, costs "
        f"precision{most}: in float32, {differ:,} of {count(result.codes.numel(), 'code')} differ and the "
        f"SQNR is {decibels(then)}, not {decibels(now)}. "
        "Quantize x.float() and cast the values back.",
        severity="warning" if then - now >= BETTER_DB else "note",
        facts={"dtype": dtype, "worst": worst, "differ": differ, "then_db": then, "now_db": now},
    )


def _in_float32(rules: Convention, part: str) -> dict[str, Any]:
    """Return the choices of a part that are half precision, as those of float32."""
    half = [name for name in _PARTS[part] if rules.choices[name] in HALF]
    return {name: "as_scale" if name == "width_dtype" else "float32" for name in half}


def _computed(result: Quantized, scheme: Scheme) -> tuple[Quantized, float] | None:
    """Return x quantized as float32, and the SQNR in dB in the dtype of x; None if that is refused."""
    try:
        found = apply_quietly(result.x, scheme)
    except QuantError:
        return None
    return found, errors(result.x, found.dequantized.to(result.dtype)).sqnr_db
