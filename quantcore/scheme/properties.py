"""Properties of a scheme, by which conventions say what libraries support and on what choices depend."""

import math
from collections.abc import Callable
from typing import Any

from quantcore.conventions import SchemeFacts
from quantcore.granularity import PerBlock, PerChannel, PerFlatGroup, PerGroup, block_shape, blocked_shape
from quantcore.notation import snake_case, write_call
from quantcore.range_setting import Given
from quantcore.scheme.scheme import Scheme
from quantcore.wording import count

Shape = tuple[int, ...]
# A property of a scheme on a shape: its equivalent values, and a phrase for them; None if it does not apply
Property = Callable[[Scheme, Shape], tuple[tuple[Any, ...], str] | None]


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
    if not scheme.range_setting.searches_codes:
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
        f"{write_call(granularity)} is longer than axis {axis}: {size} elements, but the axis has "
        f"{shape[axis]}, shape {shape}. Choose at most {shape[axis]}"
    )


def _block_elements(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    one = math.prod(block_shape(scheme.granularity, shape)) == 1
    return (("one",) if one else ("more",), "every block has one element") if math.prod(shape) > 1 else None


def _sub_byte_range(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    if scheme.format.bits >= 8:
        return None
    return (
        scheme.range_setting.ends_are_elements,
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
    place = granularity.axis % len(shape)
    return (place, place - len(shape)), f"the axis is {granularity.axis}"


def _group_size(scheme: Scheme, shape: Shape) -> tuple[tuple[Any, ...], str] | None:
    granularity = scheme.granularity
    if not isinstance(granularity, PerGroup):
        return None
    return (granularity.size,), f"the groups have {count(granularity.size, 'element')}"


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
    "group_size": _group_size,
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
# those that neither granularity nor shape changes
OF_FORMAT = frozenset({"bits", "kind", "narrow", "symmetric_narrow", "asymmetric_narrow"})


def facts_of(scheme: Scheme) -> SchemeFacts:
    """Return the plain values from which the sentences and formulas of a convention are computed."""
    setting, stored = scheme.range_setting, scheme.scales
    return SchemeFacts(
        rules=scheme.rules,
        fmt=scheme.format,
        symmetric=scheme.symmetric,
        flat=isinstance(scheme.granularity, PerFlatGroup),
        ranged=not setting.gives_parameters,
        min_max=setting.ends_are_elements,
        half_quadratic=setting.moves_zero_point,
        searched=setting.searches_codes,
        scales=setting.given_scales,
        zero_points=setting.given_zero_points,
        stored=None if stored is None else stored.format,
        stored_in_units=stored is not None and stored.range_setting == Given(1.0),
    )
