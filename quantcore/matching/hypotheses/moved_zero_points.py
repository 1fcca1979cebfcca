"""Codes whose zero_point was moved by a search over the whole tensor, as HQQ's optimizer does.

The search takes many times as long as min-max, but it changes the zero_point alone: in each block, some
zero_point must give all codes with the scale of min-max.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.conventions import CONVENTIONS
from quantcore.formats import IntFormat
from quantcore.matching.hypotheses.corruption import Corruption
from quantcore.matching.hypotheses.sample import Sample, Source, grid_of
from quantcore.matching.hypotheses.scoring import GivenCodes, Hypothesis
from quantcore.range_setting import HalfQuadratic
from quantcore.scheme import Scheme, unsupported_reason

MOST = 1 << 18  # elements: the search in larger tensors would hold up the others
_SLACK = 1e-3  # of a code: x / s is rounded
_OPTIMIZED = tuple(CONVENTIONS[name] for name in ("hqq", "hqq.linear"))


def moved(x: Tensor, every: Source, reading: GivenCodes) -> Iterator[Hypothesis]:
    """Yield HQQ's schemes whose scales allow the sampled codes of each block; ``every``: by min-max."""
    if x.numel() > MOST or not bool(x.isfinite().all()):
        return
    shape = tuple(x.shape)
    for fmt in reading.formats:
        for sample in every.samples if not fmt.signed else ():
            for i in np.flatnonzero(_allowed(sample, fmt, reading)).tolist():
                for convention in _OPTIMIZED:
                    scheme = Scheme(fmt, False, sample.granularities[i], HalfQuadratic(), convention)
                    if not unsupported_reason(scheme, shape, x.dtype):
                        yield Hypothesis(scheme, Corruption(), 0.0)


def _allowed(sample: Sample, fmt: IntFormat, reading: GivenCodes) -> npt.NDArray[np.bool_]:
    """Return a mask of the granularities in whose blocks a zero_point gives all sampled codes."""
    scale = grid_of(sample, False, fmt, _OPTIMIZED[0].at(sample.granularities[0])).scale
    codes, block = reading.drawn(sample).numpy(), sample.block.numpy()
    at_zero = codes - (sample.x / scale[sample.block]).numpy()  # if nothing were rounded
    low, high = np.full(len(scale), -np.inf), np.full(len(scale), np.inf)
    np.maximum.at(low, block, np.where(codes > fmt.qmin, at_zero - 0.5, -np.inf))
    np.minimum.at(high, block, np.where(codes < fmt.qmax, at_zero + 0.5, np.inf))
    allowed: npt.NDArray[np.bool_] = sample.count(torch.from_numpy(low > high + _SLACK)[sample.block]) == 0
    return allowed
