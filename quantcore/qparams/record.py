"""What a range leads to: scale, zero point, and what is kept beside them."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class QParams:
    """Quantization parameters in block form: axis i holds the number of blocks along axis i.

    ``low``, ``high``: the range that led to them (0 included, or made symmetric, where the scheme says
    so); None for `Given`. ``inverse``: 1/scale as the library keeps it (hqq), else None.
    ``replaced``: whether the range gave a scale that the convention does not use. ``raw``: the scales
    before they were quantized themselves, None where they were not. ``center``: the mean that was subtracted,
    one number, where the convention does so.
    """

    scale: Tensor
    zero_point: Tensor
    low: Tensor | None = None
    high: Tensor | None = None
    inverse: Tensor | None = None
    replaced: Tensor | None = None
    raw: Tensor | None = None
    center: Tensor | None = None

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """low and high, of parameters that a range led to."""
        assert self.low is not None
        assert self.high is not None
        return self.low, self.high
