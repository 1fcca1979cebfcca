"""What a quantized tensor costs to store."""

import math
from dataclasses import dataclass

from quantcore.errors import QuantError
from quantcore.granularity import block_shape, blocked_shape, grid_shape
from quantcore.range_setting import Given, Stored
from quantcore.scheme.properties import numbers_in
from quantcore.scheme.scheme import Scheme
from quantcore.scheme.support import check_supported

_BITS = {"float32": 32, "float64": 64, "float16": 16, "bfloat16": 16}  # of a scale, and of a zero_point that is not a code (hqq)


@dataclass(frozen=True)
class Storage:
    """Bits spent on the codes, scales and zero points of a tensor with ``elements`` elements."""

    elements: int
    codes: int
    scales: int
    zero_points: int

    @property
    def bits_per_element(self) -> float:
        """Total bits per element."""
        return (self.codes + self.scales + self.zero_points) / self.elements


def storage(scheme: Scheme, shape: tuple[int, ...]) -> Storage:
    """Count the bits of codes, scales and zero points.

    Codes take the format's width, or what the convention packs them into. Scales have the convention's dtype (of
    `Scheme.in_dtype`, the library's for x of that dtype), or are stored by ``scheme.scales``. Zero points take the format's width, or are stored like the scales if they are minima.
    Every block has one scale, even if it equals others. The zero points of a symmetric scheme are known and
    cost nothing; given ones (`Given`) cost nothing if all are 0 or all are the format's middle. For a tensor
    in a file (`Stored`), the file's own bytes are counted, with everything but codes as scales.

    Raises:
        QuantError: the scheme does not fit the shape, or the shape has no elements.
    """
    shape = tuple(shape)
    if any(n < 1 for n in shape):
        raise QuantError(f"A tensor of shape {shape} has no elements; every axis needs 1 or more.")
    check_supported(scheme, shape)
    grid = grid_shape(blocked_shape(scheme.granularity, shape), block_shape(scheme.granularity, shape))
    blocks = math.prod(grid)
    elements, bits = math.prod(shape), scheme.format.bits
    setting = scheme.range_setting
    if isinstance(setting, Stored) and setting.num_bytes:
        total = 8 * setting.num_bytes
        codes = min(total, math.ceil(elements * bits))
        return Storage(elements, codes, total - codes, 0)
    typed = set(numbers_in(setting.zero_point)) if isinstance(setting, Given) else set()
    free = not scheme.symmetric or not any(typed <= {known} for known in (0, scheme.format.middle))
    packed = scheme.convention.decoding.code_bits or bits
    float_bits = _BITS[scheme.rules.scale.scale_dtype]
    zero_point_bits = blocks * (bits if scheme.convention.zero_point.is_integer else float_bits)
    scale_bits = blocks * float_bits
    if scheme.scales is not None:
        inner = storage(scheme.scales, grid)
        # a given scale of the scales is part of the scheme and not stored: MX blocks have none
        given = scheme.scales.range_setting.gives_parameters
        scale_bits = inner.codes + (0 if given else inner.scales + inner.zero_points)
        if scheme.scales.convention.scale.center == "mean":
            scale_bits += float_bits
        if scheme.convention.zero_point.is_min:
            zero_point_bits = scale_bits
    return Storage(elements, math.ceil(elements * packed), scale_bits, zero_point_bits if free else 0)


def bits_per_element(scheme: Scheme, shape: tuple[int, ...]) -> float:
    """Return the storage cost in bits per element, including scales and zero points.

    >>> from quantcore.granularity import PerGroup
    >>> from quantcore.formats import INT4
    >>> bits_per_element(Scheme(INT4, granularity=PerGroup(32)), (64, 128))
    5.0
    """
    return storage(scheme, shape).bits_per_element


def compression_ratio(scheme: Scheme, shape: tuple[int, ...], original_bits: int = 32) -> float:
    """Return the size at ``original_bits`` per element over the quantized size."""
    return original_bits / bits_per_element(scheme, shape)
