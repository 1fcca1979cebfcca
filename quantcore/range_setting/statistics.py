"""Range settings that trade clipping against rounding error, or use statistics of the elements."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore import notation
from quantcore.errors import QuantError
from quantcore.range_setting.protocol import Control, Range, RangeSetting, Task, parts

MAX_CANDIDATES = 10_000


@dataclass(frozen=True)
class MinMse(RangeSetting):
    """The range of least squared error: a grid search over ``candidates`` ranges, separately for each block.

    The candidates are min-max and the same range shrunk to (candidates - 1)/candidates, …, 1/candidates of
    its width. Symmetric: both bounds shrink towards 0, and so does max|x|. Asymmetric: both shrink in
    proportion towards 0, or if a block lies on one side of 0, its farther bound shrinks towards the nearer.
    Ties go to the widest. The error is measured by quantizing as the scheme does.

    Choukroun et al. 2019, "Low-bit Quantization of Neural Networks for Efficient Inference", arXiv
    1902.06822, section 3.1; Nagel et al. 2021, arXiv 2106.08295, section 3.1.

    Raises:
        QuantError: ``candidates`` is not an integer from 1 to 10,000.
    """

    option = "min MSE"
    about = "by the least squared error"
    usual = ((),)
    controls = (
        Control(
            "candidates", "candidates", "Candidates", 100, low=1, high=MAX_CANDIDATES,
            help="How many ranges to try for each block. With 100: min-max, then 99 %, 98 %, … of its width.",
        ),
    )  # fmt: skip

    candidates: int = 100

    @property
    def title(self) -> str:
        """``min MSE``, and how many candidates if that is unusual."""
        return self.option + f", {self.candidates} candidates" * (self != MinMse())

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        if not 1 <= self.candidates <= MAX_CANDIDATES:
            raise QuantError(
                f"candidates={self.candidates} is outside 1..{MAX_CANDIDATES:,}; the usual value is 100."
            )

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        assert task.search is not None
        low, high = blocks.amin(-1), blocks.amax(-1)
        anchor = torch.zeros_like(low) if task.symmetric else torch.zeros_like(low).clamp(low, high)
        fractions = 1 - torch.arange(self.candidates, device=low.device) / self.candidates
        return task.search(low, high, anchor, fractions)


@dataclass(frozen=True)
class MeanStd(RangeSetting):
    """mean - ``k``·std to mean + ``k``·std of the block's elements (population std).

    Computed in float64 and clamped to float32. Bhalgat et al. 2020, "LSQ+", arXiv 2004.09576, section 3.3,
    initializes weights with k = 3; Nagel et al. 2021, arXiv 2106.08295, section 3.1, use 6 for activations
    after batch normalization.

    Raises:
        QuantError: ``k`` is not a positive number.
    """

    option = "mean ± k·std"
    about = "k standard deviations around the mean"
    usual = ((3,),)
    controls = (
        Control(
            "k", "k", "k", 3.0, step=0.5, format="%g",
            help="The range extends this many standard deviations to each side of the mean.",
        ),
    )  # fmt: skip

    k: float

    @property
    def title(self) -> str:
        """``mean ± 3·std``."""
        return f"mean ± {self.k:g}·std"

    def __post_init__(self) -> None:
        notation.read_numbers(self)
        if not self.k > 0:
            raise QuantError(
                f"k={self.k:g} leaves no range; choose a positive number of deviations, such as 3."
            )

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        mean = _mean(blocks)
        reach = self.k * _mean(blocks, about=mean).sqrt()
        return _float32(mean - reach), _float32(mean + reach)


@dataclass(frozen=True)
class AbsMean(RangeSetting):
    """±the mean of |x|: with codes -1, 0, 1 (``int2n``) the scale is that mean, as in BitNet b1.58.

    Ma et al. 2024, "The Era of 1-bit LLMs", arXiv 2402.17764, section 2. The ε that the paper adds to
    the mean is left out: the convention handles a scale of 0.
    """

    option = "mean |x|"
    about = "the mean of |x|"
    usual = ((),)

    def __call__(self, blocks: Tensor, task: Task) -> Range:
        """Return (low, high), one number per block."""
        high = _float32(_mean(blocks, magnitude=True))
        return -high, high


def _mean(blocks: Tensor, about: Tensor | None = None, magnitude: bool = False) -> Tensor:
    """Return the mean of x, |x| or (x - ``about``)² of every block; float64, in pieces that fit the cache."""
    total = blocks.new_zeros(len(blocks), dtype=torch.float64)
    for rows, part in parts(blocks):
        wide = part.double()
        if about is not None:
            wide.sub_(about[rows, None]).square_()
        total[rows] += (wide.abs_() if magnitude else wide).sum(-1)
    return total / blocks.shape[1]


def _float32(bounds: Tensor) -> Tensor:
    largest = torch.finfo(torch.float32).max
    return bounds.clamp(-largest, largest).to(torch.float32)
