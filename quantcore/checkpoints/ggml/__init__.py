"""The block types of GGUF under ggml's names: bytes to fields and back, and values bit for bit."""

from quantcore.checkpoints.ggml.block_type import BlockType, CodePart, Fields
from quantcore.checkpoints.ggml.block_types import (
    BLOCK_TYPES,
    PLAIN_TYPES,
    TYPE_IDS,
    UNREADABLE_TYPES,
    digits_of,
    e8m0_as_nan,
)
from quantcore.checkpoints.ggml.encode import ggml_bytes
from quantcore.checkpoints.ggml.fields import Field
from quantcore.checkpoints.ggml.levels import Offset
from quantcore.checkpoints.ggml.names import GgufNames
from quantcore.checkpoints.ggml.planes import Axis, Bits, Plane

__all__ = [
    "Axis",
    "BLOCK_TYPES",
    "Bits",
    "BlockType",
    "CodePart",
    "Field",
    "Fields",
    "GgufNames",
    "Offset",
    "PLAIN_TYPES",
    "Plane",
    "TYPE_IDS",
    "UNREADABLE_TYPES",
    "digits_of",
    "e8m0_as_nan",
    "ggml_bytes",
]
