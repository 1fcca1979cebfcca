"""The layout of each tensor of a GGUF file."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from quantcore.checkpoints.containers.gguf import VERSION_KEY
from quantcore.checkpoints.ggml import BLOCK_TYPES
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.plain import Plain, plain
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.release import Release

_FLOATS = ("F32", "F16", "BF16")


def find(release: Release) -> Iterator[Layout]:
    """Yield the tensors of GGUF files."""
    if VERSION_KEY not in release.metadata:
        return
    for name, piece in release.stored.items():
        if piece.dtype in BLOCK_TYPES:
            scale = (
                release.stored.get(f"{name.removesuffix('.weight')}.scale")
                if piece.dtype == "NVFP4"
                else None
            )
            yield Gguf(name, piece.shape, torch.float32, {"": piece}, scale)
        elif piece.dtype in _FLOATS:
            yield GgufFloats(name, piece.shape, torch.float32, {"": piece})
        else:
            yield plain(name, piece)


@dataclass(frozen=True, eq=False)
class GgufFloats(Plain):
    """Floats, which ggml widens to float32."""

    @property
    def storage(self) -> str:
        """``gguf F16``."""
        return f"gguf {self.pieces[''].dtype}"
