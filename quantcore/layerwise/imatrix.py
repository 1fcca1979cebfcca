"""The inputs of weights as llama.cpp's imatrix has them, for the error of a weight's output."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantcore.checkpoints import CheckpointTensor
from quantcore.checkpoints.ggml import GgufNames
from quantcore.errors import QuantError
from quantcore.granularity import Shape
from quantcore.wording import count, short


class WeightInputs(NamedTuple):
    """What an imatrix has for a weight.

    ``weights``: the mean squared inputs, float64, which broadcast with the weight; ``coverage``: a sentence.
    """

    weights: Tensor | None
    coverage: str


NO_INPUTS = WeightInputs(None, "")


class Imatrix:
    """The mean squared inputs of weights, from an imatrix opened as a checkpoint.

    Raises:
        QuantError: it is not an imatrix, or an entry can't be read or is not a mean of squares.
    """

    def __init__(self, tensors: Mapping[str, CheckpointTensor], architecture: Any = None) -> None:
        self._tensors = {name: tensor for name, tensor in tensors.items() if tensor.storage == "imatrix"}
        self._names = GgufNames.of(architecture)
        if not self._tensors:
            raise QuantError(
                "This is not an imatrix: it has no entries. Give a .gguf or .dat file that llama-imatrix "
                "wrote."
            )
        for name, tensor in self._tensors.items():
            wrong = tensor.read().double()
            wrong = wrong[~(torch.isfinite(wrong) & (wrong >= 0))]
            if len(wrong):
                raise QuantError(
                    f"The imatrix's entry {short(name, 120)} contains {float(wrong[0]):g}, which is not a "
                    "mean of squares; compute the imatrix again."
                )

    def of(self, name: str, shape: Shape) -> WeightInputs:
        """Return what the imatrix has for a weight."""
        keys = [(name, None), *self._names.of_name(name)]
        found, expert = next(((n, e) for n, e in keys if n in self._tensors), ("", None))
        if not found:
            return WeightInputs(None, "no entry")
        means = self._tensors[found].read().double()
        counts = self._tensors[found].layout.stored().get("counts")
        if means.shape[1] != shape[-1] or (expert is not None and expert >= len(means)):
            return WeightInputs(None, f"its entry has {means.shape[1]:,} inputs, the weight {shape[-1]:,}")
        if expert is not None:
            own = slice(expert, expert + 1)
            means, counts = means[own], None if counts is None else counts[own]
        said = "" if counts is None else f"{int(counts.sum()):,} tokens seen"
        if counts is not None and len(counts) > 1:
            unused = int((counts == 0).sum())
            said = f"{unused:,} of {count(len(counts), 'expert')} without tokens, {said}"
        if len(means) == 1:
            return WeightInputs(means.view(*(1,) * (len(shape) - 1), -1), said)
        if len(shape) == 3 and len(means) == shape[0]:
            return WeightInputs(means[:, None, :], said)
        return WeightInputs(None, f"its entry has {len(means):,} × inputs, the weight {shape[0]:,}")
