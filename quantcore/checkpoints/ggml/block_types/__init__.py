"""Every block type of GGUF, by family."""

from quantcore.checkpoints.ggml.block_types.ternary_fp4_types import digits_of, e8m0_as_nan
from quantcore.checkpoints.ggml.block_types.types import BLOCK_TYPES, PLAIN_TYPES, TYPE_IDS, UNREADABLE_TYPES

__all__ = ["BLOCK_TYPES", "PLAIN_TYPES", "TYPE_IDS", "UNREADABLE_TYPES", "digits_of", "e8m0_as_nan"]
