"""Which schemes a library supports, and why it does not support the others."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from quantcore.conventions import Convention, Limit
from quantcore.errors import QuantError
from quantcore.formats import MAX_BITS, MIN_BITS, CodebookFormat, FloatFormat, Format, IntFormat
from quantcore.granularity import (
    Granularity,
    PerChannel,
    PerGroup,
    PerTensor,
    block_shape,
)
from quantcore.notation import write_call
from quantcore.numerics import as_float32, as_floats
from quantcore.range_setting import Search
from quantcore.scheme.properties import OF_FORMAT, PROPERTIES, Shape
from quantcore.scheme.scheme import Scheme, as_scheme

# The kinds of format as `Convention.formats` names them
KINDS: dict[type[Format], str] = {IntFormat: "int", FloatFormat: "float", CodebookFormat: "codebook"}
_KIND_WORDS = {"int": "integer codes", "float": "small floats", "codebook": "codebooks"}


def unsupported_reason(scheme: Scheme | str, shape: Shape, dtype: torch.dtype = torch.float32) -> str | None:
    """Return a sentence on why the scheme's library can't quantize x of this shape and dtype; None if it can.

    >>> import quantcore as qc
    >>> qc.unsupported_reason(qc.Scheme.parse("int8 per_tensor gguf.Q8_0"), (8, 16))
    'gguf.Q8_0 (gguf 0.19.0) uses one scale per group within a row; here the granularity is per_tensor.'

    Raises:
        QuantError: the granularity does not fit the shape.
    """
    scheme = as_scheme(scheme)
    block_shape(scheme.granularity, shape)
    convention = scheme.convention
    if not scheme.format.has_zero_point and not scheme.symmetric:
        return f"{scheme.format} has no zero_point, so it can't be asymmetric; choose symmetric."
    reason = _zero_point_reason(scheme)
    if reason:
        return reason
    if scheme.range_setting.moves_zero_point:
        if scheme.symmetric or convention.scale.asymmetric_scale != "inverse_range":
            return (
                "half_quadratic adjusts a zero point in floating point, and only hqq's asymmetric schemes "
                "have one; choose hqq and asymmetric."
            )
        if isinstance(scheme.granularity, PerTensor):
            return "half_quadratic needs per-channel or per-group scales, as in hqq; choose one of these."
    if KINDS[type(scheme.format)] not in convention.formats:
        own = " and ".join(_KIND_WORDS[kind] for kind in convention.formats)
        return f"{full_name(convention)} supports {own} only; here the format is {scheme.format}."
    for limit in convention.limits:
        found = _beyond(limit, scheme, shape)
        if found:
            return f"{full_name(convention)} {limit.words}; here {found}."
    if isinstance(scheme.range_setting, Search):
        needed = _search_needs(scheme, scheme.range_setting, shape)
        return f"{write_call(scheme.range_setting)} {needed}." if needed else None
    return _dtype_reason(convention, dtype)


def _dtype_reason(convention: Convention, dtype: torch.dtype) -> str | None:
    name, refused = str(dtype).removeprefix("torch."), dict(convention.refused_dtypes)
    if name not in refused:
        return None
    remedy = "convert x to another dtype, such as float32."
    return f'{full_name(convention)} does not support {name}: "{refused[name]}"; {remedy}'


def _zero_point_reason(scheme: Scheme) -> str:
    """Why a zero point or a minimum does not suit the scheme; empty if it does."""
    convention = scheme.convention
    if not scheme.format.has_zero_point and any(scheme.range_setting.given_zero_points):
        return f"{scheme.format} has no zero_point; give only the scale."
    middle = scheme.format.middle if isinstance(scheme.format, IntFormat) else 0
    if scheme.symmetric and convention.zero_point.is_middle:
        return f"{full_name(convention)} stores the value of the middle code of a range; choose asymmetric."
    if scheme.symmetric and convention.zero_point.is_min and middle:
        return (
            f"{full_name(convention)} stores the minimum of each block, which the middle of {scheme.format} "
            "is not; choose asymmetric, or signed codes."
        )
    stores = scheme.scales.format if scheme.scales is not None and convention.zero_point.is_value else None
    if isinstance(stores, FloatFormat) and 0.0 not in stores.values:
        return (
            f"{full_name(convention)} stores the minimum of each block beside its scale, and {stores} has "
            "neither 0 nor negative numbers; choose scales in fp16, say."
        )
    return ""


def unsupported_format(scheme: Scheme) -> bool:
    """Return whether format and symmetry alone rule the scheme out, whatever granularity and shape are."""
    convention, fmt = scheme.convention, scheme.format
    if KINDS[type(fmt)] not in convention.formats or not (fmt.has_zero_point or scheme.symmetric):
        return True
    return any(_beyond(limit, scheme, ()) for limit in convention.limits if limit.of in OF_FORMAT)


def _beyond(limit: Limit, scheme: Scheme, shape: Shape) -> str:
    """Return the phrase for a property that is beyond the library's limit; empty if it is within."""
    found = PROPERTIES[limit.of](scheme, shape)
    return "" if found is None or set(found[0]) & set(limit.allowed) else found[1]


def _search_needs(scheme: Scheme, setting: Search, shape: Shape) -> str:
    """Return what one of ggml's searches needs that the scheme lacks; empty if nothing."""
    granularity = scheme.granularity
    if not isinstance(granularity, PerGroup) or granularity.axis % max(len(shape), 1) != len(shape) - 1:
        return "searches groups along the last axis; choose per_group"
    if shape[-1] % granularity.size:
        return f"searches whole groups, but {shape[-1]} elements are not a multiple of {granularity.size}"
    needed, fits = setting.CODES
    if not fits(scheme.format, scheme.symmetric):
        return f"needs {needed}"
    if not scheme.symmetric and not scheme.rules.zero_point.is_min:
        return "needs a convention that stores minima, such as gguf.Q4_K"
    over = getattr(setting, "over", 0)  # 0: over the row
    if not (over and setting.weight.mean) or shape[-1] % over == 0:
        return ""
    return f"averages over {over} elements, but rows have {shape[-1]}, which is not a multiple"


def full_name(convention: Convention) -> str:
    """``torchao.no_clipping_err (torchao 0.18.0)``."""
    if not convention.version:
        return f"The {convention.name} convention"
    return f"{convention.name} ({convention.library} {convention.version})"


def check_supported(scheme: Scheme, shape: Shape) -> None:
    """Raise the sentence of `unsupported_reason`, if any.

    Raises:
        QuantError: the library does not support the scheme, or the granularity does not fit the shape.
    """
    sentence = unsupported_reason(scheme, shape)
    if sentence:
        raise QuantError(sentence)


def received(
    x: Any, scheme: Scheme | str, dtype: torch.dtype | None = None
) -> tuple[Tensor, Scheme, torch.dtype]:
    """Return x as numbers to compute with, the scheme in x's dtype (`Scheme.in_dtype`), and that dtype.

    `accepted`, with x of 16 bits as float32 numbers.
    """
    x, own, dtype = accepted(x, scheme, dtype)
    return x if x.dtype == torch.float64 else x.float(), own, dtype


def accepted(
    x: Any, scheme: Scheme | str, dtype: torch.dtype | None = None
) -> tuple[Tensor, Scheme, torch.dtype]:
    """Return x as its library takes it, the scheme in x's dtype (`Scheme.in_dtype`), and that dtype.

    float64 becomes float32, unless the library computes in it; ``dtype``: of x, if it holds float32 numbers
    of the same value already.

    Raises:
        QuantError: x is not an array of numbers, or the scheme's library refuses its dtype.
    """
    scheme = as_scheme(scheme)
    x = as_floats(x)
    dtype = dtype or x.dtype
    own = in_dtype(scheme, dtype)
    wide = own.rules.coding.coding_dtype == "float64" and dtype == torch.float64
    return x.to(torch.float64) if wide else x if x.itemsize == 2 else as_float32(x), own, dtype


def in_dtype(scheme: Scheme, dtype: torch.dtype) -> Scheme:
    """Return `Scheme.in_dtype`.

    Raises:
        QuantError: the scheme's library refuses the dtype.
    """
    refused = _dtype_reason(scheme.convention, dtype)
    if refused:
        raise QuantError(refused)
    return scheme.in_dtype(dtype)


def nearest_supported(scheme: Scheme | str, shape: Shape) -> Scheme | None:
    """Return the nearest scheme that its library supports: the fewest changes, then the nearest bit width.

    The scheme itself if it is supported; None if no change of format, symmetry and granularity helps.

    >>> import quantcore as qc
    >>> scheme = qc.Scheme.parse("int4 asymmetric per_channel(0) bitsandbytes.int8_vectorwise")
    >>> str(qc.nearest_supported(scheme, (64, 128)))
    'int8 symmetric per_channel min_max bitsandbytes.int8_vectorwise'

    Raises:
        QuantError: the granularity does not fit the shape.
    """
    scheme = as_scheme(scheme)
    if unsupported_reason(scheme, shape) is None:
        return scheme
    if not scheme.format.has_zero_point:
        other = dataclasses.replace(scheme, symmetric=True)
        return other if unsupported_reason(other, shape) is None else None
    fmt = scheme.format
    widths = sorted(range(MIN_BITS, MAX_BITS + 1), key=lambda bits: (abs(bits - fmt.bits), bits))
    candidates = [
        Scheme(
            IntFormat(bits, signed, narrow), symmetric, granularity, scheme.range_setting, scheme.convention
        )
        for granularity in _near(scheme.granularity, shape)
        for symmetric in (scheme.symmetric, not scheme.symmetric)
        for narrow in (fmt.narrow, not fmt.narrow)
        for signed in (fmt.signed, not fmt.signed)
        for bits in widths
    ]

    def changes(candidate: Scheme) -> tuple[int, int]:
        other = candidate.format
        pairs = (
            (other.signed, fmt.signed),
            (other.narrow, fmt.narrow),
            (candidate.symmetric, scheme.symmetric),
            (candidate.granularity, scheme.granularity),
            (other.bits, fmt.bits),
        )
        return sum(a != b for a, b in pairs), abs(other.bits - fmt.bits)

    # sorted is stable: the nearest granularity first
    return next((c for c in sorted(candidates, key=changes) if unsupported_reason(c, shape) is None), None)


def _near(granularity: Granularity, shape: Shape) -> list[Granularity]:
    """Return the granularity, then others from the nearest to the farthest."""
    found: list[Granularity] = [granularity]
    if isinstance(granularity, PerGroup) and shape:
        for axis in (granularity.axis, -1):
            n = shape[axis]
            divisors = [size for size in range(1, n + 1) if n % size == 0]
            found += [
                PerGroup(s, axis) for s in sorted(divisors, key=lambda s: abs(s - granularity.size))[:3]
            ]
    if not isinstance(granularity, PerTensor) and shape:
        found += [PerChannel(0), PerChannel(-1)]
    return [*found, PerTensor(), *([PerChannel(0)] if shape else [])]
