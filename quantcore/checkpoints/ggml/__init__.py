"""The block types of GGUF under ggml's names: bytes to fields and back, and values bit for bit."""

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.block_types import BLOCK_TYPES, PLAIN_TYPES, TYPE_IDS, UNREADABLE_TYPES
from quantcore.checkpoints.ggml.encode import ggml_bytes
from quantcore.checkpoints.ggml.fields import BitRange, StructField, nibble_pairs
from quantcore.checkpoints.ggml.levels import CodePart, Fields, Offset, digits_of, e8m0_as_nan
from quantcore.checkpoints.ggml.names import GgufNames
