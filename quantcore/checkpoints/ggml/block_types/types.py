"""All of ggml's types by the number that a file holds, and the block types by name."""

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.block_types import iq_types, k_types, legacy, ternary_fp4_types

BLOCK_TYPES: dict[str, BlockType] = {
    kind.name: kind
    for module in (legacy, k_types, iq_types, ternary_fp4_types)
    for kind in vars(module).values()
    if isinstance(kind, BlockType)
}
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
