"""Whether a finding is the culprit: its operation's result is replaced by the right one, the code evaluated again."""

import ast
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.pasted.case import Case
from quantcore.pasted.forms import divided
from quantcore.pasted.intended import intended_scheme
from quantcore.pasted.kinds import KINDS, CodeFinding
from quantcore.pasted.names import cast
from quantcore.pasted.quantizer import Chain, other, type_limits
from quantcore.pasted.trace import Override, Val, ancestors, numbers
from quantcore.pasted.walk import Given, evaluate
from quantcore.quantization import Quantized, apply_quietly, dequantize

_EQUAL = 0.98  # of the codes; ties may fall the other way
_MOST = 24  # quantizers of a loop that are checked


def confirmed(case: Case, found: list[CodeFinding], tree: ast.Module, given: list[Given]) -> list[CodeFinding]:
    """Return the findings; those whose repair does not give the intended codes are no longer certain.

    ``given``: what each of the case's quantizers was evaluated on, or the first of them.
    """
    places = {KINDS[f.kind].repair for f in found if f.certain} - {""}
    if not places:
        return found
    try:
        rights = [intended(case, c, tuple(g.x.shape)) for c, g in zip(case.chains, given, strict=False)]
        repaired = [_repaired(case, c, r, places, tree, g) for c, r, g in zip(case.chains, rights, given, strict=False)]
    except (QuantError, RuntimeError):
        return found  # no scheme gives such codes: the finding rests on what was measured
    if all(_agree(codes, numbers(right.codes)) for codes, right in zip(repaired, rights, strict=True)):
        return found
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


def _repaired(case: Case, chain: Chain, right: Quantized, places: set[str], tree: ast.Module, given: Given) -> Tensor:
    """The codes with all culprits repaired."""
    overrides = _overrides(case, chain, right, places)
    walk = evaluate(tree, given, overrides)
    stored = walk.trace.vals[chain.stored.index]
    fmt = right.scheme.format
    codes = numbers(stored.value).reshape(right.codes.shape)
    return codes if case.bounds or not isinstance(fmt, IntFormat) else codes.clamp(fmt.qmin, fmt.qmax)


def _overrides(case: Case, chain: Chain, right: Quantized, places: set[str]) -> dict[int, Override]:
    x = numbers(chain.data.value)
    scale = steps_of(right).double().reshape(x.shape)
    zero = _zero_points_of(right).double().reshape(x.shape)
    found: dict[int, Override] = {}
    shift = next((s for s in reversed(chain.steps) if s.op in ("add", "sub")), None)
    if "scale" in places or ("zero" in places and case.form.is_single) or ("zero" in places and right.scheme.symmetric):
        ratio, made = scale / chain.factor, divided(chain)
        if case.form.axis == -1 and not case.form.multiplied and made not in chain.scalings and float(ratio.max()) <= float(ratio.min()) * 1.001:
            turned = _is_inverse(chain, made)
            found[made.index] = lambda val: _like(val, numbers(val.value) * (1 / ratio.max() if turned else ratio.max()))
        else:
            found[chain.scalings[-1].index] = lambda val: _like(val, x / scale)
    if "round" in places or chain.round.op == "floor_divide":
        found[chain.round.index] = lambda val: _like(val, (x / scale if val.op == "floor_divide" else numbers(_flow(val).value)).round())
    if "zero" in places and shift is not None:
        found[shift.index] = lambda val: _like(val, numbers(_flow(val).value) + zero)
    elif "zero" in places:
        found[chain.round.index] = lambda val: _like(val, numbers(val.value) + zero)
    if "late" in places and chain.cast is not None:
        limits = type_limits(chain.cast.value) or (0, 0)
        codes = (numbers(chain.round.value) + chain.zero).clamp(*limits)
        found[chain.cast.index] = lambda val: _like(val, codes)
    if chain.cast is not None and chain.cast.flow is not None and ("cast" in places or "zero" in places):
        limits = type_limits(chain.cast.value) or (0, 0)
        found.setdefault(chain.cast.index, lambda val: cast(_like(_flow(val), numbers(_flow(val).value).clamp(*limits)), val.value.dtype))
    return found


def _is_inverse(chain: Chain, made: Val) -> bool:
    """Whether what was made of an extreme is 1 / scale."""
    return any(s.op == "mul" and made in ancestors(other(s)) for s in chain.scalings)


def _flow(val: Val) -> Val:
    """The data of an operation that is being added to the trace."""
    return val.flow or next(a for a in val.args if a.data)


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


def _agree(codes: Tensor, right: Tensor) -> bool:
    off = (codes - right).abs()
    return bool(float(off.max()) <= 1 and float(torch.eq(off, 0).double().mean()) >= _EQUAL)
