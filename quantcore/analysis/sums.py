"""Sums over a tensor x and an approximation y of it, from which every error metric follows.

A box of rows is summed in float64 in runs of up to `RUN` columns, then the sums of the boxes are added in
order: neither threads nor stopping and resuming change the result.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.numerics import scratch

RUN = 256  # columns
_PIECE = 1 << 16  # elements worked on at once: three arrays of float64 in a core's cache
_ONES = np.ones(RUN)
_ONES32 = np.ones(RUN, np.float32)
Floats = npt.NDArray[np.float64]
_Values = npt.NDArray[np.float32]


@dataclass
class Sums:
    """Sums over ``count`` elements, with e = x - y.

    ``xx``, ``yy``, ``xy``, ``ee``: Σx², Σy², Σx·y, Σe²; ``ae``: Σ|e|. ``worst``: the largest |e|, NaN if one
    is; ``worst_at``: its flat index, the first one on ties.
    """

    count: int = 0
    xx: float = 0.0
    yy: float = 0.0
    xy: float = 0.0
    ee: float = 0.0
    ae: float = 0.0
    worst: float = -1.0
    worst_at: int = 0

    def merge(self, later: Self) -> None:
        """Add the sums of other elements."""
        for name in ("count", "xx", "yy", "xy", "ee", "ae"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        self.keep_worst(later.worst, later.worst_at)

    def keep_worst(self, worst: float, at: int) -> None:
        """Keep an |e| if it is the largest so far."""
        first = worst == self.worst and at < self.worst_at
        if worst > self.worst or first or (math.isnan(worst) and not math.isnan(self.worst)):
            self.worst, self.worst_at = worst, at

    @property
    def sqnr_db(self) -> float:
        """10·log10(Σx² / Σe²), see `sqnr_of`."""
        return sqnr_of(self.xx, self.ee)

    @property
    def relative(self) -> float:
        """The RMS error over the RMS of x."""
        return relative_error(self.xx, self.ee)

    def index(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return where the largest |e| is in a tensor of ``shape``; None if it is NaN or there is none."""
        if not self.count or math.isnan(self.worst):
            return None
        return tuple(int(i) for i in np.unravel_index(self.worst_at, shape)) if shape else ()

    def metrics(self, x: str = "x", y: str = "x̂") -> tuple[dict[str, float], dict[str, str]]:
        """Return the metrics that `Errors` has, and why some are undefined (nan), by name.

        Args:
            x, y: what the two tensors are called in the reasons.
        """
        n, length = self.count, math.sqrt(self.xx) * math.sqrt(self.yy)
        found = {
            "mse": self.ee / n if n else math.nan,
            "mae": self.ae / n if n else math.nan,
            "sse": self.ee,
            "rmse": math.sqrt(self.ee / n) if n else math.nan,
            "sqnr_db": self.sqnr_db if n else math.nan,
            "max_abs_error": self.worst if n else math.nan,
            # of the angle between the two; nan if one is 0 everywhere
            "cosine": min(max(self.xy / length, -1.0), 1.0) if length else math.nan,
        }
        why = self.reason(x, y)
        return found, {name: why for name, value in found.items() if math.isnan(value)}

    def reason(self, x: str = "x", y: str = "x̂") -> str:
        """Say why a metric is undefined; squares of float32 never overflow xx or yy."""
        sides = ((x, self.xx), (y, self.yy))
        nonfinite = [
            f"{name} contains {what}"
            for name, total in sides
            for what, is_so in (("NaN", math.isnan), ("infinity", math.isinf))
            if is_so(total)
        ]
        zero = [f"{name} is zero everywhere" for name, total in sides if total == 0]
        return " and ".join(nonfinite or zero)


class BoxSums(NamedTuple):
    """The sums of a box, and those of each run of ``run`` columns: Σx² and Σe², float64 [lines, runs]."""

    sums: Sums
    run: int
    xx: Floats
    ee: Floats


def sums_of(x: Tensor, y: Tensor, start: int = 0, rounded: bool = True) -> BoxSums:
    """Return the sums of a box; if a value is not finite, neither are they.

    Args:
        x, y: float32 [lines, columns].
        start: the flat index of their first element.
        rounded: whether e is rounded to float32, as `Quantized.error` is; otherwise it is float64.
    """
    a, b = x.cpu().numpy(), y.cpu().numpy()
    lines, columns = a.shape
    run = max(1, min(RUN, columns))
    of_runs = xx, yy, xy, ee, ae = tuple(np.empty((lines, -(-columns // run))) for _ in range(5))
    found = Sums(a.size)
    with np.errstate(invalid="ignore", over="ignore"):
        for line, column, high, wide, (p, q, e) in _pieces(lines, columns, run):
            own, at = p.shape[1] * run, np.s_[line : line + high, column : column + wide]
            for filled, side in ((p, a), (q, b)):
                np.copyto(filled.reshape(high, own)[:, :wide], side[at])
            sizes = e.reshape(high, own)[:, :wide]
            if rounded:
                sizes = scratch("sizes", (high, wide)).numpy()
                np.abs(np.subtract(a[at], b[at], out=sizes), out=sizes)
                np.copyto(e.reshape(high, own)[:, :wide], sizes)
            else:
                np.abs(np.subtract(p, q, out=e), out=e)
            runs = np.s_[line : line + high, column // run : column // run + p.shape[1]]
            for out, of, by in ((xx, p, p), (yy, q, q), (xy, p, q), (ee, e, e), (ae, e, _ONES[:run])):
                np.vecdot(of, by, out=out[runs])
            largest = float(sizes.max())
            if not largest <= found.worst:  # true for NaN too; the index is searched only for a new maximum
                i, j = divmod(int(sizes.argmax()), wide)
                found.keep_worst(largest, start + (line + i) * columns + column + j)
        found.xx, found.yy, found.xy, found.ee, found.ae = (float(of.sum()) for of in of_runs)
    return BoxSums(found, run, xx, ee)


def _pieces(lines: int, columns: int, run: int) -> Iterator[tuple[int, int, int, int, list[Floats]]]:
    """Yield pieces: first line and column, how many of each, and memory for x, y and |e|.


    The memory is float64 [lines, runs, run]; 0 where the last run of a line is longer than what is left of
    it.
    """
    padded = -(-columns // run) * run
    width = max(run, min(padded, _PIECE // run * run))
    tall = max(1, min(lines, _PIECE // max(1, padded)))
    memory = [scratch(f"wide {name}", (tall * width,), torch.float64).numpy() for name in "xye"]
    for line in range(0, lines, tall):
        for column in range(0, columns, width):
            high, wide = min(tall, lines - line), min(width, columns - column)
            runs = -(-wide // run)
            parts = [of[: high * runs * run].reshape(high, runs, run) for of in memory]
            if runs * run > wide:
                for part in parts:
                    part[:, -1, wide - runs * run :] = 0
            yield line, column, high, wide, parts


def quick_sums(x: Tensor | None, error: Tensor) -> Sums:
    """Return Σx², Σe², Σ|e| and the largest |e| to a relative 1e-6, without the other sums and its index.

    Args:
        x: float32, contiguous; None if Σx² is not needed.
        error: likewise; it is overwritten.
    """
    sizes = error.abs_().view(-1).cpu().numpy()
    total, worst = _total(sizes, _ONES32), float(sizes.max())
    if not total < math.inf:
        total = float(sizes.sum(dtype=np.float64))
    return Sums(len(sizes), 0.0 if x is None else power_of(x), ee=_squares(sizes), ae=total, worst=worst)


def power_of(x: Tensor) -> float:
    """Return Σx², x float32, with a relative error of at most 1e-6."""
    return _squares(x.reshape(-1).cpu().numpy())


def _total(values: _Values, factors: _Values) -> float:
    """Return Σ values·factors by runs in float32, added in float64."""
    whole = len(values) // RUN * RUN
    runs = values[:whole].reshape(-1, RUN)
    other = factors if factors is not values else runs
    with np.errstate(invalid="ignore", over="ignore"):
        total = float(np.vecdot(runs, other).sum(dtype=np.float64))
        rest = values[whole:].astype(np.float64)
        return total + float(rest @ (rest if factors is values else factors[: len(rest)]))


def _squares(values: _Values) -> float:
    """Return Σ values²: in float32, unless squares may leave its range."""
    total = _total(values, values)
    if 2.0**-70 < total < math.inf:
        return total
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.square(values, dtype=np.float64).sum())


def sqnr_of(power: float, sse: float) -> float:
    """Return 10·log10(power / sse) in dB, with power Σx² and sse Σerror²; nan for 0/0, ∞/∞ and NaN."""
    if math.isnan(power) or math.isnan(sse) or (power, sse) in ((0, 0), (math.inf, math.inf)):
        return math.nan
    if sse == 0:
        return math.inf
    return 10 * math.log10(power / sse) if power and sse < math.inf else -math.inf


def relative_error(power: float, sse: float) -> float:
    """Return the RMS error over the RMS of x, with power Σx² and sse Σerror²; 0 for 0/0."""
    return math.sqrt(sse / power) if power else math.inf if sse else 0.0
