"""The trials of one of ggml's searches: the weighted error of each, and which one was chosen."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.notation import write_call
from quantcore.qparams import searches_of
from quantcore.quantization import Quantized
from quantcore.range_setting import WEIGHTS, Search

Array = npt.NDArray[np.float64]
MAX_GROUPS = 1 << 13


@dataclass(frozen=True)
class SearchCurve:
    """The result of each trial, in the order of the search.

    ``tried``: what a trial divides by ``divisor`` to get 1/s, in ggml's names; ``scales``: the magnitude of
    the trial's scale; ``errors``: Σ w·(x - x̂)² of a group, or Σ w·|x - x̂|, with float32 scales; ``best``:
    the number of groups whose search ended with the trial. Scales and errors are means over the ``measured``
    groups, out of ``groups`` in all. ``weights``: the formula of w.
    """

    setting: Search
    tried: tuple[str, ...]
    divisor: str
    weights: str
    scales: Array
    errors: Array
    best: npt.NDArray[np.int64]
    groups: int
    measured: int

    @property
    def name(self) -> str:
        """The search in its text form."""
        return write_call(self.setting)


def search_curve(result: Quantized, block: tuple[int, ...] | None = None) -> SearchCurve:
    """Return the trials of the group at ``block``, or their means over all groups (of many, a regular sample).

    Raises:
        QuantError: the scheme's range setting is not a search.
    """
    setting, count = result.scheme.range_setting, result.blocks.count
    if not isinstance(setting, Search):
        raise QuantError(f"{write_call(setting)} is not a search; choose one such as make_qx.")
    step = -(-count // MAX_GROUPS)
    numbers = np.arange(0, count, step)
    if block is not None:
        numbers = np.array([np.ravel_multi_index(block, result.blocks.grid)])
    trials = searches_of(result.x, result.scheme, result.blocks, result.importance, numbers)
    taken = np.stack([trial.taken for trial in trials])
    last = len(trials) - 1 - taken[::-1].argmax(axis=0)
    best = np.bincount(last[taken.any(axis=0)], minlength=len(trials))
    errors, scales = (
        np.array([_mean(getattr(trial, name)) for trial in trials]) for name in ("error", "scale")
    )
    weights = WEIGHTS[setting.weighting.name].formula
    tried = tuple(trial.tried for trial in trials)
    return SearchCurve(setting, tried, setting.DIVISOR, weights, scales, errors, best, count, len(numbers))


def _mean(values: npt.NDArray[np.float32]) -> float:
    finite = values[np.isfinite(values)]
    return float(np.abs(finite.astype(np.float64)).mean()) if len(finite) else float("nan")
