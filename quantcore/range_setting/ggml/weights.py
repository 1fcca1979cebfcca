"""How much the error of each element counts in ggml's searches."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quantcore.range_setting.ggml.arithmetic import Floats, total


class Weight(NamedTuple):
    """A formula as text, and whether it needs importance, or the mean of x² over more than the group."""

    formula: str
    importance: bool
    mean: bool
    of: Callable[[Floats, Floats | None, Floats | None], Floats]


def _rms_plus_abs(x: Floats, importance: Floats | None, sigma2: Floats | None) -> Floats:
    found: Floats = np.sqrt(total(x * x) / np.float32(len(x))) + np.abs(x)
    return found


def _importance_rms(x: Floats, importance: Floats | None, sigma2: Floats | None) -> Floats:
    assert importance is not None
    assert sigma2 is not None
    found: Floats = importance * np.sqrt(sigma2 + x * x)
    return found


def _importance(x: Floats, importance: Floats | None, sigma2: Floats | None) -> Floats:
    assert importance is not None
    return importance


WEIGHTS: dict[str, Weight] = {
    "one": Weight("1", False, False, lambda x, importance, sigma2: np.ones_like(x)),
    "abs": Weight("|x|", False, False, lambda x, importance, sigma2: np.abs(x)),
    "square": Weight("x²", False, False, lambda x, importance, sigma2: x * x),
    "rms_plus_abs": Weight("√(mean x²) + |x|", False, False, _rms_plus_abs),
    "importance": Weight("importance", True, False, _importance),
    "importance_rms": Weight("importance · √(σ² + x²)", True, True, _importance_rms),
}


@dataclass(frozen=True)
class Weighting:
    """A name of `WEIGHTS`; for σ² = ``sigma2`` · mean x², the mean is over ``over`` elements, or the row if 0."""

    name: str
    sigma2: float = 1.0
    over: int = 0

    @property
    def mean_over(self) -> int | None:
        """Number of elements that the mean of x² is taken over, 0 for the row; None if the formula has no mean."""
        return self.over if WEIGHTS[self.name].mean else None

    def of(self, x: Floats, importance: Floats | None, sigma2: Floats | None) -> Floats:
        """Return the weights, (elements of a group, groups); ``sigma2``: σ² of every group."""
        return WEIGHTS[self.name].of(x, importance, sigma2)

    def sigmas(self, x: Floats) -> Floats | None:
        """Return σ² of every run of `over` elements of x, 2-D, in order; None if the formula has no mean."""
        if not WEIGHTS[self.name].mean:
            return None
        over = self.over or x.shape[-1]
        runs = x.reshape(-1, over)
        found = np.empty(len(runs), np.float32)
        step = max(1, (1 << 16) // over)
        for start in range(0, len(runs), step):
            part = runs[start : start + step]
            with np.errstate(over="ignore"):  # as in C: the search then finds no finite scale
                squares = total(np.ascontiguousarray((part * part).T))
            found[start : start + step] = np.float32(self.sigma2) * squares / np.float32(over)
        return found
