"""What the panel computes: other readings and the findings about them, cached by the checkpoint's content."""

from math import prod

from pages.models.opening import OpenCheckpoint
from pages.shared.computing import cache
from quantcore.checkpoints import CheckpointFinding, CheckpointTensor, Rival
from quantcore.checkpoints.findings import Heads, of_parameters
from quantcore.checkpoints.origin import window


def rivals(opened: OpenCheckpoint, tensor: CheckpointTensor, index: tuple[int, ...]) -> tuple[Rival, ...]:
    """Return the other readings of an element; elements that differ are not counted in a remote tensor.

    Raises:
        QuantError: the tensor can't be read.
    """
    rows = slice(0, 0) if is_remote(tensor) else window(tensor.shape, index)
    heads = Heads.of(opened.checkpoint.release).of_weight(tensor.name)
    elements = (rows.stop - rows.start) * prod(tensor.shape[1:])
    return cache.cached_small(
        cache.CacheKey(f"{opened.key} {tensor.name}", max(1, elements)),
        f"rivals {index}",
        lambda: tensor.rivals(index, rows, heads),
    )


def findings(opened: OpenCheckpoint, tensor: CheckpointTensor) -> dict[str, CheckpointFinding]:
    """Return the findings about stored parameters that concern a reading, by its key.

    Raises:
        QuantError: the parameters can't be read.
    """
    if is_remote(tensor) or not tensor.is_quantized:
        return {}
    content = cache.CacheKey(f"{opened.key} {tensor.name}")
    found = cache.cached_small(content, "findings of parameters", lambda: tuple(of_parameters(tensor.layout)))
    return {key: finding for finding in found for key in finding.rivals}


def is_remote(tensor: CheckpointTensor) -> bool:
    """Whether the tensor is on another machine, where reading scattered rows means reading everything."""
    return any(piece.source.is_remote for piece in tensor.layout.pieces.values())

