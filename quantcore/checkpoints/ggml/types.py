"""All block types, by name and by the number that a file holds."""

from quantcore.checkpoints.ggml import iq_types, k_types, legacy, ternary_fp4_types
from quantcore.checkpoints.ggml.block_type import BlockType

BLOCK_TYPES: dict[str, BlockType] = {
    kind.name: kind
    for module in (legacy, k_types, iq_types, ternary_fp4_types)
    for kind in vars(module).values()
    if isinstance(kind, BlockType)
}
TYPE_IDS: dict[int, BlockType] = {kind.type_id: kind for kind in BLOCK_TYPES.values()}
