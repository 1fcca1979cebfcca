"""Q2_K to Q6_K: super-blocks of 256 elements in 8 or 16 sub-blocks, whose scales and mins are themselves quantized."""

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.fields import Field, crumbs, half, nibbles
from quantcore.checkpoints.ggml.levels import Offset, product
from quantcore.checkpoints.ggml.planes import Axis, Plane


def _six_bits(name: str, byte: int, shift: int) -> Field:
    """The scale codes (or min codes) of Q4_K and Q5_K: eight numbers of 6 bits (ggml-quants.c, `get_scale_min_k4`).

    The first four are stored whole in the bytes from ``byte`` on. Of the other four, four bits are in the bytes from 12
    on, starting at bit ``shift``, and two are in the upper bits of the bytes of the first four.
    """
    four = (Axis(4, 1),)
    return Field(
        name, 8,
        (Plane(byte, four, 6), Plane(12, four, 4, first=4, shift=shift), Plane(byte, four, 2, 4, first=4, shift=6)),
    )  # fmt: skip


SCALE, MIN = product("d", "scale_code", "s"), product("dmin", "min_code", "m")
_HIGH_BITS = (
    Axis(8, bits=1),
    Axis(32, 1),
)  # sub-block i of 32 has its bits at position i of the same 32 bytes
_SCALES = (_six_bits("scale_code", 4, 0), _six_bits("min_code", 8, 4))
_SIXTEEN = (Axis(16, 1),)

Q2_K = BlockType(
    "Q2_K", 10, 256, 84,
    (
        Field("scale_code", 16, (Plane(0, _SIXTEEN, 4),)),
        Field("min_code", 16, (Plane(0, _SIXTEEN, 4, shift=4),)),
        Field("codes", 256, (crumbs(16),)),
        half("d", 80), half("dmin", 82),
    ),
    16, Offset(), SCALE, MIN,
)  # fmt: skip
Q3_K = BlockType(
    "Q3_K", 11, 256, 110,
    (
        Field("codes", 256, (crumbs(32), Plane(0, _HIGH_BITS, 1, at=2)), offset=4),
        Field(
            "scale_code", 16,
            (Plane(96, (Axis(2, bits=4), Axis(8, 1)), 4), Plane(104, (Axis(4, bits=2), Axis(4, 1)), 2, at=4)),
            offset=32,
        ),
        half("d", 108),
    ),
    16, Offset(), SCALE,
)  # fmt: skip
Q4_K = BlockType(
    "Q4_K", 12, 256, 144,
    (half("d", 0), half("dmin", 2), *_SCALES, Field("codes", 256, (nibbles(16, 32, 4),))),
    32, Offset(), SCALE, MIN,
)  # fmt: skip
Q5_K = BlockType(
    "Q5_K", 13, 256, 176,
    (
        half("d", 0), half("dmin", 2), *_SCALES,
        Field("codes", 256, (nibbles(48, 32, 4), Plane(16, _HIGH_BITS, 1, at=4))),
    ),
    32, Offset(), SCALE, MIN,
)  # fmt: skip
Q6_K = BlockType(
    "Q6_K", 14, 256, 210,
    (
        Field("codes", 256, (nibbles(0, 64, 2), crumbs(128, at=4)), offset=32),
        Field("scale_code", 16, (Plane(192, _SIXTEEN, 8),), "i"),
        half("d", 208),
    ),
    16, Offset(), SCALE,
)  # fmt: skip
