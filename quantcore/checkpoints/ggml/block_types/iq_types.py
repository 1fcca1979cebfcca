"""IQ4_NL and IQ4_XS (tables), IQ2_XXS to IQ3_S (signed grids), IQ1_S and IQ1_M (shifted grids)."""

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.fields import Field, half, nibbles
from quantcore.checkpoints.ggml.grids import STEPS, ShiftedGrid, SignedGrid
from quantcore.checkpoints.ggml.levels import D, Table, product, stepped
from quantcore.checkpoints.ggml.planes import Axis, Plane

_IQ4 = Table((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))  # kvalues_iq4nl


def _bytes(byte: int, count: int, at: int = 0) -> Plane:
    return Plane(byte, (Axis(count, 1),), 8, at)


def _nibble_pairs(byte: int, count: int, bits: int = 4, at: int = 0, shift: int = 0) -> Plane:
    """Two entries per byte, the first in the low nibble: ``bits`` bits of each nibble, from bit ``shift`` on."""
    return Plane(byte, (Axis(count // 2, 1), Axis(2, bits=4)), bits, at, shift=shift)


def _sevens(byte: int, step: int) -> Field:
    """Four numbers of 7 bits in each of eight 32-bit words, ``step`` bytes apart."""
    return Field("sign_index", 32, (Plane(byte, (Axis(8, step), Axis(4, bits=7)), 7, word=4),))


def _top_nibbles(byte: int, step: int) -> Field:
    """The highest four bits of the same words."""
    return Field("scale_code", 8, (Plane(byte, (Axis(8, step),), 4, shift=28, word=4),))


IQ4_NL = BlockType(
    "IQ4_NL", 20, 32, 18,
    (half("d", 0), Field("codes", 32, (nibbles(2, 16),))),
    32, _IQ4, D,
)  # fmt: skip
IQ4_XS = BlockType(
    "IQ4_XS", 23, 256, 136,
    (
        half("d", 0),
        Field(
            "scale_code", 8, (_nibble_pairs(4, 8), Plane(2, (Axis(2, 1), Axis(4, bits=2)), 2, at=4)), offset=32
        ),
        Field("codes", 256, (nibbles(8, 16, 8),)),
    ),
    32, _IQ4, product("d", "scale_code", "s"),
)  # fmt: skip
IQ2_XXS = BlockType(
    "IQ2_XXS", 16, 256, 66,
    (
        half("d", 0), Field("grid_index", 32, (Plane(2, (Axis(8, 8), Axis(4, 1)), 8),)),
        _sevens(6, 8), _top_nibbles(6, 8),
    ),
    32, SignedGrid("IQ2_XXS", "sign_index"), stepped(0.5, 1, 0.25),
)  # fmt: skip
IQ2_XS = BlockType(
    "IQ2_XS", 17, 256, 74,
    (
        half("d", 0),
        Field("grid_index", 32, (Plane(2, (Axis(32, 2),), 9, word=2),)),
        Field("sign_index", 32, (Plane(2, (Axis(32, 2),), 7, shift=9, word=2),)),
        Field("scale_code", 16, (_nibble_pairs(66, 16),)),
    ),
    16, SignedGrid("IQ2_XS", "sign_index"), stepped(0.5, 1, 0.25),
)  # fmt: skip
IQ2_S = BlockType(
    "IQ2_S", 22, 256, 82,
    (
        half("d", 0),
        Field("grid_index", 32, (_bytes(2, 32), Plane(66, (Axis(8, 1), Axis(4, bits=2)), 2, at=8))),
        Field("signs", 32, (_bytes(34, 32),)),
        Field("scale_code", 16, (_nibble_pairs(74, 16),)),
    ),
    16, SignedGrid("IQ2_S", "signs"), stepped(0.5, 1, 0.25),
)  # fmt: skip
IQ3_XXS = BlockType(
    "IQ3_XXS", 18, 256, 98,
    (half("d", 0), Field("grid_index", 64, (_bytes(2, 64),)), _sevens(66, 4), _top_nibbles(66, 4)),
    32, SignedGrid("IQ3_XXS", "sign_index"), stepped(0.5, 1, 0.5),
)  # fmt: skip
IQ3_S = BlockType(
    "IQ3_S", 21, 256, 110,
    (
        half("d", 0),
        Field("grid_index", 64, (_bytes(2, 64), Plane(66, (Axis(8, 1), Axis(8, bits=1)), 1, at=8))),
        Field("signs", 32, (_bytes(74, 32),)),
        Field("scale_code", 8, (_nibble_pairs(106, 8),)),
    ),
    32, SignedGrid("IQ3_S", "signs"), stepped(1, 2),
)  # fmt: skip
IQ1_S = BlockType(
    "IQ1_S", 19, 256, 50,
    (
        half("d", 0),
        Field("grid_index", 32, (_bytes(2, 32), Plane(34, (Axis(8, 2), Axis(4, bits=3)), 3, at=8, word=2))),
        Field("scale_code", 8, (Plane(34, (Axis(8, 2),), 3, shift=12, word=2),)),
        Field("shift_sign", 8, (Plane(34, (Axis(8, 2),), 1, shift=15, word=2),)),
    ),
    32, ShiftedGrid("IQ1_S", 32), stepped(1, 2, 1 / STEPS), unit=1 / STEPS,
)  # fmt: skip
# The float16 of IQ1_M is split into four parts: the highest four bits of each of the four words of scale codes.
IQ1_M = BlockType(
    "IQ1_M", 29, 256, 56,
    (
        Field("grid_index", 32, (_bytes(0, 32), _nibble_pairs(32, 32, bits=3, at=8))),
        Field("shift_sign", 32, (_nibble_pairs(32, 32, bits=1, shift=3),)),
        Field("scale_code", 16, (Plane(48, (Axis(4, 2), Axis(4, bits=3)), 3, word=2),)),
        Field("d", 1, tuple(Plane(49 + 2 * i, (Axis(1),), 4, at=4 * i, shift=4) for i in range(4)), "f"),
    ),
    16, ShiftedGrid("IQ1_S", 8), stepped(1, 2, 1 / STEPS), unit=1 / STEPS,
)  # fmt: skip
