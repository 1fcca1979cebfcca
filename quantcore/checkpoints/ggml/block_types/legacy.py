"""Q4_0 to Q8_0 (blocks of 32 with one scale), and the newer Q1_0 and Q2_0."""

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.fields import Field, half, nibbles
from quantcore.checkpoints.ggml.levels import D, Offset, Table
from quantcore.checkpoints.ggml.planes import Axis, Plane
from quantcore.expressions import Name


def _fifth_bits(byte: int) -> Plane:
    """The fifth bits of 32 codes: a little-endian word of 32 bits, element 0 lowest."""
    return Plane(byte, (Axis(4, 1), Axis(8, bits=1)), 1, at=4)


Q4_0 = BlockType(
    "Q4_0", 2, 32, 18,
    (half("d", 0), Field("codes", 32, (nibbles(2, 16),))),
    32, Offset(8), D,
)  # fmt: skip
Q4_1 = BlockType(
    "Q4_1", 3, 32, 20,
    (half("d", 0), half("m", 2), Field("codes", 32, (nibbles(4, 16),))),
    32, Offset(), D, Name("m"), min_sign=1,
)  # fmt: skip
Q5_0 = BlockType(
    "Q5_0", 6, 32, 22,
    (half("d", 0), Field("codes", 32, (nibbles(6, 16), _fifth_bits(2)))),
    32, Offset(16), D,
)  # fmt: skip
Q5_1 = BlockType(
    "Q5_1", 7, 32, 24,
    (half("d", 0), half("m", 2), Field("codes", 32, (nibbles(8, 16), _fifth_bits(4)))),
    32, Offset(), D, Name("m"), min_sign=1,
)  # fmt: skip
Q8_0 = BlockType(
    "Q8_0", 8, 32, 34,
    (half("d", 0), Field("codes", 32, (Plane(2, (Axis(32, 1),), 8),), "i")),
    32, Offset(), D,
)  # fmt: skip
Q1_0 = BlockType(
    "Q1_0", 41, 128, 18,
    (half("d", 0), Field("codes", 128, (Plane(2, (Axis(16, 1), Axis(8, bits=1)), 1),))),
    128, Table((-1, 1)), D,
)  # fmt: skip
Q2_0 = BlockType(
    "Q2_0", 42, 64, 18,
    (half("d", 0), Field("codes", 64, (Plane(2, (Axis(16, 1), Axis(4, bits=2)), 2),))),
    64, Offset(1), D,
)  # fmt: skip
