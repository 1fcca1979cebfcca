"""The codes of a quantizer, recomputed from the parameters that were read; no line of the snippet is run."""

import torch
from torch import Tensor

from quantcore.code_reading.quantizer import SMALL, Quantizer
from quantcore.code_reading.values.python import DType, Num, Value
from quantcore.code_reading.values.quantities import Codes, Data, Op, Real, Stat, Steps
from quantcore.errors import QuantError
from quantcore.numerics import rounding

_MOST_CAST = 2.0**62  # casts of larger values to an integer are undefined


def codes_of(codes: Codes, x: Tensor, quantizer: Quantizer) -> Tensor:
    """Return the codes of x, recomputed step by step.

    Raises:
        QuantError: a value is unknown, or the code would fail on x.
    """
    scale = _broadcast(_value(codes.scale, x, quantizer), x, codes)
    values = _data(codes.data, x, quantizer)
    for op in codes.ops:
        match op.name:
            case "divide":
                values = (
                    values * scale
                    if codes.multiplied
                    else values * (1 / scale)
                    if codes.inverse
                    else values / scale
                )
            case "floor_divide":
                values = torch.floor_divide(values, scale)
            case "add":
                values = values + op.sign * _broadcast(_value(op.value, x, quantizer), x, codes)
            case "round":
                values = rounding(op.value)(values.clone())
            case "clamp":
                values = _clamped(values, op)
            case "cast":
                values = _cast(values, op.value)
            case _:
                raise QuantError(
                    f"Line {op.line} is not recognized, so the code's result on a tensor can't be computed."
                )
    return values


def _data(data: Data, x: Tensor, quantizer: Quantizer) -> Tensor:
    if data.twice is not None:
        first = Quantizer(data.twice.codes, data.twice, True)
        x = dequantized_values(first, codes_of(first.stored, x, first), x)
    x = x.abs() if data.absolute else x
    if data.low is not None or data.high is not None:
        x = x.clamp(data.low, data.high)
    for stat, factor in data.shift:
        x = x + factor * _stat(stat, x, quantizer)
    return x


def dequantized_values(quantizer: Quantizer, codes: Tensor, x: Tensor) -> Tensor:
    """Return x̂ as the code computes it, or (codes - zero point) · scale if it does not dequantize."""
    scale = _broadcast(_value(quantizer.codes.scale, x, quantizer), x, quantizer.codes)
    if quantizer.codes.of("unscaled"):
        return codes / scale
    values = codes
    if quantizer.dequantized is None:
        for op in quantizer.stored.of("add"):
            values = values - op.sign * _broadcast(_value(op.value, x, quantizer), x, quantizer.codes)
        return _unshifted(values * scale, quantizer, x)
    dtype: DType | None = quantizer.stored.dtype
    for op in quantizer.after:
        if op.name == "cast":
            dtype = None if op.value.floating else op.value
        elif op.name == "add":
            values = values + op.sign * _broadcast(_value(op.value, x, quantizer), x, quantizer.codes)
            integer = isinstance(op.value, Num) or (
                isinstance(op.value, Steps) and (op.value.python or op.value.dtype)
            )
            values = _cast(values, dtype) if dtype and integer else values
    values = values * scale
    for value, sign, _ in quantizer.dequantized.loose:
        values = values + sign * _broadcast(_value(value, x, quantizer), x, quantizer.codes)
    taken_off = {k for k, _ in quantizer.dequantized.left}
    if quantizer.codes.data.shift and not all(stat in taken_off for stat, _ in quantizer.codes.data.shift):
        values = _unshifted(values, quantizer, x)
    elif quantizer.zero and not taken_off and not any(op.name == "add" for op in quantizer.after):
        # the zero point is subtracted after scaling, in units of x
        zero = sum(
            op.sign * _broadcast(_value(op.value, x, quantizer), x, quantizer.codes)
            for op in quantizer.stored.of("add")
        )
        values = values - zero * scale
    return values


def _unshifted(values: Tensor, quantizer: Quantizer, x: Tensor) -> Tensor:
    for stat, factor in quantizer.codes.data.shift:
        values = values - factor * _stat(stat, x, quantizer)
    return values


def _clamped(values: Tensor, op: Op) -> Tensor:
    low, high = op.value
    if "?" in (low, high):
        raise QuantError(
            f"A bound of the clamp in line {op.line} is unknown, so the code's result on a tensor can't be computed."
        )
    return values.clamp(low, high) if (low, high) != (None, None) else values


def _cast(values: Tensor, dtype: DType) -> Tensor:
    """A cast keeps the lowest bits; wide integers and floats lose nothing."""
    if dtype.floating or dtype.bits > SMALL:
        return values
    integer = values.trunc().clamp(-_MOST_CAST, _MOST_CAST)
    return torch.remainder(integer.double() - dtype.low, 1 << dtype.bits).float() + dtype.low


def _value(value: Value, x: Tensor, quantizer: Quantizer) -> Tensor:
    """A scale or a zero point."""
    match value:
        case Num():
            return torch.tensor(float(value.value))
        case Real() if value.known:
            total = _sum(value, x, quantizer)
            return total.half().float() if value.half else total
        case Steps() if value.known:
            scale = _value(value.scale, x, quantizer)
            total = torch.tensor(float(value.const))
            for stat, factor in value.terms:
                total = total + factor * _stat(stat, x, quantizer) / scale
            total = rounding(value.rounding)(total.clone()) if value.rounding else total
            if value.clamped and quantizer.bounds:
                total = total.clamp(*quantizer.bounds)
            return _cast(total, value.dtype) if value.dtype and not value.python else total
    raise QuantError(
        "The code does not show the value of its scale or zero point, so its result on a tensor can't be computed."
    )


def _sum(value: Real, x: Tensor, quantizer: Quantizer) -> Tensor:
    """The sum; if all terms share a divisor it is divided last, as the code does: (high - low) / 255."""
    if not value.terms:
        return torch.tensor(value.const)
    factors = {abs(factor) for _, factor in value.terms}
    common = next(iter(factors)) if len(factors) == 1 else 1.0
    parts = [_stat(stat, x, quantizer) * (factor / common) for stat, factor in value.terms]
    total = sum(parts[1:], parts[0])
    return (total / (1 / common) if common < 1 else total * common) + value.const


def _stat(stat: Stat, x: Tensor, quantizer: Quantizer) -> Tensor:
    """An extreme of x, in the shape that it has in the code."""
    source = (
        _data(stat.data, x, quantizer)
        if stat.data.twice is not None
        else (x.abs() if stat.data.absolute or stat.absolute else x)
    )
    if stat.data.low is not None or stat.data.high is not None:
        source = source.clamp(stat.data.low, stat.data.high)
    layout = [how for how in stat.data.layout if not how.startswith("flatten")]
    if layout:
        return _cut(stat, layout, source)
    if stat.p is not None:
        found = _percentile(source, stat)
    else:
        axes = tuple(a for a in (stat.axes if stat.axes is not None else range(source.dim())))
        if any(not -source.dim() <= a < source.dim() for a in axes):
            raise QuantError(
                f"Line {stat.line}: the code reduces axis {', '.join(map(str, axes))}, which a tensor of shape {tuple(x.shape)} "
                "does not have; choose another tensor."
            )
        reduce = torch.amin if stat.end in ("min", "absmin", "low") else torch.amax
        found = reduce(source, axes, keepdim=stat.keepdim) if source.dim() else source
    found = found.abs() if stat.end == "absmin" else found
    if stat.zero:
        found = found.clamp(max=0) if stat.end in ("min", "low") else found.clamp(min=0)
    return _placed(found, stat)


def _percentile(source: Tensor, stat: Stat) -> Tensor:
    if stat.axes is not None or stat.p is None:
        raise QuantError(f"Line {stat.line}: percentiles along an axis can't be computed here.")
    rows = source.flatten().double().sort().values
    place = stat.p / 100 * (rows.numel() - 1)
    below, above = rows[int(place)], rows[min(int(place) + 1, rows.numel() - 1)]
    return (below + (above - below) * (place - int(place))).float()


def _cut(stat: Stat, layout: list[str], source: Tensor) -> Tensor:
    """The extremes of chunks or groups of x, spread over their elements."""
    how, _, where = layout[0].partition(":")
    numbers = [part.partition("=")[2] or part for part in where.split(",")]
    reduce = torch.amin if stat.end in ("min", "low") else torch.amax
    if len(layout) == 1 and stat.p is None and all(n.lstrip("-").isdigit() for n in numbers):
        sizes = [int(n) for n in numbers]
        if how == "chunk" and stat.axes is None and len(sizes) in (1, 2):
            axis = sizes[1] if len(sizes) == 2 else 0
            if -source.dim() <= axis < source.dim():
                parts = source.chunk(sizes[0], dim=axis)
                return torch.cat([reduce(p).expand_as(p) for p in parts], dim=axis)
        last = stat.axes in ((-1,), (1,)) and stat.keepdim
        if (
            how in ("view", "reshape")
            and last
            and len(sizes) == 2
            and sizes[0] == -1
            and source.shape[-1] % sizes[1] == 0
        ):
            groups = source.reshape(-1, sizes[1])
            return reduce(groups, -1, keepdim=True).expand_as(groups).reshape(source.shape)
    raise QuantError(
        "The code reshapes the tensor in a way that can't be shown here; the findings still hold."
    )


def _placed(found: Tensor, stat: Stat) -> Tensor:
    for step in stat.placed.split():
        how, _, where = step.partition(":")
        try:
            sizes = [int(n) for n in where.split(",") if n]
            if how in ("unsqueeze", "expand_dims"):
                found = found.unsqueeze(*sizes)
            elif how in ("view", "reshape"):
                found = found.reshape(sizes)
            else:
                raise ValueError(how)
        except (RuntimeError, ValueError, IndexError, TypeError):
            raise QuantError(
                f"Line {stat.line}: the code reshapes the scales in a way that can't be shown on this tensor."
            ) from None
    return found


def _broadcast(values: Tensor, x: Tensor, codes: Codes) -> Tensor:
    """The values broadcast to x as PyTorch does."""
    try:
        return torch.broadcast_to(values, x.shape)
    except RuntimeError:
        raise QuantError(
            f"Line {codes.ops[0].line}: on a tensor of shape {tuple(x.shape)} this code fails, because the scales have shape "
            f"{tuple(values.shape)}; choose a square tensor to see what it does silently."
        ) from None
