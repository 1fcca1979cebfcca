"""What a quantized tensor costs to store."""

import math
from dataclasses import dataclass

from quantcore.errors import QuantError
from quantcore.granularity import as_shape, block_shape, blocked_shape, grid_shape
from quantcore.scheme.scheme import Scheme, as_scheme
from quantcore.scheme.support import check_supported

# of a scale, and of a zero_point that is not a code (hqq)
_BITS = {"float32": 32, "float64": 64, "float16": 16, "bfloat16": 16}


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


def storage(scheme: Scheme | str, shape: tuple[int, ...]) -> Storage:
    """Count the bits of codes, scales and zero points.

    Codes take the format's width, or what the convention packs them into. Scales have the convention's dtype
    (of `Scheme.in_dtype`, the library's for x of that dtype), or are stored by ``scheme.scales``. Zero points
    take the format's width, or are stored like the scales if they are minima. Every block has one scale, even
    if it equals others. The zero points of a symmetric scheme are known and cost nothing; given ones
    (`Given`) cost nothing if all are 0 or all are the format's middle. For a tensor in a file (`Stored`), the
    file's own bytes are counted, with everything but codes as scales.

    >>> import quantcore as qc
    >>> qc.storage(qc.Scheme.parse("int4 per_group(32)"), (64, 128))
    Storage(elements=8192, codes=32768, scales=8192, zero_points=0)

    Raises:
        QuantError: the scheme does not fit the shape, or the shape has no elements.
    """
    scheme = as_scheme(scheme)
    shape = as_shape(shape)
    if any(n < 1 for n in shape):
        raise QuantError(f"A tensor of shape {shape} has no elements; every axis needs 1 or more.")
    check_supported(scheme, shape)
    grid = grid_shape(blocked_shape(scheme.granularity, shape), block_shape(scheme.granularity, shape))
    blocks = math.prod(grid)
    elements, bits = math.prod(shape), scheme.format.bits
    in_files = 8 * scheme.range_setting.num_bytes
    if in_files:
        codes = min(in_files, math.ceil(elements * bits))
        return Storage(elements, codes, in_files - codes, 0)
    codes = math.ceil(elements * (scheme.convention.decoding.code_bits or bits))
    float_bits = _BITS[scheme.rules.scale.scale_dtype]
    scales = blocks * float_bits if scheme.scales is None else _stored_scales(scheme.scales, grid, float_bits)
    if _knows_zero_points(scheme):
        zero_points = 0
    elif scheme.scales is not None and scheme.convention.zero_point.is_value:
        zero_points = scales
    else:
        zero_points = blocks * (bits if scheme.convention.zero_point.is_integer else float_bits)
    return Storage(elements, codes, scales, zero_points)


def _stored_scales(scales: Scheme, grid: tuple[int, ...], float_bits: int) -> int:
    """Return the bits of scales with a scheme of their own; ``float_bits``: of their mean."""
    inner = storage(scales, grid)
    bits = inner.codes
    if (
        not scales.range_setting.gives_parameters
    ):  # else part of the scheme: MX blocks store no scale of their scales
        bits += inner.scales + inner.zero_points
    return bits + float_bits * (scales.convention.scale.center == "mean")


def _knows_zero_points(scheme: Scheme) -> bool:
    """Whether all zero points are known without storing them: 0 or the format's middle."""
    given = set(scheme.range_setting.given_zero_points)
    return scheme.symmetric and (given <= {0} or given <= {scheme.format.middle})


def bits_per_element(scheme: Scheme | str, shape: tuple[int, ...]) -> float:
    """Return the storage cost in bits per element, including scales and zero points.

    >>> from quantcore.granularity import PerGroup
    >>> from quantcore.formats import INT4
    >>> bits_per_element(Scheme(INT4, granularity=PerGroup(32)), (64, 128))
    5.0
    """
    return storage(scheme, shape).bits_per_element


def compression_ratio(scheme: Scheme | str, shape: tuple[int, ...], original_bits: int = 32) -> float:
    """Return the size at ``original_bits`` per element over the quantized size.

    >>> import quantcore as qc
    >>> scheme = qc.Scheme.parse("int4 per_group(32)")
    >>> qc.compression_ratio(scheme, (64, 128)), qc.compression_ratio(scheme, (64, 128), original_bits=16)
    (6.4, 3.2)
    """
    return original_bits / bits_per_element(scheme, shape)
