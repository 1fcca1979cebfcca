"""Which schemes a library supports, and why it does not support the others."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from quantcore.conventions import Convention
from quantcore.errors import QuantError
from quantcore.formats import MAX_BITS, MIN_BITS, CodebookFormat, FloatFormat, Format, IntFormat
from quantcore.granularity import (
    Granularity,
    PerBlock,
    PerChannel,
    PerFlatGroup,
    PerGroup,
    PerTensor,
    block_shape,
    blocked_shape,
)
from quantcore.notation import snake_case, write_call
from quantcore.range_setting import HalfQuadratic, MinMax, Search
from quantcore.scheme.scheme import Scheme

Shape = tuple[int, ...]
# A property of a scheme on a shape: its equivalent values, and a phrase for them; None if it does not apply
Property = Callable[[Scheme, Shape], tuple[tuple[Any, ...], str] | None]


# The kinds of format as `Convention.formats` names them
KINDS: dict[type[Format], str] = {IntFormat: "int", FloatFormat: "float", CodebookFormat: "codebook"}
_KIND_WORDS = {"int": "integer codes", "float": "small floats", "codebook": "codebooks"}


def unsupported_reason(scheme: Scheme, shape: Shape) -> str | None:
    """Return one sentence on why the scheme's library can't quantize this shape, or None if it can.

    Raises:
        QuantError: the granularity does not fit the shape.
    """
    block_shape(scheme.granularity, shape)
    convention = scheme.convention
    if not scheme.format.has_zero_point and not scheme.symmetric:
        return f"{scheme.format} has no zero_point, so it can't be asymmetric; choose symmetric."
    if isinstance(scheme.range_setting, HalfQuadratic):
        if scheme.symmetric or convention.scale.asymmetric_scale != "inverse_range":
            return "half_quadratic adjusts a float zero_point: it needs an asymmetric scheme; choose the convention hqq."
        if isinstance(scheme.granularity, PerTensor):
            return "half_quadratic needs per-channel or per-group scales, as in hqq; choose one of these."
    if KINDS[type(scheme.format)] not in convention.formats:
        own = " and ".join(_KIND_WORDS[kind] for kind in convention.formats)
        return f"{full_name(convention)} supports {own} only; here the format is {scheme.format}."
    for limit in convention.limits:
        found = PROPERTIES[limit.of](scheme, shape)
        if found and not set(found[0]) & set(limit.allowed):
            return f"{full_name(convention)} {limit.words}; here {found[1]}."
    if isinstance(scheme.range_setting, Search):
        needed = _search_needs(scheme, scheme.range_setting, shape)
        return f"{write_call(scheme.range_setting)} {needed}." if needed else None
    return None


def _search_needs(scheme: Scheme, setting: Search, shape: Shape) -> str:
    """What one of ggml's searches needs that the scheme lacks; empty if nothing."""
    granularity = scheme.granularity
    if not isinstance(granularity, PerGroup) or granularity.axis % max(len(shape), 1) != len(shape) - 1:
        return "searches groups along the last axis; choose per_group"
    if shape[-1] % granularity.size:
        return f"searches whole groups, but {shape[-1]} elements are not a multiple of {granularity.size}"
    fits = setting.kinds(scheme.format, scheme.symmetric)
    if not fits and not scheme.symmetric and not scheme.rules.zero_point.is_min:
        fits = "a convention that stores minima, such as gguf.Q4_K"
    if fits:
        return f"needs {fits}"
    over = setting.weighting.mean_over
    if not over or shape[-1] % over == 0:
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


def _bits(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    return (scheme.format.bits,), f"the format is {scheme.format}"


def _kind(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    sign = "signed" if scheme.format.signed else "unsigned"
    symmetry = "symmetric" if scheme.symmetric else "asymmetric"
    return (f"{sign} {symmetry}",), f"the scheme is {scheme.format} {symmetry}"


def _narrow(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    return (scheme.format.narrow,), f"the format is {scheme.format}"


def _granularity(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    return (
        snake_case(type(scheme.granularity).__name__),
    ), f"the granularity is {write_call(scheme.granularity)}"


def _axis(axis: int, rank: int) -> tuple[tuple[Any, ...], str]:
    place = axis % rank
    return (place, place - rank), f"the axis is {axis}"


def _divides(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    block, shape = list(block_shape(scheme.granularity, shape)), blocked_shape(scheme.granularity, shape)
    if isinstance(scheme.granularity, PerFlatGroup):
        block = [scheme.granularity.size]
    if isinstance(scheme.granularity, PerGroup):
        block[scheme.granularity.axis] = scheme.granularity.size  # even if longer than the axis
    fits = all(n % b == 0 for n, b in zip(shape, block, strict=True))
    return (fits,), f"blocks of shape {tuple(block)} do not divide the shape {shape}"


def _divides_or_whole(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    fits, words = _divides(scheme, shape)
    one = block_shape(scheme.granularity, shape) == blocked_shape(scheme.granularity, shape)
    return (True,) if one else fits, words


def _search(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    if not isinstance(scheme.range_setting, Search):
        return (False,), f"the range setting is {write_call(scheme.range_setting)}"
    return (scheme.scales is not None,), "the scales are float32"


def _super_blocks(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    granularity, inner = scheme.granularity, scheme.scales
    if inner is None or not isinstance(granularity, PerGroup) or not isinstance(inner.granularity, PerGroup):
        return None
    size = granularity.size * inner.granularity.size
    return (shape[-1] % size == 0,), f"rows have {shape[-1]} elements, not a multiple of {size}"


def _group_length(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    granularity = scheme.granularity
    assert isinstance(granularity, PerGroup)
    axis, size = granularity.axis % len(shape), granularity.size
    return (size <= shape[axis],), (
        f"{write_call(granularity)} is longer than axis {axis}: {size} elements, but the axis has {shape[axis]}, "
        f"shape {shape}. Choose at most {shape[axis]}"
    )


def _block_elements(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    one = math.prod(block_shape(scheme.granularity, shape)) == 1
    return (("one",) if one else ("more",), "every block has one element") if math.prod(shape) > 1 else None


def _sub_byte_range(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    if scheme.format.bits >= 8:
        return None
    return (
        isinstance(scheme.range_setting, MinMax),
    ), f"the range setting is {write_call(scheme.range_setting)}"


def _rank(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str]:
    return (len(shape),), f"the tensor has {len(shape)} {'axis' if len(shape) == 1 else 'axes'}"


def _only(kind: type, then: Property) -> Property:
    """Restrict a property to schemes of one granularity."""
    return lambda scheme, shape: then(scheme, shape) if isinstance(scheme.granularity, kind) else None


def _axis_of(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    granularity = scheme.granularity
    if not isinstance(granularity, PerChannel | PerGroup) or not shape:
        return None
    return _axis(granularity.axis, len(shape))


PROPERTIES: dict[str, Property] = {
    "bits": _bits,
    "kind": _kind,
    "narrow": _narrow,
    "granularity": _granularity,
    "divides": _divides,
    "divides_or_whole": _divides_or_whole,
    "rank": _rank,
    "channel_axis": _only(PerChannel, _axis_of),
    "channel_rank": _only(PerChannel, _rank),
    "group_axis": _only(PerGroup, _axis_of),
    "group_bits": _only(PerGroup, _bits),
    "block_elements": _block_elements,
    "sub_byte_range": _sub_byte_range,
    "search": _search,
    "super_blocks": _super_blocks,
    "group_length": _only(PerGroup, _group_length),
    "group_divides": _only(PerGroup, _divides),
    "group_rank": _only(PerGroup, _rank),
    "block_rank": _only(PerBlock, _rank),
    "symmetric_narrow": lambda scheme, shape: _narrow(scheme, shape) if scheme.symmetric else None,
    "asymmetric_narrow": lambda scheme, shape: None if scheme.symmetric else _narrow(scheme, shape),
}


def nearest_supported(scheme: Scheme, shape: Shape) -> Scheme | None:
    """Return the nearest scheme that its library supports: the fewest changes, then the nearest bit width.

    The scheme itself if it is supported; None if no change of format, symmetry and granularity helps.

    Raises:
        QuantError: the granularity does not fit the shape.
    """
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
        pairs = ((other.signed, fmt.signed), (other.narrow, fmt.narrow), (candidate.symmetric, scheme.symmetric),
                 (candidate.granularity, scheme.granularity), (other.bits, fmt.bits))  # fmt: skip
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
