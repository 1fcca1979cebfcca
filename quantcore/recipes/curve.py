"""llama.cpp's file types beside other choices: what they take and, where it was measured, what they lose."""

import math

from quantcore.checkpoints import Checkpoint
from quantcore.errors import QuantError
from quantcore.layerwise import AS_STORED, Table, error_of
from quantcore.recipes.preview import ftype_file

USUAL_FTYPES = ("Q2_K", "Q3_K_M", "IQ4_XS", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")


def ftype_points(
    checkpoint: Checkpoint, table: Table, error: str = "relative"
) -> dict[str, tuple[float, float]]:
    """Return the bytes of all tensors and the summed error of usual file types, without an imatrix.

    The error is nan unless the table has the schemes of all types in the file, such as ``gguf.Q4_K``, for the
    weights that take them.

    >>> from quantcore.checkpoints import EXAMPLES, open_checkpoint
    >>> from quantcore.layerwise import sensitivity
    >>> checkpoint = open_checkpoint(EXAMPLES["minilm"])
    >>> *_, last = sensitivity(checkpoint, ["gguf.Q5_0", "gguf.Q4_K"])
    >>> size, error = ftype_points(checkpoint, last.table)["Q4_K_M"]
    >>> size, round(error, 4)
    (439296.0, 0.0073)

    Raises:
        QuantError: llama.cpp's names for the tensors are not known, or the model is quantized already.
    """
    return {ftype: _point(checkpoint, table, ftype, error) for ftype in USUAL_FTYPES}


def _point(checkpoint: Checkpoint, table: Table, ftype: str, error: str) -> tuple[float, float]:
    file = ftype_file(checkpoint, ftype, dry_run=True)
    schemes = dict.fromkeys(file.unknown, AS_STORED)
    for tensor in file.tensors:
        kind = file.types[tensor.name]
        scheme = AS_STORED if kind == tensor.kind else f"gguf.{kind}"
        schemes |= dict.fromkeys(file.origins[tensor.name], scheme)
    try:
        summed = error_of(table, schemes, error)
    except QuantError:
        summed = math.nan
    return float(file.tensor_bytes), summed
