"""Weights that are stored as their values, and differ from the original."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.against.suspect import Cause, Suspect
from quantcore.checkpoints.findings.record import CheckpointFinding, error, layer_of, note
from quantcore.checkpoints.statement import named

_LITTLE = 0.05  # relative error up to which weights may all be of another version


def of_plain(
    suspect: Suspect, cause: Cause | None, alone: bool, scaled: Mapping[str, Tensor]
) -> CheckpointFinding:
    """Return how it differs, and why.

    Args:
        alone: whether most other weights of its kind equal the original's.
        scaled: the factors of the weights whose columns are multiplied.
    """
    on_purpose = _known_change(suspect) or _factors(suspect, scaled)
    if on_purpose is not None:
        return on_purpose
    if cause is not None:
        return suspect.finding(cause)
    measure = suspect.measure
    if measure.relative > 1:
        return not_the_original(measure)
    size, flat = measure.sums.worst, measure.sums.worst_at
    row, column = divmod(flat, measure.width)
    at = (row, column) if len(suspect.layout.shape) > 1 else (row,)
    words = "{differs} from the original in {values} of {its} {of:value} by more than rounding, by up to {largest} at {first}; the relative error is {relative}."
    say = error if alone or measure.relative > _LITTLE else note
    return say(
        suspect.layout,
        "plain_differs",
        words,
        values=measure.unequal,
        of=math.prod(suspect.layout.shape),
        largest=size,
        first=at,
        relative=measure.relative,
    )


def not_the_original(measure: Measure) -> CheckpointFinding:
    """Return the finding on a weight whose errors are larger than the original."""
    words = (
        "{is} not what the original has: {its} RMS error is {relative} times the RMS of the original. None of the causes "
        "tried explains it."
    )
    original = named(measure.source.name)
    return error(measure.layout, "not_the_original", words, original=original, relative=measure.relative)


def _known_change(s: Suspect) -> CheckpointFinding | None:
    """Return the change that a converter made on purpose."""
    tried = [("plus", s.y - 1), ("minus", s.y + 1)] if len(s.layout.shape) == 1 else []
    for kind, values in tried:
        fit = s.fit(values)
        # 1 was added before values were rounded to their dtype
        near = (s.x - values).abs() <= 2 * torch.finfo(s.layout.dtype).eps * (1 + s.x.abs())
        if bool(near.all()):
            return note(
                s.layout, "plus_one",
                "{is} the original {sign} 1: llama.cpp adds 1 to the norms of some models; with that undone, the relative "
                "error is {after} instead of {before}.",
                sign=kind, before=s.now.relative, after=fit.relative,
            )  # fmt: skip
    fit = s.fit(-(s.x.exp()), x=s.y)
    if s.gguf_differs and fit.relative < 1e-3:
        return note(
            s.layout, "negative_exponential",
            "{is} the negative exponential of the original, as llama.cpp stores A_log; compared so, the relative error is "
            "{after} instead of {before}.", before=s.now.relative, after=fit.relative,
        )  # fmt: skip
    return None


def undone(ratio: Tensor, factors: Tensor) -> bool:
    """Tell whether what was multiplied here was divided there: products are constant, but for noise."""
    if len(ratio) != len(factors) or not bool((ratio * factors > 0).all()):
        return False
    logs = ratio.abs().log()
    left = logs + factors.abs().log()
    return bool((left - left.median()).abs().median() < 0.25 * (logs - logs.median()).abs().median())


def divided(s: Suspect, factors: Tensor) -> bool:
    """Tell whether a vector, such as a norm, is that of the original divided by the factors."""
    if not bool((s.x != 0).all() and (s.y != 0).all()):
        return False
    # Gemma's norms multiply by 1 + weight
    return any(undone(((s.y + added) / (s.x + added)).reshape(-1), factors) for added in (0.0, 1.0))


def _factors(s: Suspect, scaled: Mapping[str, Tensor]) -> CheckpointFinding | None:
    """Return the note on a norm divided by the factors of the columns of weights after it."""
    layer = layer_of(s.layout.name)
    for name, factors in scaled.items() if len(s.layout.shape) == 1 else ():
        if layer_of(name) == layer and divided(s, factors):
            return note(
                s.layout, "norm_scaled",
                "{is} divided by the factors by which the columns of {other} are multiplied, as AWQ and SmoothQuant do; "
                "the products are those of the original.", other=name, relative=s.now.relative,
            )  # fmt: skip
    return None
