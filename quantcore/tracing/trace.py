"""One element from x to its error, each number as it was computed."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.conventions import KERNELS, Convention
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Region, block_bounds
from quantcore.numerics import Rounding, Stochastic, half_even, rounding
from quantcore.programs import ReadLine, code_program
from quantcore.quantization import Quantized, check_result, coded_with, convention_of
from quantcore.range_setting import Stored
from quantcore.scheme import Scheme
from quantcore.tracing.searches import searched
from quantcore.tracing.steps import Trace, is_bound
from quantcore.tracing.text import term

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
    check_result(result, "trace")
    shape, scheme, params = tuple(result.x.shape), result.computed, result.params
    at, blocked = _checked(index, shape), result.blocked_shape
    inside = at if blocked == shape else (int(np.ravel_multi_index(at, shape)) if at else 0,)
    position = tuple(i // b for i, b in zip(inside, result.block, strict=True))
    place = tuple(slice(p, p + 1) for p in position)
    convention = convention_of(scheme.rules, Region((), place, ()), scheme.granularity, blocked)
    code = int(result.codes[at])
    fields = {"s": "scale", "z": "zero_point"} | {name: name for name in ("low", "high", "raw", "replaced")}
    of_block = {name: getattr(params, field) for name, field in fields.items()}
    known = {name: None if p is None else p[place].item() for name, p in of_block.items()}
    mean = None if params.center is None else float(params.center)
    known |= {"x": float(result.x[at]), "mean": mean, "q": code, "replaced": bool(known["replaced"])}
    coding = _code_lines(result, known, at, place, convention)
    found, overflow = _coded(result, coding, known, convention)
    known |= found
    decoding = _value_lines(result, known, place)
    known["x̂"] = float(decoding[-1].value)
    with np.errstate(invalid="ignore", over="ignore"):
        error, last = np.float64(known["x"]) - np.float64(known["x̂"]), decoding[-1].value
        known["error"] = float(error if isinstance(last, np.float64) else np.float32(error))
    bounds, search = block_bounds(blocked, result.block, position), searched(result, position, inside)
    return Trace(at, scheme, convention, position, bounds, known, coding, decoding, overflow, search)


def _code_lines(
    result: Quantized, known: dict[str, Any], at: tuple[int, ...], place: Slices, convention: Convention
) -> tuple[ReadLine, ...]:
    """Read the lines from x to the code; adds the divisor, 1/s and zero point to what is known."""
    params, fmt, kernel = result.params, result.scheme.format, KERNELS[convention.coding.kernel]
    s, z = (_number(p[place]) for p in coded_with(params, result.computed))
    inverse = None if params.inverse is None or not kernel.inverse else _number(params.inverse[place])
    round_ = (
        _rounding_of(result, known["q"], 0.0 if kernel.shift_first else z)
        if fmt.has_zero_point
        else half_even
    )
    is_stored = params.raw is not None and params.inverse is None
    program = code_program(fmt, convention, stored=is_stored, round_=round_)
    terms = {"x": term("x", _number(result.x[at]), first=True), "s": term("s", s), "z": term("z", z)}
    absent = [] if known["mean"] is not None else ["mean"]
    if known["mean"] is not None:
        terms["mean"] = term("mean", known["mean"])
    if inverse is not None:
        terms["1/s"] = term("1/s", inverse)
    lines = program.readings(terms, absent)
    bound = {line.name: float(line.value) for line in lines}
    known |= {"divisor": bound.get("divisor", s), "shift": z, "1/s": bound.get("1/s", inverse)}
    return tuple(lines)


def _coded(
    result: Quantized, coding: tuple[ReadLine, ...], known: dict[str, Any], convention: Convention
) -> tuple[dict[str, Any], str | None]:
    """Return the numbers from the quotient to the code, and what became of a code that did not fit."""
    scheme, kernel, code = result.computed, KERNELS[convention.coding.kernel], known["q"]
    before = [line for line in coding if line.name == "u" and not is_bound(line)]
    quotient = float(before[kernel.subtracts].value)
    if kernel.fused:
        quotient = float(np.float32(known["x"]) * np.float32(known["1/s"]))
    found: dict[str, Any] = {
        "quotient": quotient,
        "summed": float(before[-1].value) if kernel.shift_first else None,
    }
    storage, is_zero = convention.storage, known["s"] == 0
    if storage.quantize_with == "searched" or (storage.zero_scale == "searched" and is_zero):
        return dict.fromkeys(("quotient", "rounded", "shifted"), float(code)) | {"summed": None}, "searched"
    if isinstance(scheme.format, IntFormat):
        rounded, *shifted = (float(line.value) for line in coding if line.name == "v")
        found |= {"rounded": rounded, "shifted": shifted[-1] if shifted else rounded}
        overflow = _overflow(found["shifted"], code, scheme)
    else:
        found |= dict.fromkeys(("rounded", "shifted"), float(scheme.format.table[code])) | {"summed": None}
        overflow = _outside(quotient, scheme)
    if isinstance(scheme.range_setting, Stored) and _differs(found, code, scheme):
        overflow = "stored"
    return found, overflow


def _value_lines(result: Quantized, known: dict[str, Any], place: Slices) -> tuple[ReadLine, ...]:
    """Read the lines from the code to x̂."""
    dequantizer, fmt = result.dequantizer, result.scheme.format
    q = known["q"] if isinstance(fmt, IntFormat) else float(fmt.table[known["q"]])
    terms = {
        "q": term("q", q, first=isinstance(fmt, IntFormat)),
        "s": term("s", _number(result.scale[place])),
    }
    given = {"z": _number(result.params.zero_point[place]), "mean": known["mean"]}
    if dequantizer.number is not None:
        given[dequantizer.name] = _number(dequantizer.number[place])
    absent = [name for name, value in given.items() if value is None]
    if not known["z"] and not result.computed.rules.zero_point.is_value:
        absent.append("z")
    terms |= {name: term(name, value) for name, value in given.items() if name not in absent}
    return tuple(dequantizer.program.readings(terms, absent))


def _number(tensor: Tensor) -> float:
    """Return a number, float64 if it is one of float64."""
    return np.float64(tensor.item()) if tensor.dtype == torch.float64 else float(tensor)


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
