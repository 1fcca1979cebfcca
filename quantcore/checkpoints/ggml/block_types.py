"""Every block type of GGUF, and all of ggml's types by the number that a file holds.

Q4_0 to Q8_0 (blocks of 32 with one scale), and the newer Q1_0 and Q2_0. Q2_K to Q6_K: super-blocks of 256
elements in 8 or 16 sub-blocks, whose scales and mins are themselves quantized. IQ4_NL and IQ4_XS (tables),
IQ2_XXS to IQ3_S (signed grids), IQ1_S and IQ1_M (shifted grids). TQ1_0 and TQ2_0 (three levels), MXFP4 and
NVFP4 (FP4 E2M1 with 8-bit scales).
"""

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.fields import Axis, BitPlane, StructField, crumbs, half, nibble_pairs, nibbles
from quantcore.checkpoints.ggml.levels import (
    CODED,
    E4M3,
    HALF_E8M0,
    STEPS,
    D,
    LevelTable,
    Offset,
    ShiftedGrid,
    SignedGrid,
    TernaryDigits,
    product,
    stepped,
)
from quantcore.expressions import Let, Name


def _fifth_bits(byte: int) -> BitPlane:
    """Return the fifth bits of 32 codes: a little-endian word of 32 bits, element 0 lowest."""
    return BitPlane(byte, (Axis(4, 1), Axis(8, bits=1)), 1, at=4)


Q4_0 = BlockType(
    "Q4_0", 2, 32, 18,
    (half("d", 0), StructField("codes", 32, (nibbles(2, 16),))),
    32, Offset(8), D,
)  # fmt: skip
Q4_1 = BlockType(
    "Q4_1", 3, 32, 20,
    (half("d", 0), half("m", 2), StructField("codes", 32, (nibbles(4, 16),))),
    32, Offset(), D, Name("m"), min_sign=1,
)  # fmt: skip
Q5_0 = BlockType(
    "Q5_0", 6, 32, 22,
    (half("d", 0), StructField("codes", 32, (nibbles(6, 16), _fifth_bits(2)))),
    32, Offset(16), D,
)  # fmt: skip
Q5_1 = BlockType(
    "Q5_1", 7, 32, 24,
    (half("d", 0), half("m", 2), StructField("codes", 32, (nibbles(8, 16), _fifth_bits(4)))),
    32, Offset(), D, Name("m"), min_sign=1,
)  # fmt: skip
Q8_0 = BlockType(
    "Q8_0", 8, 32, 34,
    (half("d", 0), StructField("codes", 32, (BitPlane(2, (Axis(32, 1),), 8),), "i")),
    32, Offset(), D,
)  # fmt: skip
Q1_0 = BlockType(
    "Q1_0", 41, 128, 18,
    (half("d", 0), StructField("codes", 128, (BitPlane(2, (Axis(16, 1), Axis(8, bits=1)), 1),))),
    128, LevelTable((-1, 1)), D,
)  # fmt: skip
Q2_0 = BlockType(
    "Q2_0", 42, 64, 18,
    (half("d", 0), StructField("codes", 64, (BitPlane(2, (Axis(16, 1), Axis(4, bits=2)), 2),))),
    64, Offset(1), D,
)  # fmt: skip


def _six_bits(name: str, byte: int, shift: int) -> StructField:
    """Return the scale (or min) codes of Q4_K and Q5_K: eight of 6 bits (ggml-quants.c, `get_scale_min_k4`).

    The first four are stored whole in the bytes from ``byte`` on. Of the other four, four bits are in the
    bytes from 12 on, starting at bit ``shift``, and two are in the upper bits of the bytes of the first four.
    """
    four = (Axis(4, 1),)
    return StructField(
        name, 8,
        (
            BitPlane(byte, four, 6), BitPlane(12, four, 4, first=4, shift=shift),
            BitPlane(byte, four, 2, 4, first=4, shift=6),
        ),
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
        StructField("scale_code", 16, (BitPlane(0, _SIXTEEN, 4),)),
        StructField("min_code", 16, (BitPlane(0, _SIXTEEN, 4, shift=4),)),
        StructField("codes", 256, (crumbs(16),)),
        half("d", 80), half("dmin", 82),
    ),
    16, Offset(), SCALE, MIN,
)  # fmt: skip
Q3_K = BlockType(
    "Q3_K", 11, 256, 110,
    (
        StructField("codes", 256, (crumbs(32), BitPlane(0, _HIGH_BITS, 1, at=2)), offset=4),
        StructField(
            "scale_code", 16,
            (
                BitPlane(96, (Axis(2, bits=4), Axis(8, 1)), 4),
                BitPlane(104, (Axis(4, bits=2), Axis(4, 1)), 2, at=4),
            ),
            offset=32,
        ),
        half("d", 108),
    ),
    16, Offset(), SCALE,
)  # fmt: skip
Q4_K = BlockType(
    "Q4_K", 12, 256, 144,
    (half("d", 0), half("dmin", 2), *_SCALES, StructField("codes", 256, (nibbles(16, 32, 4),))),
    32, Offset(), SCALE, MIN,
)  # fmt: skip
Q5_K = BlockType(
    "Q5_K", 13, 256, 176,
    (
        half("d", 0), half("dmin", 2), *_SCALES,
        StructField("codes", 256, (nibbles(48, 32, 4), BitPlane(16, _HIGH_BITS, 1, at=4))),
    ),
    32, Offset(), SCALE, MIN,
)  # fmt: skip
Q6_K = BlockType(
    "Q6_K", 14, 256, 210,
    (
        StructField("codes", 256, (nibbles(0, 64, 2), crumbs(128, at=4)), offset=32),
        StructField("scale_code", 16, (BitPlane(192, _SIXTEEN, 8),), "i"),
        half("d", 208),
    ),
    16, Offset(), SCALE,
)  # fmt: skip


_IQ4 = LevelTable((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))  # kvalues_iq4nl


def _bytes(byte: int, count: int, at: int = 0) -> BitPlane:
    return BitPlane(byte, (Axis(count, 1),), 8, at)


def _sevens(byte: int, step: int) -> StructField:
    """Return four numbers of 7 bits in each of eight 32-bit words, ``step`` bytes apart."""
    return StructField("sign_index", 32, (BitPlane(byte, (Axis(8, step), Axis(4, bits=7)), 7, word=4),))


def _top_nibbles(byte: int, step: int) -> StructField:
    """Return the highest four bits of the same words."""
    return StructField("scale_code", 8, (BitPlane(byte, (Axis(8, step),), 4, shift=28, word=4),))


IQ4_NL = BlockType(
    "IQ4_NL", 20, 32, 18,
    (half("d", 0), StructField("codes", 32, (nibbles(2, 16),))),
    32, _IQ4, D,
)  # fmt: skip
IQ4_XS = BlockType(
    "IQ4_XS", 23, 256, 136,
    (
        half("d", 0),
        StructField(
            "scale_code", 8, (nibble_pairs(4, 8), BitPlane(2, (Axis(2, 1), Axis(4, bits=2)), 2, at=4)),
            offset=32,
        ),
        StructField("codes", 256, (nibbles(8, 16, 8),)),
    ),
    32, _IQ4, product("d", "scale_code", "s"),
)  # fmt: skip
IQ2_XXS = BlockType(
    "IQ2_XXS", 16, 256, 66,
    (
        half("d", 0), StructField("grid_index", 32, (BitPlane(2, (Axis(8, 8), Axis(4, 1)), 8),)),
        _sevens(6, 8), _top_nibbles(6, 8),
    ),
    32, SignedGrid("IQ2_XXS", "sign_index"), stepped(0.5, 1, 0.25),
)  # fmt: skip
IQ2_XS = BlockType(
    "IQ2_XS", 17, 256, 74,
    (
        half("d", 0),
        StructField("grid_index", 32, (BitPlane(2, (Axis(32, 2),), 9, word=2),)),
        StructField("sign_index", 32, (BitPlane(2, (Axis(32, 2),), 7, shift=9, word=2),)),
        StructField("scale_code", 16, (nibble_pairs(66, 16),)),
    ),
    16, SignedGrid("IQ2_XS", "sign_index"), stepped(0.5, 1, 0.25),
)  # fmt: skip
IQ2_S = BlockType(
    "IQ2_S", 22, 256, 82,
    (
        half("d", 0),
        StructField("grid_index", 32, (_bytes(2, 32), BitPlane(66, (Axis(8, 1), Axis(4, bits=2)), 2, at=8))),
        StructField("signs", 32, (_bytes(34, 32),)),
        StructField("scale_code", 16, (nibble_pairs(74, 16),)),
    ),
    16, SignedGrid("IQ2_S", "signs"), stepped(0.5, 1, 0.25),
)  # fmt: skip
IQ3_XXS = BlockType(
    "IQ3_XXS", 18, 256, 98,
    (half("d", 0), StructField("grid_index", 64, (_bytes(2, 64),)), _sevens(66, 4), _top_nibbles(66, 4)),
    32, SignedGrid("IQ3_XXS", "sign_index"), stepped(0.5, 1, 0.5),
)  # fmt: skip
IQ3_S = BlockType(
    "IQ3_S", 21, 256, 110,
    (
        half("d", 0),
        StructField("grid_index", 64, (_bytes(2, 64), BitPlane(66, (Axis(8, 1), Axis(8, bits=1)), 1, at=8))),
        StructField("signs", 32, (_bytes(74, 32),)),
        StructField("scale_code", 8, (nibble_pairs(106, 8),)),
    ),
    32, SignedGrid("IQ3_S", "signs"), stepped(1, 2),
)  # fmt: skip
IQ1_S = BlockType(
    "IQ1_S", 19, 256, 50,
    (
        half("d", 0),
        StructField(
            "grid_index", 32, (_bytes(2, 32), BitPlane(34, (Axis(8, 2), Axis(4, bits=3)), 3, at=8, word=2))
        ),
        StructField("scale_code", 8, (BitPlane(34, (Axis(8, 2),), 3, shift=12, word=2),)),
        StructField("shift_sign", 8, (BitPlane(34, (Axis(8, 2),), 1, shift=15, word=2),)),
    ),
    32, ShiftedGrid("IQ1_S", 32), stepped(1, 2, 1 / STEPS), unit=1 / STEPS,
)  # fmt: skip
# The float16 of IQ1_M is split into four parts: the highest four bits of each of the four words of scale
# codes.
IQ1_M = BlockType(
    "IQ1_M", 29, 256, 56,
    (
        StructField("grid_index", 32, (_bytes(0, 32), nibble_pairs(32, 32, bits=3, at=8))),
        StructField("shift_sign", 32, (nibble_pairs(32, 32, bits=1, shift=3),)),
        StructField("scale_code", 16, (BitPlane(48, (Axis(4, 2), Axis(4, bits=3)), 3, word=2),)),
        StructField(
            "d", 1, tuple(BitPlane(49 + 2 * i, (Axis(1),), 4, at=4 * i, shift=4) for i in range(4)), "f"
        ),
    ),
    16, ShiftedGrid("IQ1_S", 8), stepped(1, 2, 1 / STEPS), unit=1 / STEPS,
)  # fmt: skip


_FP4 = LevelTable((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12))  # E2M1, doubled: kvalues_mxfp4


TQ1_0 = BlockType(
    "TQ1_0", 34, 256, 54,
    (StructField("digits", 52, (_bytes(0, 52),)), half("d", 52)),
    256, TernaryDigits(), D,
)  # fmt: skip
TQ2_0 = BlockType(
    "TQ2_0", 35, 256, 66,
    (StructField("codes", 256, (crumbs(0),)), half("d", 64)),
    256, Offset(1), D,
)  # fmt: skip
MXFP4 = BlockType(
    "MXFP4", 39, 32, 17,
    (StructField("scale_code", 1, (_bytes(0, 1),)), StructField("codes", 32, (nibbles(1, 16),))),
    32, _FP4, HALF_E8M0, unit=0.5,
)  # fmt: skip
NVFP4 = BlockType(
    "NVFP4", 40, 64, 36,
    (StructField("scale_code", 4, (_bytes(0, 4),)), StructField("codes", 64, (nibbles(4, 8, 4),))),
    16, _FP4, Let("s", E4M3(CODED)), unit=0.5,
)  # fmt: skip


_ALL = (
    Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ2_XXS, IQ2_XS,
    IQ2_S, IQ3_XXS, IQ3_S, IQ1_S, IQ1_M, TQ1_0, TQ2_0, MXFP4, NVFP4,
)  # fmt: skip
BLOCK_TYPES: dict[str, BlockType] = {kind.name: kind for kind in _ALL}
TYPE_IDS: dict[int, BlockType] = {kind.type_id: kind for kind in BLOCK_TYPES.values()}

# types that store plain values, with bytes per element; safetensors uses the same names
PLAIN_TYPES: dict[int, tuple[str, int]] = {
    0: ("F32", 4), 1: ("F16", 2), 30: ("BF16", 2), 28: ("F64", 8),
    24: ("I8", 1), 25: ("I16", 2), 26: ("I32", 4), 27: ("I64", 8),
}  # fmt: skip

# types that ggml knows by name but does not read from files (ggml.h, `enum ggml_type`)
UNREADABLE_TYPES: dict[int, str] = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8",
    36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8",
}  # fmt: skip
