"""The cases of the lesson, run on a tensor: which cells are wrong, and which lines of source differ."""

import difflib
import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.mistakes.record import Implementation, WorkedCase
from quantcore.numerics import as_float32


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of an implementation on a tensor; every field has the tensor's shape.

    ``x``: the tensor after the call, which may have changed it; ``error``: this x minus x̂, as a student
    would compute it afterwards; ``true_error``: the original tensor minus x̂.
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
        """Mean of the absolute true error."""
        return float(self.true_error.double().abs().mean())


@dataclass(frozen=True, eq=False)
class OutcomePair:
    """Both outcomes on one tensor ``x``; the masks have its shape.

    ``outside``: codes of the wrong implementation that lie outside its format; ``too_far``: x̂ is further
    from x than half a step of the right grid, and further than the right implementation's; ``hidden``: the
    error computed afterwards is not the true error.
    """

    x: Tensor
    wrong: Outcome
    right: Outcome
    outside: Tensor
    too_far: Tensor
    hidden: Tensor

    @property
    def wrong_cells(self) -> Tensor:
        """Cells that the mistake makes wrong, in any of these ways."""
        return self.outside | self.too_far | self.hidden


@dataclass(frozen=True)
class SourceLine:
    """A line of source, and whether the other implementation lacks it."""

    text: str
    differs: bool


def run(implementation: Implementation, x: Tensor) -> Outcome:
    """Run an implementation on a copy of x.

    Raises:
        QuantError: it does not run on such a tensor, or its result is not finite.
    """
    after = as_float32(x).clone()
    try:
        codes, scale, x_hat = implementation(after)
    except (RuntimeError, IndexError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise QuantError(
            f"This code does not run on a tensor of shape {tuple(x.shape)}: {reason}. Choose another tensor."
        ) from None
    if not (x_hat.isfinite().all() and x.any()):
        raise QuantError(
            "This code divides by 0 on this tensor, whose range has no width; choose a tensor whose values "
            "differ."
        )
    return Outcome(after, codes, scale.expand_as(x), x_hat, after - x_hat, x - x_hat)


def compare(case: WorkedCase, x: Tensor | None = None) -> OutcomePair:
    """Run both implementations on x, by default the case's own tensor, and find the wrong cells.

    Raises:
        QuantError: one of them does not run on x.
    """
    x = as_float32(case.x() if x is None else x)
    wrong, right = run(case.wrong, x), run(case.right, x)
    fmt, far, least = case.format, wrong.true_error.abs(), right.true_error.abs()
    # x/s, x̂ and the error are each rounded once to float32: at most 2^-24 of |x| each
    half = right.scale / 2 + x.abs() * 2.0**-22
    return OutcomePair(
        x,
        wrong,
        right,
        outside=(wrong.codes < fmt.qmin) | (wrong.codes > fmt.qmax),
        too_far=(far > half) & (far > least),
        hidden=torch.ne(wrong.error, wrong.true_error),
    )


def lines(case: WorkedCase) -> tuple[list[SourceLine], list[SourceLine]]:
    """Return the source of both implementations, lines that differ marked, but for the function's name."""
    sources = (_source(case.wrong), _source(case.right))
    matcher = difflib.SequenceMatcher(None, sources[0][1:], sources[1][1:], autojunk=False)
    same: tuple[set[int], set[int]] = ({0}, {0})
    for a, b, length in matcher.get_matching_blocks():
        for numbers, start in zip(same, (a, b), strict=True):
            numbers |= set(range(start + 1, start + 1 + length))
    first, second = (
        [SourceLine(text, i not in numbers) for i, text in enumerate(source)]
        for source, numbers in zip(sources, same, strict=True)
    )
    return first, second


def _source(implementation: Implementation) -> list[str]:
    """Return the function's lines, without the types in its signature, which only the type checker needs."""
    text = inspect.getsource(implementation).replace("(x: Tensor) -> Parts:", "(x):")
    return text.rstrip().splitlines()
