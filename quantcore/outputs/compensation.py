"""GPTQ: columns are quantized one at a time, and the columns that follow make up for the error so far."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.outputs.column_coding import ColumnCoder
from quantcore.outputs.finishing import finished
from quantcore.outputs.matrices import TINY, layer_matrices, matrix
from quantcore.outputs.moments import checked_moment, second_moment, squared_errors
from quantcore.quantization import Quantized, apply_quietly
from quantcore.scheme import Scheme, as_scheme

_USUAL_BLOCK = 128
_LEAST_PIVOT = 2.0**-20  # over √ of its diagonal: smaller ones are mostly rounding errors of float64


@dataclass(frozen=True, eq=False)
class GptqStep:
    """One column of GPTQ.

    ``index``: its place in the order of processing, of ``count``; ``column``: its index in w. ``before``: its
    values after the updates of earlier columns, ``dequantized``: what its codes stand for, ``error``: their
    difference over ``diagonal``, the column's own entry of U; all float32 [out]. ``factors``: the entries of
    U for the columns that follow.
    """

    index: int
    count: int
    column: int
    before: Tensor
    dequantized: Tensor
    error: Tensor
    diagonal: float
    factors: Tensor

    @property
    def update(self) -> Tensor:
        """What is added to the columns that follow, in the order of processing: −error·factors."""
        return -torch.outer(self.error, self.factors)


@dataclass(frozen=True, eq=False)
class Compensated:
    """A weight quantized by GPTQ.

    ``quantized``: the result, in the order of w's columns; ``order``: the column at each place of processing,
    int64 [in]; ``inverse``: U, upper triangular with Uᵀ·U = (H + damping)⁻¹ in that order, float32 [in, in];
    ``objective``: Σ e·H·eᵀ with e = ŵ − w, the squared error of the output, and ``nearest_objective`` that of
    rounding to nearest by the same scheme.
    """

    w: Tensor
    quantized: Quantized
    order: Tensor
    inverse: Tensor
    objective: float
    nearest_objective: float
    steps: tuple[GptqStep, ...]

    def weight_before(self, index: int) -> Tensor:
        """Return the weight before a step, in the order of processing, float32 [out, in].

        Columns already quantized are dequantized; those that follow have all updates so far.
        """
        done = self.steps[:index]
        found = self.w[:, self.order].clone()
        if done:
            errors = torch.stack([step.error for step in done], 1)
            found[:, index:] -= errors @ self.inverse[:index, index:]
            found[:, :index] = torch.stack([step.dequantized for step in done], 1)
        return found


def gptq(
    w: Any,
    x: Any,
    scheme: Scheme | str,
    *,
    damping: float = 0.01,
    act_order: bool = False,
    static_groups: bool = False,
    block_size: int = _USUAL_BLOCK,
    lazy_ranges: bool = False,
    moment: Any = None,
) -> Compensated:
    """Return a weight quantized by GPTQ, and its steps.

    H = 2/tokens·xᵀ·x, plus ``damping`` times the mean of its diagonal. Columns are coded in order; the error
    of each, over its diagonal entry of U, is subtracted from those that follow in proportion to U's row.
    Frantar et al. 2022, "GPTQ", arXiv 2210.17323, algorithm 1. Columns whose inputs are all 0 become 0, as in
    the authors' gptq.py. U is computed in float64 here, in float32 there, so codes near a tie may differ;
    with ``lazy_ranges``, the codes are those of GPTQModel 7.7.0 on the layers tried.

    Args:
        w: weights [out, in].
        x: activations [tokens, in], or None with ``moment``.
        scheme: of the weight; its codes must follow from scale and zero point.
        act_order: takes the columns by falling diagonal of H.
        static_groups: finds the ranges of all groups before the first column, from w itself.
        block_size: columns after which the rest of the weight is updated, which saves time.
        lazy_ranges: finds the range of a group from weights updated up to the last multiple of
            ``block_size``, as gptq.py and GPTQModel do (quantization/gptq.py), instead of up to its first
            column.
        moment: H itself, [in, in], or its diagonal, such as an imatrix, which leaves nothing to make up for.

    >>> w, x = [[0.5, 0.5, 1.0]], [[1.0, 1.0, 0.0], [1.0, 0.9, 1.0]]
    >>> found = gptq(w, x, "int3 per_channel(0)")
    >>> found.quantized.codes.tolist()  # 2, 2, 3 to nearest: both round up, and their inputs go together
    [[2, 1, 3]]
    >>> f"{found.nearest_objective:.3f} {found.objective:.3f}"
    '0.211 0.000'

    Raises:
        QuantError: w, x and moment do not fit, the scheme can't code columns one at a time, or H can't be
            inverted.
    """
    steps = gptq_steps(
        w, x, scheme, damping=damping, act_order=act_order, static_groups=static_groups,
        block_size=block_size, lazy_ranges=lazy_ranges, moment=moment,
    )  # fmt: skip
    return finished(steps)


def gptq_steps(
    w: Any,
    x: Any,
    scheme: Scheme | str,
    *,
    damping: float = 0.01,
    act_order: bool = False,
    static_groups: bool = False,
    block_size: int = _USUAL_BLOCK,
    lazy_ranges: bool = False,
    moment: Any = None,
) -> Generator[GptqStep, None, Compensated]:
    """Yield the steps of `gptq` as they are done, and return its result; closing it stops the work.

    Raises:
        QuantError: as in `gptq`.
    """
    scheme, block_size = as_scheme(scheme), notation.integer(block_size, "block_size")
    if block_size < 1:
        raise QuantError(f"block_size must be 1 or more, not {block_size}; the usual value is 128.")
    numbers, h, scaled = _inputs(w, x, moment)
    coder = ColumnCoder(w, scheme)
    columns = numbers.shape[1]
    order = torch.argsort(h.diagonal(), descending=True, stable=True) if act_order else torch.arange(columns)
    inverse = _inverse_factor(scaled[order][:, order], damping)
    work = numbers.clone()
    if coder.width >= columns:  # as in the libraries: before inputs that are 0 are taken out
        coder.find_all(work)
    work[:, scaled.diagonal() == 0] = 0
    static = static_groups or coder.takes_all_at_once or coder.width >= columns
    if static and not coder.groups:
        coder.find_all(work)
    places = order if static else torch.arange(columns)  # of groups: of w's columns, or of processing
    loop = _Loop(work[:, order], inverse, coder, places // coder.width, static, block_size, lazy_ranges)
    steps = []
    for step in loop.steps(order):
        steps.append(step)
        yield step
    group_of, w_hat = torch.empty_like(order), torch.empty_like(numbers)
    group_of[order], w_hat[:, order] = places // coder.width, loop.dequantized
    quantized = coder.result(scheme, order, group_of, w_hat)
    nearest = apply_quietly(w, scheme).dequantized
    own, other = (float(squared_errors(hat.double() - numbers, h).sum()) for hat in (w_hat, nearest))
    return Compensated(numbers, quantized, order, inverse, own, other, tuple(steps))


def _inputs(w: Any, x: Any, moment: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return w, H = xᵀ·x or as given, and H as the algorithm scales it, float64 [in, in]."""
    if (x is None) == (moment is None):
        raise QuantError("GPTQ needs either activations x or their second moment; give one of them.")
    if moment is not None:
        numbers = matrix(w, "w")
        h = checked_moment(moment, numbers.shape[1])
        h = torch.diag(h) if h.dim() == 1 else h
        return numbers, h, h
    activations, numbers = layer_matrices(x, w)
    h = second_moment(activations)
    return numbers, h, h * (2 / len(activations))


def _inverse_factor(h: Tensor, damping: float) -> Tensor:
    """Return U with Uᵀ·U = (H + damping·mean of its diagonal)⁻¹, upper triangular, float32.

    Raises:
        QuantError: H is not positive definite with this damping.
    """
    damping = notation.finite(damping, "damping")
    if damping < 0:
        raise QuantError(f"damping must be 0 or more, not {damping:g}; the usual value is 0.01.")
    h = h.clone()
    diagonal = h.diagonal()
    diagonal[diagonal == 0] = 1  # an input that is always 0
    diagonal += damping * diagonal.mean()
    lower, failed = torch.linalg.cholesky_ex(h)
    upper: Tensor = lower
    if not bool(failed):
        upper, failed = torch.linalg.cholesky_ex(torch.cholesky_inverse(lower), upper=True)
    # an input that is a sum of others leaves rounding errors of its diagonal instead of 0
    if bool(failed) or float((lower.diagonal() / diagonal.sqrt()).min()) < _LEAST_PIVOT:
        raise QuantError(
            f"H can't be inverted with damping={damping:g}: fewer tokens than inputs, or inputs that repeat "
            "each other; give more tokens or more damping, such as 0.01."
        )
    found = upper.float()
    if not (bool(found.isfinite().all()) and float(found.diagonal().min()) > TINY):
        raise QuantError(
            "The factor of H⁻¹ exceeds float32: the activations are too small or large; scale x."
        )
    return found


@dataclass(eq=False)
class _Loop:
    """The columns of a weight in the order of processing.

    ``weight``: updated after each ``block_size`` columns; ``group_of``: the group of each column; ``static``:
    whether the coder has the parameters of all groups; ``lazy_ranges``: see `gptq`.
    """

    weight: Tensor
    inverse: Tensor
    coder: ColumnCoder
    group_of: Tensor
    static: bool
    block_size: int
    lazy_ranges: bool

    def __post_init__(self) -> None:
        self.dequantized = torch.empty_like(self.weight)

    def steps(self, order: Tensor) -> Generator[GptqStep, None, None]:
        """Quantize the columns and yield each; ``order``: their indices in w."""
        columns, groups = self.weight.shape[1], self.group_of.tolist()
        for start in range(0, columns, self.block_size):
            stop = min(start + self.block_size, columns)
            block, errors = self.weight[:, start:stop].clone(), torch.empty_like(self.weight[:, start:stop])
            for i in range(start, stop):
                at, group = i - start, groups[i]
                if not self.static and group not in self.coder.groups:
                    self.coder.find(group, self._columns_of_group(i, block, errors[:, :at]))
                before = block[:, at].clone()
                coded = self.coder.quantize(before, group, i)
                self.dequantized[:, i] = coded
                row = self.inverse[i, i:]
                errors[:, at] = (before - coded) / row[0]
                block[:, at:] -= torch.outer(errors[:, at], row[: stop - i])
                yield GptqStep(
                    i, columns, int(order[i]), before, coded, errors[:, at], float(row[0]), row[1:]
                )
            self.weight[:, stop:] -= errors @ self.inverse[start:stop, stop:]

    def _columns_of_group(self, first: int, block: Tensor, errors: Tensor) -> Tensor:
        """Return the columns of a group whose range is needed; ``errors``: of the block's columns so far."""
        end = first + self.coder.width
        if self.lazy_ranges:
            return self.weight[:, first:end]
        start = first - errors.shape[1]
        stop = start + block.shape[1]
        beyond = self.weight[:, stop:end] - errors @ self.inverse[start:first, stop:end]
        return torch.cat([block[:, first - start : end - start], beyond], 1)
