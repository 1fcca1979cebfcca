"""The files of a checkpoint: where they are, and their bytes."""

from quantcore.checkpoints.files.address import Folder, LocalFolder, MemoryFolder, is_inside, locate
from quantcore.checkpoints.files.sources import ByteCounter, ByteSource, DerivedSource, MemorySource

__all__ = [
    "ByteCounter",
    "ByteSource",
    "DerivedSource",
    "Folder",
    "LocalFolder",
    "MemoryFolder",
    "MemorySource",
    "is_inside",
    "locate",
]
