"""A checkpoint that a visitor has opened."""

from dataclasses import dataclass

from quantcore.checkpoints import Checkpoint


@dataclass(frozen=True)
class Opened:
    """A checkpoint, of which only headers have been read.

    Attributes:
        checkpoint: its tensors and findings.
        key: names the content: equal keys, equal bytes; for caches.
        title: a name for a line of text.
        total_bytes: bytes of its files.
    """

    checkpoint: Checkpoint
    key: str
    title: str
    total_bytes: int
