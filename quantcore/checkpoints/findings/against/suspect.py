"""A weight whose error is wrong, with its original, in memory: causes are tried on it."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from quantcore.analysis import relative_error
from quantcore.checkpoints.comparison.sides import Opened
from quantcore.checkpoints.findings.against.grid import CodeGrid
from quantcore.checkpoints.findings.against.measure import Measure
from quantcore.checkpoints.findings.record import CheckpointFinding, finding_of
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.diagnosis import Severity

MOST = 1 << 24  # elements on which hypotheses are verified; of a larger weight, its first rows
FEW = 1 << 16  # elements on which they are tried first
_RESEMBLES = 0.8  # cosine
_UNLIKE = 0.9  # a relative error of which nothing is explained; that of 0 is 1
_QUARTER = 0.25  # the median |error| of rounding to nearest, in steps
_AFTER = "the relative error is {after} instead of {before}"


@dataclass(frozen=True, eq=False)
class Suspect:
    """The rows of a weight on which hypotheses are tried.

    ``x``: of the original, ``y``: of the release, [rows, columns]; further axes are rows.
    ``peers``: the other weights of its role and storage, by name in the release -> name in the original.
    ``normal``: the mean squared error of its siblings over that of rounding to nearest, ``usual`` their
        relative error; nan if there are too few.
    ``heads``: the number of heads of a query or key weight according to the config, else 0.
    ``gguf_differs``: whether one side is GGUF.
    """

    measure: Measure
    release: Opened
    source: Opened
    peers: dict[str, str]
    partners: dict[str, str]
    normal: float
    usual: float
    heads: int
    gguf_differs: bool
    is_far: bool = False
    most: int = MOST

    @property
    def layout(self) -> Layout:
        """Of the weight."""
        return self.measure.layout

    @cached_property
    def rows(self) -> slice:
        """The rows of axis 0 that are in memory."""
        shape = self.layout.shape
        return slice(0, min(shape[0], max(1, self.most // math.prod(shape[1:]))))

    @property
    def is_whole(self) -> bool:
        """Whether these are all rows."""
        return bool(self.rows.stop == self.layout.shape[0])

    def matrix(self, values: Tensor) -> Tensor:
        """Return values as rows and columns; a vector is one row."""
        return values.reshape(-1, self.layout.shape[-1])

    @cached_property
    def in_place(self) -> bool:
        """Whether most rows resemble those of the original: then their order is right."""
        if len(self.layout.shape) == 1:
            return False
        alike = torch.nn.functional.cosine_similarity(self.x, self.y, 1)
        return float(alike.median()) > _RESEMBLES

    @cached_property
    def x(self) -> Tensor:
        """The original's values."""
        return self.matrix(self.measure.source.read(self.rows)).nan_to_num(0.0, 0.0, 0.0)

    @cached_property
    def y(self) -> Tensor:
        """The release's values, not rounded to the output dtype."""
        return self.matrix(self.layout.values(self.rows, rounded=False)).nan_to_num(0.0, 0.0, 0.0)

    @property
    def grid(self) -> CodeGrid | None:
        """The grid of its codes, if it has one."""
        return self.measure.grid

    @cached_property
    def codes(self) -> Tensor:
        """The bits of each code, as indices into the table of the grid."""
        assert self.grid is not None
        return self.matrix(self.grid.bits(self.layout.codes(self.rows)))

    @cached_property
    def values(self) -> Tensor:
        """The value of each code, V."""
        assert self.grid is not None
        return self.grid.table[self.codes].nan_to_num(0.0, 0.0, 0.0)

    @cached_property
    def scales(self) -> Tensor:
        """The scale of each element, S."""
        assert self.grid is not None
        return self.matrix(self.grid.scales(self.rows))

    @cached_property
    def shift(self) -> Tensor:
        """What zero point or min add to S · V."""
        return self.y - self.scales * self.values

    @cached_property
    def offset(self) -> Tensor:
        """What zero point or min add, in units of the scale."""
        return (self.shift / self.scales).nan_to_num(0.0)

    @cached_property
    def step(self) -> Tensor:
        """The step at each element, in units of the weight; for a plain weight, its rounding error."""
        if self.grid is None:
            return self.x.abs() * (2 * self.measure.rounding) if self.layout.is_plain else self.x.abs()
        return self.scales.abs() * self.grid.gaps[self.codes]

    def fit(self, predicted: Tensor, step: Tensor | None = None, x: Tensor | None = None) -> "Residual":
        """Return how far predicted values are from the original."""
        x = self.x if x is None else x
        step = self.step if step is None else step
        error = (x - predicted).abs()
        known = step > 0
        ratio = (error[known] / step[known]) if bool(known.any()) else error.reshape(-1)
        middle = float(ratio.median()) / _QUARTER if ratio.numel() else 0.0
        power, left = float(x.double().square().sum()), float(error.double().square_().sum())
        return Residual(middle, relative_error(power, left))

    @cached_property
    def now(self) -> "Residual":
        """As it is stored."""
        return self.fit(self.y)

    def multiplied(self, factor: Tensor) -> "Residual":
        """Return the fit with the values, and so their steps, multiplied."""
        return self.fit(self.y * factor, self.step * factor.abs())

    def with_scales_of(self, changed: Layout) -> "Residual":
        """Return the fit with the scales of a changed layout; a min stays, and 0 where the scale is 0."""
        assert self.grid is not None
        own, other = self.grid, CodeGrid(changed)

        def ratio(blocks: slice | None) -> Tensor:
            return (other.steps(blocks) / own.steps(blocks)).nan_to_num_(0.0, 0.0, 0.0)

        factor = self.matrix(self.layout.spread(ratio, self.rows))
        y = factor * self.scales * self.values + self.shift if self.measure.has_min else factor * self.y
        return self.fit(y.nan_to_num_(0.0, 0.0, 0.0), factor.abs_().mul_(self.step))

    def explained(
        self, kind: str, words: str, fit: "Residual", complexity: float = 0, **facts: Any
    ) -> "Cause":
        """Return a hypothesis; ``words`` end with what is undone, and what error this leaves follows."""
        return Cause(kind, f"{words}, {_AFTER}.", facts, fit, complexity)

    def finding(self, cause: "Cause") -> CheckpointFinding:
        """Return the finding on what explains the error."""
        severity: Severity = "note" if cause.legitimate else "error"
        facts = {**cause.facts, "before": self.now.relative, "after": cause.fit.relative}
        return finding_of(severity, self.layout, cause.kind, cause.words, **facts)

    def explains(self, fit: "Residual") -> bool:
        """Tell whether a prediction leaves an error like that of siblings, and much less than before."""
        if self.layout.is_plain:
            most = max(2 * self.measure.rounding, 1e-6)
            return fit.relative <= most and fit.relative < 0.5 * self.now.relative
        if self.grid is None:
            level = self.usual if math.isfinite(self.usual) else 0.5
            return fit.relative < min(0.5 * self.now.relative, 1.3 * level)
        normal = math.sqrt(max(1.0, self.normal)) if math.isfinite(self.normal) else 2.0
        if math.isfinite(self.usual) and fit.relative > 1.5 * self.usual:
            return False
        less = fit.steps < 0.8 * self.now.steps or fit.relative < 0.7 * self.now.relative
        right = fit.relative < min(_UNLIKE, 0.9 * self.now.relative)
        return fit.steps < 1.25 * normal and less and right

    def improves(self, fit: "Residual") -> bool:
        """Tell whether a prediction for some rows or columns leaves less, and the others as they are."""
        return fit.relative < 0.995 * self.now.relative and fit.steps < 1.05 * self.now.steps


@dataclass(frozen=True)
class Residual:
    """How far values are from the original.

    ``steps``: the median |error| over that of rounding to nearest;
    ``relative``: the RMS error over the RMS of x.
    """

    steps: float
    relative: float


@dataclass(frozen=True)
class Cause:
    """A hypothesis that explains the error: a finding's kind, words (a template) and facts, and the fit.

    ``weight``: how many numbers it needed, its complexity: of two that fit alike, the simpler one is true.
    ``legitimate``: severity note instead of error. ``vector``: the factor of each column or row.
    """

    kind: str
    words: str
    facts: dict[str, Any]
    fit: Residual
    complexity: float = 0
    legitimate: bool = False
    vector: Tensor | None = None
