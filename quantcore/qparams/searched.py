"""Scale, min and codes that one of ggml's searches finds, in boxes of groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.granularity import Blocks, Shape
from quantcore.notation import write_call
from quantcore.numerics import as_float32, refuse_nonfinite
from quantcore.programs import range_program
from quantcore.qparams.scale import QParams
from quantcore.range_setting import GroupScales, Search, Trial, span, total
from quantcore.scheme import Scheme
from quantcore.wording import count

Array = npt.NDArray[np.float32]
_BOX = 1 << 18  # elements searched at a time: ten arrays of 1 MB


def search_qparams(x: Tensor, scheme: Scheme, blocks: Blocks, importance: Any) -> QParams:
    """Return what the search finds for every group of the last axis, in block form; codes of x's shape.

    Raises:
        QuantError: x contains NaN or infinity, or the importance is missing, not finite, negative or of
            another shape.
    """
    refuse_nonfinite(x, "this search")
    groups = Groups(x, scheme, blocks, importance)
    scale, low, high, minimum, weights = (np.ones(groups.count, np.float32) for _ in range(5))
    codes = torch.empty(tuple(x.shape), dtype=scheme.format.dtype)
    by_group = codes.view(-1, groups.size).numpy()
    unsigned = scheme.symmetric and not scheme.format.signed
    middle = scheme.rules.zero_point.middle(scheme.format) if unsigned else 0
    step = max(1, _BOX // groups.size)
    with np.errstate(all="ignore"):
        for start in range(0, groups.count, step):
            rows = slice(start, min(start + step, groups.count))
            _, w, found = groups.search(np.arange(rows.start, rows.stop))
            scale[rows] = found.scale
            if importance is not None:
                weights[rows] = total(w)
            low[rows], high[rows] = span(found, scheme.format)
            if found.min is not None:
                minimum[rows] = found.min
            if found.codes is not None:
                by_group[rows] = (found.codes + np.float32(middle)).T
    sums = [scale, weights, *([minimum] if scheme.rules.zero_point.is_min else [])]
    _check_overflow(x, np.logical_and.reduce([np.isfinite(found) for found in sums]))

    def in_blocks(found: Array) -> Tensor:
        return torch.from_numpy(found).view(blocks.grid).to(x.device)

    stored, replaced = range_program(scheme).run(("s", "replaced"), {"raw": in_blocks(scale)})
    if scheme.symmetric:
        zero_point = torch.full(blocks.grid, middle, dtype=torch.int32, device=x.device)
    else:
        zero_point = -in_blocks(minimum)
    return QParams(
        stored,
        zero_point,
        in_blocks(low),
        in_blocks(high),
        replaced=replaced,
        searched=codes.to(x.device),
        weights=in_blocks(weights),
    )


def _check_overflow(x: Tensor, finite: npt.NDArray[np.bool_]) -> None:
    if not finite.all():
        many = count(int((~finite).sum()), "group")
        raise QuantError(
            f"The sums of the search overflow float32 in {many}, so what ggml writes there is meaningless; "
            f"scale x or its importance down (max|x| is {float(x.abs().max()):.3g})."
        )


@dataclass(frozen=True)
class GroupSearch:
    """The search of one group: its elements and their weights, the trials, and what was found.

    ``x``, ``weights``: (elements,); ``scale``, ``minimum``: before they are stored; ``minimum`` may be None.
    ``best``: index of the trial taken, None if none was.
    """

    x: Array
    weights: Array
    trials: tuple[Trial, ...]
    scale: float
    minimum: float | None

    @property
    def best(self) -> int | None:
        """Index of the trial that was taken last."""
        return max((i for i, trial in enumerate(self.trials) if trial.taken[0]), default=None)


def search_of(x: Tensor, scheme: Scheme, blocks: Blocks, importance: Any, position: Shape) -> GroupSearch:
    """Return the search of the group at ``position`` of the grid, trial by trial."""
    number = np.ravel_multi_index(position, blocks.grid)
    trials: list[Trial] = []
    part, w, found = Groups(x, scheme, blocks, importance).search(np.array([number]), trials)
    minimum = None if found.min is None else float(found.min[0])
    return GroupSearch(part[:, 0], w[:, 0], tuple(trials), float(found.scale[0]), minimum)


class Groups:
    """The groups of x, with the importance of their elements and the search for their scales."""

    def __init__(self, x: Tensor, scheme: Scheme, blocks: Blocks, importance: Any) -> None:
        assert isinstance(scheme.range_setting, Search)
        self.setting, self.fmt, self.size = scheme.range_setting, scheme.format, blocks.block[-1]
        self.x = x.cpu().contiguous().numpy().reshape(-1, self.size)
        self.count, self.per_row = len(self.x), x.shape[-1] // self.size
        self.importance: Array | None = None
        if self.setting.weight.importance:
            if importance is None:
                raise QuantError(
                    f"{write_call(self.setting)} weighs elements by importance; give importance=."
                )
            self.importance = checked(importance, tuple(x.shape)).reshape(-1, self.size)
        self.sigmas = self.setting.sigmas(self.x.reshape(-1, x.shape[-1]))

    def search(
        self, numbers: npt.NDArray[np.int64], trials: list[Trial] | None = None
    ) -> tuple[Array, Array, GroupScales]:
        """Return elements and weights, both (elements of a group, groups), and what is found.

        Args:
            numbers: of the groups, in row-major order.
            trials: a list that the trials are added to.
        """
        part = np.ascontiguousarray(self.x[numbers].T)
        importance, sigma2 = None, None
        if self.importance is not None:
            # a matrix of E experts: group i of the tensor belongs to expert i // (groups per expert)
            experts = len(self.importance) // self.per_row
            expert = numbers // (self.count // experts)
            importance = np.ascontiguousarray(
                self.importance[expert * self.per_row + numbers % self.per_row].T
            )
        if self.sigmas is not None:
            sigma2 = self.sigmas[numbers // (self.count // len(self.sigmas))]
        with np.errstate(all="ignore"):
            w = self.setting.weight.of(part, importance, sigma2)
            return part, w, self.setting.search(part, w, self.fmt, trials)


def checked(importance: Any, shape: tuple[int, ...]) -> Array:
    """Return the importance as float32: (columns,), (experts, columns), or of the tensor's shape.

    Raises:
        QuantError: another shape, or a number that is negative or not finite.
    """
    given = as_float32(importance).cpu().contiguous()
    columns = shape[-1:]
    fits = [columns, shape] + ([(shape[0], *columns)] if len(shape) > 2 else [])
    if tuple(given.shape) not in fits:
        raise QuantError(
            f"importance has shape {tuple(given.shape)}, but the tensor has {shape}; give one number per "
            f"column, {columns}, or per expert and column, or per element."
        )
    refuse_nonfinite(given, "an importance", what="importance")
    if bool(given.amin() < 0):
        raise QuantError(
            "importance contains a negative number; give the mean of each column's squares, 0 or more."
        )
    return given.numpy()
