"""One element from x to its error, each number as it was computed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention, Kernel
from quantcore.errors import QuantError
from quantcore.expressions import Expression, in_dtype, run
from quantcore.formats import IntFormat
from quantcore.granularity import Region, block_bounds
from quantcore.numerics import Rounding, Stochastic, half_even, rounding
from quantcore.programs import code_program, factor_of
from quantcore.qparams import decode
from quantcore.quantization import Quantized, coded_with, convention_of
from quantcore.range_setting import Stored
from quantcore.scheme import Scheme
from quantcore.tracing.searches import searched
from quantcore.tracing.steps import Trace

Slices = tuple[slice, ...]


def trace(result: Quantized, index: Sequence[int] | int) -> Trace:
    """Return the numbers of one element.

    >>> import quantcore as qc
    >>> result = qc.apply([[0.5, -1.0], [2.0, 0.1]], qc.Scheme(qc.INT4))
    >>> for step in qc.trace(result, (0, 0)).steps():
    ...     print(step.name, step.formula, step.value, sep=" | ")
    x |  | 0.5
    scale s | max|x| / 7 = 2 / 7 | 0.2857143
    zero point z | 0, symmetric and signed | 0
    x / s | 0.5 / 0.2857143 | 1.7499999
    round | round(1.7499999), half to even | 2
    code q (clamp) | clamp(2, -8, 7) | 2
    dequantized x̂ | 2 · 0.2857143 | 0.5714286
    error x - x̂ | 0.5 - 0.5714286 | -0.0714286

    Raises:
        QuantError: the index is not in the tensor.
    """
    shape, scheme, params = tuple(result.x.shape), result.computed, result.params
    at, blocked = _checked(index, shape), result.blocked_shape
    inside = at if blocked == shape else (int(np.ravel_multi_index(at, shape)) if at else 0,)
    position = tuple(i // b for i, b in zip(inside, result.block, strict=True))
    place = tuple(slice(p, p + 1) for p in position)
    record = scheme.rules
    convention = convention_of(record, Region((), place, ()), scheme.granularity, blocked)
    low, high, raw = (None if p is None else float(p[place]) for p in (params.low, params.high, params.raw))
    x, code = result.x[at].reshape(1), int(result.codes[at])
    numbers = _coded(result, x, code, place, convention)
    dequantizer = result.dequantizer.at(lambda number: number[place].reshape(1))
    z = params.zero_point[place].reshape(1).to(torch.float32)
    scale, stored = params.scale[place].reshape(1), result.codes[at].reshape(1)
    x_hat = decode(stored, scale, z if bool(z) else None, torch.empty(1), scheme.format, dequantizer)
    return Trace(
        index=at,
        scheme=scheme,
        convention=convention,
        block=position,
        bounds=block_bounds(blocked, result.block, position),
        low=low,
        high=high,
        x=float(x),
        scale=float(params.scale[place]),
        raw_scale=raw,
        zero_point=params.zero_point[place].item(),
        replaced=params.replaced is not None and bool(params.replaced[place]),
        **numbers,
        code=code,
        center=None if params.center is None else float(params.center),
        decoding={"1/s": "divided", "max|x|": "of_largest"}.get(dequantizer.name, "shifted" if record.zero_point.is_min else "scaled"),
        decoded_with=None if dequantizer.number is None else float(dequantizer.number),
        constant=dequantizer.program.constants["1/max"],
        dequantized=float(x_hat),
        error=float(x - x_hat),
        search=searched(result, position, inside),
    )


def _coded(result: Quantized, x: Tensor, code: int, place: Slices, convention: Convention) -> dict[str, Any]:
    """Compute the numbers from x to the code, in the order of the convention's kernel."""
    params, scheme, kernel = result.params, result.computed, KERNELS[convention.coding.kernel]
    scale, z = (p[place].reshape(1).to(torch.float32) for p in coded_with(params, scheme))
    inverse = None if params.inverse is None else params.inverse[place].reshape(1)
    zero = params.raw is not None and inverse is None
    program, of_scale = (code_program(scheme.format, convention, stored=stored) for stored in (zero, False))
    numbers = {"s": scale} if inverse is None else {"s": scale, "1/s": inverse}
    s = program.write(factor_of(program), numbers)
    coded_scale = s if not kernel.inverse else of_scale.write("divisor", numbers) if of_scale.binds("divisor") else scale
    operand = (x if params.center is None else x - params.center) / convention.scale.divisor
    integer = isinstance(scheme.format, IntFormat)
    round_ = _rounding_of(result, code, 0.0 if kernel.shift_first else float(z)) if integer else half_even
    found = replay(kernel, operand, s, z, round_, getattr(torch, convention.coding.coding_dtype))
    storage, is_zero = convention.storage, float(params.scale[place]) == 0
    if storage.quantize_with == "searched" or (storage.zero_scale == "searched" and is_zero):
        found |= dict.fromkeys(("quotient", "rounded", "shifted"), float(code))
        found |= {"operand": float(x), "summed": None, "overflow": "searched"}
    elif isinstance(scheme.format, IntFormat):
        found["overflow"] = _overflow(found["shifted"], code, scheme)
    else:
        found |= dict.fromkeys(("rounded", "shifted"), float(scheme.format.table[code]))
        found |= {"summed": None, "overflow": _outside(found["quotient"], scheme)}
    if isinstance(scheme.range_setting, Stored) and _differs(found, code, scheme):
        found["overflow"] = "stored"
    taken = float(s) if kernel.inverse else None
    return {"coded_scale": float(coded_scale), "shift": float(z), "factor": taken, **found}


def replay(
    kernel: Kernel,
    x: Tensor,
    s: Tensor,
    z: Tensor,
    round_: Rounding = half_even,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Return operand, quotient, summed, rounded and shifted of one element; ``s`` as the kernel takes it.

    Args:
        dtype: what each operation is rounded to.
    """
    numbers: dict[str, Any] = {name: np.float32(float(t)) for name, t in (("x", x), ("s", s), ("1/s", s), ("z", z))} | {"½": 0.5}

    def value(expression: Expression) -> float:
        return float(run(in_dtype(expression, dtype, {}), numbers))

    with np.errstate(all="ignore"):
        return {
            "operand": float(x),
            "quotient": value(kernel.divided),
            "summed": value(kernel.unrounded) if kernel.shift_first else None,
            "rounded": value(kernel.rounded(round_)),
            "shifted": value(kernel.code(round_)),
        }


def _rounding_of(result: Quantized, code: int, added: float) -> Rounding:
    """Return the rule that rounded one element; stochastic rounding is inferred from the code.

    ``added``: what is added to the rounded value to give the code.
    """
    rule = rounding(result.scheme.convention.coding.rounding)
    if not isinstance(rule, Stochastic):
        return rule

    def as_drawn(values: Tensor) -> Tensor:
        down = float(values.floor()) + added
        return values.floor_() if down >= code else values.ceil_()

    return as_drawn


def _overflow(shifted: float, code: int, scheme: Scheme) -> str | None:
    if shifted == code:
        return None
    within = scheme.format.qmin <= code <= scheme.format.qmax
    clamped = min(max(shifted, scheme.format.qmin), scheme.format.qmax) == code
    saturates = scheme.convention.coding.overflow == "saturate"
    if not (within and clamped if saturates else math.isfinite(shifted)):
        return "cast"
    return scheme.convention.coding.overflow


def _differs(found: dict[str, Any], code: int, scheme: Scheme) -> bool:
    """Tell whether rounding gives a different code from the one read from a file."""
    if isinstance(scheme.format, IntFormat):
        return bool(min(max(found["shifted"], scheme.format.qmin), scheme.format.qmax) != code)
    stored, rounded = found["rounded"], scheme.format.round_value(found["quotient"])
    return not (stored == rounded or (math.isnan(stored) and math.isnan(rounded)))


def _outside(quotient: float, scheme: Scheme) -> str | None:
    """Say how a quotient beyond the values of a float or a codebook is handled."""
    if not math.isfinite(quotient) and scheme.convention.nonfinite.cast == "low_bits":
        return "cast"
    least, most = scheme.format.bounds
    return None if math.isnan(quotient) or least <= quotient <= most else "saturate"


def _checked(index: Sequence[int] | int, shape: tuple[int, ...]) -> tuple[int, ...]:
    given: tuple[Any, ...] = tuple(index) if isinstance(index, Sequence) else (index,)
    integers = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in given)
    if (
        not integers
        or len(given) != len(shape)
        or any(not -n <= i < n for i, n in zip(given, shape, strict=True))
    ):
        raise QuantError(
            f"There is no element {given} in a tensor of shape {shape}; give one index per axis."
        )
    return tuple(int(i) % n for i, n in zip(given, shape, strict=True))
