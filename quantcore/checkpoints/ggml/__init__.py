"""The block types of GGUF under ggml's names: bytes to fields and back, and values bit for bit."""

from quantcore.checkpoints.ggml.block_type import BlockType, CodePart, Fields
from quantcore.checkpoints.ggml.block_types import (
    BLOCK_TYPES,
    PLAIN_TYPES,
    TYPE_IDS,
    UNREADABLE_TYPES,
    digits_of,
)
from quantcore.checkpoints.ggml.encode import ggml_bytes
from quantcore.checkpoints.ggml.fields import Field
from quantcore.checkpoints.ggml.grids import grid
from quantcore.checkpoints.ggml.planes import Axis, Bits, Plane

__all__ = [
    "Axis",
    "BLOCK_TYPES",
    "Bits",
    "BlockType",
    "CodePart",
    "Field",
    "Fields",
    "PLAIN_TYPES",
    "Plane",
    "TYPE_IDS",
    "UNREADABLE_TYPES",
    "digits_of",
    "ggml_bytes",
    "grid",
]
