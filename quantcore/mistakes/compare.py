"""Run both ways of a mistake, and say which cells are wrong and which lines differ."""

import difflib
import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.mistakes.record import Implementation, Mistake
from quantcore.numerics import as_float32


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a way makes of a tensor, all of its shape.

    ``x``: the tensor after the call, which a way may have changed; ``error``: that less x̂, as a student would
    compute it afterwards; ``true_error``: the tensor as it was given, less x̂.
    """

    x: Tensor
    codes: Tensor
    scale: Tensor
    dequantized: Tensor
    error: Tensor
    true_error: Tensor

    @property
    def sse(self) -> float:
        """Sum of the squared true error."""
        return float(self.true_error.double().square().sum())

    @property
    def mae(self) -> float:
        """Mean of the true error's size."""
        return float(self.true_error.double().abs().mean())


@dataclass(frozen=True, eq=False)
class Comparison:
    """Both outcomes on one tensor ``x``; the masks have its shape.

    ``outside``: the wrong way's codes that are none of the format; ``too_far``: x̂ further from x than half a
    step of the right grid, where the right way's is not as far; ``hidden``: the error that is computed
    afterwards is not the true one.
    """

    x: Tensor
    wrong: Outcome
    right: Outcome
    outside: Tensor
    too_far: Tensor
    hidden: Tensor

    @property
    def wrong_cells(self) -> Tensor:
        """Cells that the mistake spoiled in one of these ways."""
        return self.outside | self.too_far | self.hidden


@dataclass(frozen=True)
class Line:
    """A line of source, and whether the other way has it not."""

    text: str
    differs: bool


def run(implementation: Implementation, x: Tensor) -> Outcome:
    """Run a way on a copy of x.

    Raises:
        QuantError: it does not run on such a tensor, or what comes out is not finite.
    """
    after = as_float32(x).clone()
    try:
        codes, scale, x_hat = implementation(after)
    except (RuntimeError, IndexError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise QuantError(
            f"This code does not run on a tensor of shape {tuple(x.shape)}: {reason}. Take another tensor."
        ) from None
    if not (x_hat.isfinite().all() and x.any()):
        raise QuantError(
            "This code divides by 0 on this tensor, since its range has no width; take one whose values differ."
        )
    return Outcome(after, codes, scale.expand_as(x), x_hat, after - x_hat, x - x_hat)


def compare(mistake: Mistake, x: Tensor | None = None) -> Comparison:
    """Run both ways on x, by default the mistake's own tensor, and find the cells that went wrong.

    Raises:
        QuantError: one of them does not run on x.
    """
    x = as_float32(mistake.x() if x is None else x)
    wrong, right = run(mistake.wrong, x), run(mistake.right, x)
    fmt, far, least = mistake.format, wrong.true_error.abs(), right.true_error.abs()
    # x/s, x̂ and the error are each rounded once to float32: at most 2^-24 of |x| each
    half = right.scale / 2 + x.abs() * 2.0**-22
    return Comparison(
        x,
        wrong,
        right,
        outside=(wrong.codes < fmt.qmin) | (wrong.codes > fmt.qmax),
        too_far=(far > half) & (far > least),
        hidden=torch.ne(wrong.error, wrong.true_error),
    )


def lines(mistake: Mistake) -> tuple[list[Line], list[Line]]:
    """Return the source of the wrong and of the right way, the differing lines marked; names need not agree."""
    sources = (_source(mistake.wrong), _source(mistake.right))
    matcher = difflib.SequenceMatcher(None, sources[0][1:], sources[1][1:], autojunk=False)
    same: tuple[set[int], set[int]] = ({0}, {0})
    for a, b, length in matcher.get_matching_blocks():
        for numbers, start in zip(same, (a, b), strict=True):
            numbers |= set(range(start + 1, start + 1 + length))
    first, second = (
        [Line(text, i not in numbers) for i, text in enumerate(source)]
        for source, numbers in zip(sources, same, strict=True)
    )
    return first, second


def _source(implementation: Implementation) -> list[str]:
    """The function's lines; the types in its head, for our checker alone, are left out."""
    text = inspect.getsource(implementation).replace("(x: Tensor) -> Parts:", "(x):")
    return text.rstrip().splitlines()
