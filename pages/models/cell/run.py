"""What the panel computes: other readings and the findings about them, cached by the checkpoint's content."""

from math import prod

from pages.models.opening import Opened
from pages.shared.computing import cache
from pages.shared.state.selection import Tensor
from quantcore.checkpoints import CheckpointFinding, CheckpointTensor, Rival
from quantcore.checkpoints.findings import Heads, of_parameters
from quantcore.checkpoints.origin import window

REMOTE_GAP = 1 << 16  # bytes; a source that joins reads across longer gaps is on another machine


def rivals(opened: Opened, tensor: CheckpointTensor, index: tuple[int, ...]) -> tuple[Rival, ...]:
    """Return the other readings of an element; elements that differ are not counted in a remote tensor.

    Raises:
        QuantError: the tensor can't be read.
    """
    rows = slice(0, 0) if is_remote(tensor) else window(tensor.shape, index)
    heads = Heads.of(opened.checkpoint.release).of_weight(tensor.name)
    return cache.cached_small(
        _tensor(opened, tensor, (rows.stop - rows.start, *tensor.shape[1:])),
        f"rivals {index}",
        lambda: tensor.rivals(index, rows, heads),
    )


def findings(opened: Opened, tensor: CheckpointTensor) -> dict[str, CheckpointFinding]:
    """Return the findings about stored parameters that concern a reading, by its key.

    Raises:
        QuantError: the parameters can't be read.
    """
    if is_remote(tensor) or not tensor.is_quantized:
        return {}
    found = cache.cached_small(
        _tensor(opened, tensor, (1,)), "findings of parameters", lambda: tuple(of_parameters(tensor.layout))
    )
    return {key: finding for finding in found for key in finding.rivals}


def is_remote(tensor: CheckpointTensor) -> bool:
    """Whether the tensor is on another machine, where reading scattered rows means reading everything."""
    return any(REMOTE_GAP < piece.source.gap < 1 << 32 for piece in tensor.layout.pieces.values())


def _tensor(opened: Opened, tensor: CheckpointTensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor's record for the caches; ``shape``: of the part that is read."""
    count = max(1, prod(shape))
    return Tensor(f"{opened.key} {tensor.name}", tensor.name, (count,), lambda: tensor.read().numpy())
