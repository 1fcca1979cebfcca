"""HQQ's optimization of the zero_point; the scale stays as it is."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.range_setting.protocol import Range, RangeSetting, Task, parts

MAX_ITERATIONS = 1000


@dataclass(frozen=True)
class HalfQuadratic(RangeSetting):
    """Min-max, then the zero_point adjusted until an outlier-robust norm of the error stops falling.

    Half-Quadratic Quantization: the shrinkage operator of the l_p norm, p = ``lp_norm``, weighted by
    ``beta``, splits off part of the error, and the zero_point becomes the mean of q - (x - split)/s, at most
    ``iterations`` times, while the mean |error| of the whole tensor falls. Blocks are therefore not
    independent. The arithmetic is that of hqq 0.2.8's default on a CPU. Needs a convention with a float
    zero_point (hqq), and channels or groups.

    Badri and Shaji 2023, "Half-Quadratic Quantization of Large Machine Learning Models",
    mobiusml.github.io/hqq_blog; hqq/core/optimize.py, optimize_weights_proximal_legacy.

    Raises:
        QuantError: ``iterations`` is not an integer from 1 to 1000, ``lp_norm`` is not greater than 0 and at
            most 1, or ``beta`` is not greater than 0.
    """

    option = "half-quadratic"
    moves_zero_point = True
    about = "HQQ's optimizer"
    usual = ((),)

    iterations: int = 20
    lp_norm: float = 0.7
    beta: float = 10.0

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        if not 1 <= self.iterations <= MAX_ITERATIONS:
            raise QuantError(
                f"iterations={self.iterations} is outside 1..{MAX_ITERATIONS}; the usual value is 20."
            )
        if not (0 < self.lp_norm <= 1 and self.beta > 0):
            raise QuantError(
                f"half_quadratic needs 0 < lp_norm <= 1 and beta > 0, not {self.lp_norm:g} and {self.beta:g}."
            )

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block, for the scale and the first zero_point."""
        return blocks.amin(-1), blocks.amax(-1)

    def zero_point(self, blocks: Tensor, inverse: Tensor, zero_point: Tensor, task: Task) -> Tensor:
        """Return the zero_point of every block, float32.

        Args:
            blocks: all blocks of the tensor, (number of blocks, elements of a block).
            inverse: 1/scale, one number per block.
            zero_point: that of min-max, one number per block.
        """
        size = torch.empty_like(
            blocks
        )  # |error|: its mean rounds as in hqq only if it is taken over all elements at once
        least = torch.tensor(torch.inf)
        for _ in range(self.iterations):
            moved = torch.empty_like(zero_point)
            for rows, part in parts(blocks):
                s, z = inverse[rows, None], zero_point[rows, None]
                codes = torch.mul(part, s).add_(z).round_()
                codes.clamp_(task.format.qmin, task.format.qmax)
                error = part - (codes - z) / s
                torch.abs(error, out=size[rows])
                moved[rows] = torch.mean(codes - (part - self._shrunk(error)) * s, dim=1)
            zero_point = moved
            error_now = size.mean()
            if not error_now < least:
                break
            least = error_now
        return zero_point

    def _shrunk(self, error: Tensor) -> Tensor:
        """Apply the shrinkage operator: sign(e)·max(0, |e| - |e|^(p-1) / beta)."""
        size = error.abs()
        size.sub_((1.0 / self.beta) * size.pow(self.lp_norm - 1)).clamp_min_(0.0)
        return size.mul_(error.sign())
