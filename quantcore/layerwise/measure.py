"""The error of one weight of a checkpoint under several schemes: read once, in boxes of rows if it is large, with no codes kept."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from quantcore.analysis import Sums, errors_by_region, power_of, quick_sums
from quantcore.checkpoints import CheckpointTensor, ready, rows_per_box
from quantcore.checkpoints.ggml import GgufNames
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, PerFlatGroup, Shape, split_axes
from quantcore.layerwise.roles import kind_of
from quantcore.layerwise.table import WeightError, WeightRow
from quantcore.numerics import Stochastic, rounding
from quantcore.qparams import QParams, parameters, ranges
from quantcore.range_setting import Given, MinMax
from quantcore.scheme import Scheme, storage
from quantcore.wording import count, short

Result = TypeVar("Result")
WHOLE = 1 << 24  # elements of a weight that is read at once, and of a box of a larger one


def measured(tensor: CheckpointTensor, schemes: Sequence[Scheme], inputs: "Imatrix | None" = None) -> WeightRow:
    """Return the row of one weight; what can't be read or measured has the reason instead of numbers."""
    own = outlined(tensor, schemes)
    if own.reason:
        return own
    try:
        weights, coverage = inputs.of(own.name, own.shape) if inputs is not None else (None, "")
        work = WeightWalk(tensor, schemes, weights)
        power = work.run()
    except QuantError as reason:
        return replace(own, cells=(), reason=f"can't be read: {reason}")
    if not math.isfinite(power):
        return replace(own, cells=(), reason="contains NaN or infinite values, and is left alone")
    return replace(own, power=power, coverage=coverage, cells=tuple(map(work.cell, work.columns, own.cells)))


def outlined(tensor: CheckpointTensor, schemes: Sequence[Scheme]) -> WeightRow:
    """Return the row of one weight with the bytes of each cell alone, from headers."""
    try:
        _ = tensor.layout.fields  # raises if it can't be read
        own = WeightRow(tensor.name, tensor.shape, tensor.storage, kind_of(tensor.name), tensor.num_bytes, reason=_left_alone(tensor))
    except QuantError as reason:
        return WeightRow(tensor.name, (), "can't be read", kind_of(tensor.name), tensor.num_bytes, reason=f"can't be read: {reason}")
    return own if own.reason else replace(own, cells=tuple(_stored_cell(scheme, own.shape) for scheme in schemes))


def _stored_cell(scheme: Scheme, shape: Shape) -> WeightError:
    """Return a cell with the bytes alone, or why the scheme does not fit."""
    try:
        bits = storage(scheme, shape)
    except QuantError as reason:
        return WeightError(problem=str(reason))
    return WeightError(num_bytes=(bits.codes + bits.scales + bits.zero_points) / 8)


def _left_alone(tensor: CheckpointTensor) -> str:
    """Say why a weight is not quantized; empty if it is."""
    if not math.prod(tensor.shape):
        return "has no elements"
    if len(tensor.shape) < 2:
        return "is a norm, a bias or another vector, and is left alone"
    if tensor.layout.is_plain and not tensor.layout.dtype.is_floating_point:
        return "holds integers, and is left alone"
    return ""


@dataclass
class Column:
    """What is summed for one scheme.

    ``rows``: how many rows stay together so that boxes have the scales of the whole weight, 0 if none can be cut; ``ends``:
    the ranges, where blocks extend over all rows.
    """

    scheme: Scheme
    rows: int = 1
    sums: Sums = field(default_factory=Sums)
    clipped: int = 0
    output: float = 0.0
    ends: tuple[Tensor, Tensor] | None = None
    problem: str = ""

    @property
    def params(self) -> QParams | None:
        """The parameters that follow from the ranges, where blocks extend over all rows."""
        if self.ends is None:
            return None
        return parameters(*self.ends, self.scheme.symmetric, self.scheme.format, self.scheme.rules)

    def divide(self, shape: Shape, undivided: str) -> None:
        """Find how many rows stay together; ``undivided``: the problem of a scheme that needs all at once and not just their ranges."""
        try:
            self.rows = rows_together(self.scheme, shape)
            self.problem = "" if self.rows or by_range(self.scheme, shape) else undivided
        except QuantError as reason:
            self.problem = str(reason)

    def add_ranges(self, x: Tensor) -> None:
        """Extend the ranges to those of a box."""
        low, high = ranges(x, self.scheme)
        self.ends = (low, high) if self.ends is None else (torch.minimum(low, self.ends[0]), torch.maximum(high, self.ends[1]))

    def add(self, x: Tensor, weights: Tensor | None) -> None:
        """Add the errors of a box."""
        blocks = Blocks.of(self.scheme.granularity, tuple(x.shape))
        spread = None if weights is None else blocks.view(weights.expand(x.shape))
        for region, _, error, clipped in errors_by_region(x, self.scheme, params=self.params):
            self.clipped += clipped
            if spread is not None:
                own = split_axes(spread[region.elements], region.block)
                self.output += float(error.double().square_().mul_(own).sum())
            self.sums.merge(quick_sums(None, error))


class WeightWalk:
    """One walk over the rows of a weight, for all schemes; ``weights``: of its inputs, to broadcast with its rows."""

    def __init__(self, tensor: CheckpointTensor, schemes: Sequence[Scheme], weights: Tensor | None) -> None:
        self.shape, self.weights = tensor.shape, weights
        self.power, self.output_power = 0.0, 0.0
        self._layout = ready(tensor.layout)
        self.columns = [Column(scheme) for scheme in schemes]
        self._is_whole = math.prod(self.shape) <= WHOLE
        for column in () if self._is_whole else self.columns:
            column.divide(self.shape, f"needs all elements at once, and a weight of more than {WHOLE:,} is read in parts")

    def run(self) -> float:
        """Measure all schemes, and return Σx²."""
        across = [column for column in self.columns if column.rows == 0 and not column.problem]
        for x, _ in self._boxes() if across else ():
            for column in across:
                attempt(column, column.add_ranges, x)
        for x, weights in self._boxes():
            self.power += power_of(x)
            if not math.isfinite(self.power):
                return self.power
            if weights is not None:
                self.output_power += float(x.double().square_().mul_(weights).sum())
            for column in self.columns:
                attempt(column, column.add, x, weights)
        return self.power

    def cell(self, column: Column, own: WeightError) -> WeightError:
        """Return the cell of a scheme, with the bytes of its own."""
        if own.problem or column.problem:
            return replace(own, problem=own.problem or column.problem)
        column.sums.xx = self.power
        found, undefined = column.sums.metrics()
        output = math.nan if self.weights is None else column.output
        return WeightError(
            found["sqnr_db"], found["mse"], found["sse"], found["max_abs_error"], column.clipped, own.num_bytes,
            output, output / self.output_power if self.output_power else math.nan, undefined.get("mse", ""),
        )  # fmt: skip

    def _boxes(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Yield boxes of rows, with the weights of their inputs."""
        rows = self.shape[0]
        step = rows
        if not self._is_whole:
            multiple = math.lcm(*(max(1, c.rows) for c in self.columns))
            step = rows_per_box(rows, math.prod(self.shape[1:]), multiple, WHOLE)
        for start in range(0, rows, step):
            box = slice(start, min(start + step, rows))
            weights = self.weights
            if weights is not None and weights.shape[0] == rows > 1:
                weights = weights[box]
            yield self._layout.values(box), weights


def attempt(column: Column, work: Callable[..., Result], *given: Any) -> Result | None:
    """Do a part of a column's work unless one has failed; keep the reason and return None if it fails."""
    try:
        return None if column.problem else work(*given)
    except QuantError as reason:
        column.problem = str(reason)
        return None


def rows_together(scheme: Scheme, shape: Shape) -> int:
    """Return how many rows of axis 0 must stay together so that their codes are those of the whole tensor; 0: all.

    >>> rows_together(Scheme.parse("int4 per_group(32)"), (4096, 4096)), rows_together(Scheme.parse("int8 per_tensor"), (4096, 4096))
    (1, 0)

    Raises:
        QuantError: the scheme does not fit the shape.
    """
    blocks, setting, rules = Blocks.of(scheme.granularity, shape), scheme.range_setting, scheme.rules
    has_own = isinstance(setting, Given) and tuple in (type(setting.scale), type(setting.zero_point))  # for each block
    if rules.scale.center == "mean" or isinstance(rounding(rules.coding.rounding), Stochastic) or has_own:
        return 0
    inner = 1 if scheme.scales is None else rows_together(scheme.scales, blocks.grid)  # in blocks
    if isinstance(scheme.granularity, PerFlatGroup):
        width = math.prod(shape[1:])
        together = math.lcm(blocks.block[0] * inner, width) // width
    else:
        together = inner if isinstance(setting, Given) else blocks.block[0] * inner
    return together if together < shape[0] else 0


def by_range(scheme: Scheme, shape: Shape) -> bool:
    """Return whether ranges of boxes of rows give those of blocks that extend over all rows."""
    blocks = Blocks.of(scheme.granularity, shape)
    over_all = not isinstance(scheme.granularity, PerFlatGroup) and blocks.block[0] == shape[0]
    simple = scheme.scales is None and isinstance(scheme.range_setting, MinMax) and scheme.rules.scale.center != "mean"
    return over_all and simple and scheme.rules.scale.symmetric_scale != "signed_amax"


class Imatrix:
    """The mean squared inputs of weights, from an imatrix opened as a checkpoint.

    Raises:
        QuantError: it is not an imatrix, or an entry can't be read or is not a mean of squares.
    """

    def __init__(self, tensors: Mapping[str, CheckpointTensor], architecture: Any = None) -> None:
        self._tensors = {name: tensor for name, tensor in tensors.items() if tensor.storage == "imatrix"}
        self._names = GgufNames.of(architecture)
        if not self._tensors:
            raise QuantError("This is not an imatrix: it has no entries. Give a .gguf or .dat file that llama-imatrix wrote.")
        for name, tensor in self._tensors.items():
            wrong = tensor.read().double()
            wrong = wrong[~(torch.isfinite(wrong) & (wrong >= 0))]
            if len(wrong):
                raise QuantError(
                    f"The imatrix's entry {short(name, 120)} contains {float(wrong[0]):g}, which is not a mean of squares; "
                    "compute the imatrix again."
                )

    def of(self, name: str, shape: Shape) -> tuple[Tensor | None, str]:
        """Return weights that broadcast with a weight of ``shape``, None if there are none, and a sentence on them."""
        keys = [(name, None), *self._names.of_name(name)]
        found, expert = next(((n, e) for n, e in keys if n in self._tensors), ("", None))
        if not found:
            return None, "no entry"
        means = self._tensors[found].read().double()
        counts = self._tensors[found].layout.stored().get("counts")
        if means.shape[1] != shape[-1] or (expert is not None and expert >= len(means)):
            return None, f"its entry has {means.shape[1]:,} inputs, the weight {shape[-1]:,}"
        if expert is not None:
            means, counts = means[expert : expert + 1], None if counts is None else counts[expert : expert + 1]
        said = "" if counts is None else f"{int(counts.min()):,} tokens seen" if len(counts) == 1 else (
            f"{int((counts == 0).sum()):,} of {count(len(counts), 'expert')} without tokens, {int(counts.sum()):,} tokens seen"
        )
        if len(means) == 1:
            return means.view(*(1,) * (len(shape) - 1), -1), said
        if len(shape) == 3 and len(means) == shape[0]:
            return means[:, None, :], said
        return None, f"its entry has {len(means):,} × inputs, the weight {shape[0]:,}"
