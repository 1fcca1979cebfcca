"""Whether a finding is the culprit: its operation's result is replaced by the right one, the code evaluated again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.pasted.case import Case
from quantcore.pasted.intended import intended_scheme
from quantcore.pasted.kinds import KINDS, CodeFinding
from quantcore.pasted.names import cast
from quantcore.pasted.quantizer import Chain
from quantcore.pasted.trace import Override, Val, numbers
from quantcore.pasted.walk import Walk, evaluate
from quantcore.quantization import Quantized, apply_quietly, dequantize

_EQUAL = 0.98  # of the codes; ties may fall the other way


def confirmed(case: Case, found: list[CodeFinding], walks: list[Walk]) -> list[CodeFinding]:
    """Return the findings; those whose repair does not give the intended codes are no longer certain.

    ``walks``: the evaluations with each of the case's quantizers, or with the first of them.
    """
    places = {KINDS[f.kind].repair for f in found if f.certain} - {""}
    if not places:
        return found
    try:
        if all(_repairs(case, c, places, w) for c, w in zip(case.chains, walks, strict=False)):
            return found
    except (QuantError, RuntimeError):
        return found  # no scheme gives such codes: the finding rests on what was measured
    return [replace(f, certain=f.certain and not KINDS[f.kind].repair) for f in found]


def intended(case: Case, chain: Chain, shape: tuple[int, ...]) -> Quantized:
    """What the intended scheme makes of the data of a quantizer.

    Raises:
        QuantError: there is no such scheme.
    """
    first = chain
    while first.earlier is not None:
        first = first.earlier
    x = numbers(first.data.value).float().reshape(shape)
    return apply_quietly(x, intended_scheme(case, chain, shape))


def _repairs(case: Case, chain: Chain, places: set[str], walk: Walk) -> bool:
    """Whether the codes are the intended ones, but for ties, with all culprits repaired."""
    right = intended(case, chain, tuple(walk.given.x.shape))
    repaired = evaluate(walk.tree, walk.given, _overrides(case, chain, right, places))
    codes = numbers(repaired.trace.vals[chain.stored.index].value).reshape(right.codes.shape)
    fmt = right.scheme.format
    if case.bounds is None and isinstance(fmt, IntFormat):
        codes = codes.clamp(fmt.qmin, fmt.qmax)
    off = (codes - right.codes).abs()
    return float(off.max()) <= 1 and float(off.eq(0).double().mean()) >= _EQUAL


def _overrides(case: Case, chain: Chain, right: Quantized, places: set[str]) -> dict[int, Override]:
    """The right results of the culprits, by their place in the trace."""
    scale, zero = (e.double().reshape(chain.x.shape) for e in (steps_of(right), _zero_points_of(right)))
    found: dict[int, Override] = {}

    def repair(node: Val, values: Callable[[Val], Tensor]) -> None:
        found[node.index] = lambda val: _like(val, values(val))

    if "scale" in places or ("zero" in places and (case.form.is_single or right.scheme.symmetric)):
        repair(chain.scalings[-1], lambda val: chain.x / scale)
    if "round" in places or chain.round.op == "floor_divide":
        divides = chain.round.op == "floor_divide"
        repair(chain.round, lambda val: (chain.x / scale if divides else _flow(val)).round())
    # a zero point that depends on the tensor was computed from the scale
    if "zero" in places or ("scale" in places and case.zero_varies):
        if chain.zeros:
            repair(chain.zeros[-1], lambda val: _flow(val) + zero)
        else:
            repair(chain.round, lambda val: numbers(val.value) + zero)
    if chain.cast is not None and case.cast_limits is not None and places & {"late", "cast", "zero"}:
        limits, late = case.cast_limits, numbers(chain.round.value) + chain.zero
        repair(chain.cast, lambda val: (late if "late" in places else _flow(val)).clamp(*limits))
    return found


def _flow(val: Val) -> Tensor:
    """The data of an operation that is being added to the trace."""
    return numbers((val.flow or next(a for a in val.args if a.data)).value)


def steps_of(result: Quantized) -> Tensor:
    """The scale of each element."""
    return dequantize(torch.ones_like(result.codes), result.scale, 0, result.scheme)


def _zero_points_of(result: Quantized) -> Tensor:
    """The zero point of each element."""
    ones, zero = torch.ones_like(result.scale), 0 if result.zero_point is None else result.zero_point
    return -dequantize(torch.zeros_like(result.codes), ones, zero, result.scheme)


def _like(val: Val, values: Tensor) -> Any:
    """Values in the type of another, as tensor or array."""
    if isinstance(val.value, Tensor):
        return values.to(val.value.dtype) if val.value.is_floating_point() else cast(values, val.value.dtype)
    return cast(values.numpy(), val.value.dtype)
