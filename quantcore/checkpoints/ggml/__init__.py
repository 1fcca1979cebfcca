"""The block types of GGUF: ggml's own names, bytes to fields and back, and values bit for bit."""

from quantcore.checkpoints.ggml.block_type import BlockType, Fields
from quantcore.checkpoints.ggml.fields import Axis, Bits, Field, Plane
from quantcore.checkpoints.ggml.types import BLOCK_TYPES, TYPE_IDS

__all__ = ["Axis", "BLOCK_TYPES", "Bits", "BlockType", "Field", "Fields", "Plane", "TYPE_IDS"]
