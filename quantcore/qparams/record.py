"""Quantization parameters: scale, zero point, and what they were computed from."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class QParams:
    """Quantization parameters in block form: axis i has one entry per block along axis i of the tensor.

    ``low``, ``high``: the range they were computed from (extended to 0 or made symmetric as the scheme says); None
    for `Given`. ``inverse``: 1/scale if the library stores it (hqq), else None. ``replaced``: whether the
    convention replaced the scale that the range gave. ``raw``: the scales before they were quantized
    themselves, None if they were not. ``center``: the mean that was subtracted, one number, None if none was.
    ``coded``: the scale that codes are computed with, if it is neither the stored one nor `raw`. After a search,
    until the codes are written: ``searched``, its codes in the shape of x, and ``weights``, the sum of the weights
    in each block.
    """

    scale: Tensor
    zero_point: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    inverse: Tensor | None = None
    replaced: Tensor | None = None
    raw: Tensor | None = None
    center: Tensor | None = None
    coded: Tensor | None = None
    searched: Tensor | None = None
    weights: Tensor | None = None

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """low and high, for parameters computed from a range."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high
