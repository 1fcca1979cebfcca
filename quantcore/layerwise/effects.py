"""What a group of weights under a scheme does to the output of the user's own model.

Errors of weights can't know which layers matter; the effects of single groups, added, predict that of a plan.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints import Checkpoint, CheckpointTensor
from quantcore.errors import QuantError
from quantcore.layerwise.measure import dtype_of
from quantcore.layerwise.plan import groups_of
from quantcore.layerwise.table import Effect, Table
from quantcore.quantization import apply_quietly
from quantcore.scheme import Scheme
from quantcore.wording import short

Forward = Callable[[dict[str, Tensor]], Tensor]


def _kl(y: Tensor, changed: Tensor) -> Tensor:
    """Return Σ p·(log p − log q) of the softmax over the last axis, averaged over an input's positions."""
    p, q = y.log_softmax(-1), changed.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).reshape(len(y), -1).mean(1)


def _cosine(y: Tensor, changed: Tensor) -> Tensor:
    """Return 1 − cosine of an input's outputs."""
    return 1 - torch.nn.functional.cosine_similarity(y.flatten(1), changed.flatten(1), dim=1, eps=0.0)


def _relative(y: Tensor, changed: Tensor) -> Tensor:
    """Return ‖Δy‖² / ‖y‖² of an input's outputs."""
    return (changed - y).flatten(1).square().sum(1) / y.flatten(1).square().sum(1)


# how outputs are compared: KL divergence of logits, 1 − cosine, relative squared error
SCORES = {"kl": _kl, "cosine": _cosine, "relative": _relative}


@dataclass(frozen=True)
class _Outputs:
    """The outputs of the original, and how others are compared with them, one number per input."""

    original: Tensor
    score: str

    def effect(self, changed: Any, group: str) -> Effect:
        """Return the mean over the inputs and its standard error."""
        y, changed = self.original, _checked(changed, f"with {short(group, 120)} quantized")
        if changed.shape != y.shape:
            raise QuantError(
                f"forward returned shape {tuple(changed.shape)} with {short(group, 120)} quantized, but "
                f"{tuple(y.shape)} before; return the same outputs for the same inputs each time."
            )
        each = SCORES[self.score](y, changed).clamp(min=0)
        if not torch.isfinite(each).all():
            first = int(torch.isfinite(each).int().argmin())
            raise QuantError(
                f"The score {self.score} of input {first} is not finite with {short(group, 120)} quantized: "
                "its outputs are all 0. Leave the input out, or choose kl."
            )
        spread = float(each.std()) / math.sqrt(len(each)) if len(each) > 1 else math.nan
        return Effect(float(each.mean()), spread)


def check_score(score: str, table: Table) -> None:
    """Check that there is such a score, and that the effects of a table are of it.

    Raises:
        QuantError: they are not.
    """
    if score not in SCORES:
        raise QuantError(f"There is no score {score!r}; choose one of {', '.join(SCORES)}.")
    if table.effects and table.score != score:
        raise QuantError(f"The table's effects are {table.score}, not {score}; begin without it.")


def measured_effects(
    checkpoint: Checkpoint,
    schemes: Sequence[Scheme],
    table: Table,
    forward: Forward,
    score: str,
    tie: Callable[[str], str],
) -> Generator[str, None, None]:
    """Add the effects of every group to a table that has all rows; yield each group's name."""
    table.score = score
    left = {name: rows for name, rows in groups_of(table, tie).items() if name not in table.effects}
    if not left:
        return
    weights = {name: _weight(checkpoint.tensors[name]) for name, row in table.rows.items() if row.is_readable}
    outputs = _Outputs(_checked(forward(dict(weights)), "of the original"), score)
    for group, rows in left.items():
        found = []
        for i, scheme in enumerate(schemes):
            if problem := next((row.cells[i].problem for row in rows if row.cells[i].problem), ""):
                found.append(Effect(problem=problem))
                continue
            changed = {row.name: _quantized(weights[row.name], scheme) for row in rows}
            found.append(outputs.effect(forward({**weights, **changed}), group))
        table.effects[group] = tuple(found)
        yield group


def _weight(tensor: CheckpointTensor) -> Tensor:
    """Return a weight in the dtype in which it is stored, or in which a library gets it."""
    layout = tensor.layout
    return tensor.read().to(layout.dtype if layout.is_plain else dtype_of(layout))


def _quantized(weight: Tensor, scheme: Scheme) -> Tensor:
    return apply_quietly(weight, scheme).dequantized.to(weight.dtype)


def _checked(outputs: Any, of: str) -> Tensor:
    """Return outputs in float64, whose first axis is inputs."""
    if not isinstance(outputs, Tensor) or outputs.ndim < 2 or not outputs.numel():
        what = f"shape {tuple(outputs.shape)}" if isinstance(outputs, Tensor) else type(outputs).__name__
        raise QuantError(f"forward must return a tensor of shape (inputs, …), not {what} ({of}).")
    found = outputs.detach().double()
    if not torch.isfinite(found).all():
        raise QuantError(f"forward returned NaN or infinite outputs {of}.")
    return found
