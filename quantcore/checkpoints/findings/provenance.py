"""How integer codes and their scales were computed, if it shows, and scales of 0 whose codes differ.

Min-max scales and rounding to nearest leave a trace: the largest |code| of a group is the divisor of its
scale, so dequantizing and quantizing again gives the same codes and scales. Scale searches do not leave it,
and GPTQ seldom.

A block of zeros has a scale of 0 in many libraries, and equal codes; if its codes differ, what it held is
lost. `Provenance` counts such blocks where codes are integers in groups of adjacent columns; `DeadScales` the
others: floats, blocks of several rows, columns in the order of a g_idx.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES
from quantcore.checkpoints.findings.against.grid import CodeGrid, rounding_of
from quantcore.checkpoints.findings.record import CheckpointFinding, error, note
from quantcore.checkpoints.findings.walk import Box
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import SCALE
from quantcore.checkpoints.statement import Facts
from quantcore.formats import IntFormat

MOST = 0.9  # of the groups
# relative: half a unit in the last place of the scale's dtype; for float32, two units
TOLERANCE = {"F16": 2.0**-11, "BF16": 2.0**-8, "F32": 2.0**-22}
_MANY = 0.01  # of the runs; the scales of small floats underflow in fewer, where weights hardly matter
_MATTERS = 0.05  # of the mean x² of the weight


@dataclass
class Provenance:
    """How many groups reach which codes, over boxes of rows."""

    layout: Layout
    groups: int = 0
    highest: int = 0
    lowest: int = 0
    same: int = 0
    dead: int = 0
    compared: int = 0
    ratios: float = 0.0
    in_bfloat16: bool = True
    symmetric: bool = field(init=False)

    def __post_init__(self) -> None:
        """Start with a count of 0 for what libraries divide max |w| by: 7, 7.5 and 8 for int4."""
        zero_point = None if self.layout.symmetric else self.layout.zero_point()
        # torchao stores zero points of 0 for symmetric weights, too
        self.symmetric = self.layout.symmetric or (
            self.layout.element.signed and (zero_point is None or not bool(zero_point.any()))
        )
        self.divided = dict.fromkeys((float(self.top), self.top + 0.5, self.top + 1.0), 0)
        # how many scales are these quotients in the original's dtype, or in float32, rounded to the scales'
        self.exact = {(divisor, own): 0 for divisor in self.divided for own in (True, False)}

    @classmethod
    def suits(cls, layout: Layout) -> bool:
        """Tell whether codes are integers in groups of adjacent columns, with integer zero points or none."""
        if layout.block_type or not isinstance(layout.element, IntFormat) or len(layout.shape) < 2:
            return False
        zero_point = layout.zero_point(slice(0, 1))
        return (
            SCALE in layout.fields
            and layout.blocks.blocked_shape == layout.shape
            and all(b == 1 for b in layout.blocks.block[:-1])
            and layout.group_index() is None
            and layout.min() is None
            and (zero_point is None or not zero_point.is_floating_point())
        )

    @property
    def top(self) -> int:
        """The largest code of a symmetric weight, minus the zero point: 7 for int4."""
        return (1 << (self.layout.element.bits - 1)) - 1

    def add(self, box: Box) -> None:
        """Add the codes of some rows, and compare their scales with the original, if there is one."""
        wide = torch.int16 if self.layout.element.bits <= 8 else torch.int32
        low, high = _extremes(box.codes.to(wide), self.layout.blocks.block[-1])
        known = low != high  # a group of equal codes, such as padding, shows nothing
        parameters = self.layout.parameters(box.rows)
        assert parameters.scale is not None  # see `suits`
        self.groups += int(known.sum())
        if self.symmetric:
            if parameters.zero_point is not None:
                zero_point = parameters.zero_point.to(wide)
                low, high = low - zero_point, high - zero_point
            largest = torch.maximum(-low, high)
            self.highest += int(((largest == self.top) & known).sum())
            self.lowest += int(((low == -self.top - 1) & known).sum())
            ratio = largest / self.top
        else:
            ratio = (high - low) / ((1 << self.layout.element.bits) - 1)
        rounded = parameters.scale.to(torch.bfloat16).to(torch.float32)  # torchao stores them as float32
        self.in_bfloat16 = self.in_bfloat16 and torch.equal(rounded, parameters.scale)
        self.dead += int(((parameters.scale == 0) & known).sum())
        # whether a scale times the ratio is the same scale in its dtype
        stored = TORCH_DTYPES[self.layout.fields[SCALE].piece.dtype]
        again = (parameters.scale * ratio).to(stored).to(torch.float32)
        same = (again - parameters.scale).abs() <= parameters.scale.abs() * TOLERANCE["F32"]
        self.same += int((same & known).sum())
        if box.source is not None:
            dtype = box.source.layout.dtype
            self.compare(box.original, box.rows, rounding_of(dtype), dtype)

    def compare(
        self, original: Tensor, rows: slice, rounding: float, dtype: torch.dtype = torch.float32
    ) -> None:
        """Compare the scales of some rows with the weight before it was quantized.

        Args:
            rounding: the relative rounding error of the original, which may be less precise than what was
                quantized.
            dtype: of the original.
        """
        if not self.symmetric:
            return
        scale = self.layout.parameters(rows).scale
        assert scale is not None
        low, high = _extremes(original, self.layout.blocks.block[-1])
        largest = torch.maximum(-low, high)
        known = (largest > 0) & (scale.abs() > 0)
        largest, scale = largest[known], scale.expand(largest.shape)[known].abs()
        ratio, stored = largest / scale, TORCH_DTYPES[self.layout.fields[SCALE].piece.dtype]
        tolerance = 2 * (TOLERANCE.get(self.layout.fields[SCALE].piece.dtype, 2.0**-11) + rounding)
        self.compared += ratio.numel()
        self.ratios += float(ratio.sum(dtype=torch.float64))
        for divisor in self.divided:
            self.divided[divisor] += int(((ratio - divisor).abs() <= divisor * tolerance).sum())
            for own in (True, False):
                computed = (largest / divisor).to(dtype if own and dtype.is_floating_point else torch.float32)
                self.exact[divisor, own] += int((computed.to(stored) == scale).sum())

    def found(self) -> Iterator[CheckpointFinding]:
        """Yield findings on how the scales and codes were computed."""
        if self.groups == 0:
            return
        if 0 < self.dead < self.groups:  # of all, `siblings` says more
            words = (
                "{has} a scale of 0 in {dead:group} of {groups}, although {its} codes there differ; "
                "their values are lost."
            )
            yield error(self.layout, "scale_zero", words, dead=self.dead, groups=self.groups)
        yield from _by_codes(self)
        if self.compared:
            yield from _by_scales(self)


def _extremes(values: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the lowest and highest number of each run of ``size`` columns; the last run may be shorter."""
    whole = values.shape[-1] // size * size
    parts = [values[..., :whole].reshape(*values.shape[:-1], -1, size)] if whole else []
    if whole < values.shape[-1]:
        parts.append(values[..., None, whole:])
    return torch.cat([p.amin(-1) for p in parts], -1), torch.cat([p.amax(-1) for p in parts], -1)


def _by_codes(seen: Provenance) -> Iterator[CheckpointFinding]:
    layout, top = seen.layout, seen.top
    rule = f"divisor {top}" if seen.symmetric else f"{(1 << layout.element.bits) - 1} steps"
    share = seen.same / seen.groups
    facts: Facts = {"same": share, "groups": seen.groups, "rule": rule}
    # a scale rounded to bfloat16, or a quotient, is off by half a code at the ends
    coarse = seen.in_bfloat16 and layout.element.bits == 8
    again = "dequantizing and quantizing again (min-max, {rule}, rounding to nearest)"
    if share >= MOST:
        words = (
            f"{{stays}} the same after {again} in {{same:%}} of {{its}} {{groups:group}}. Rounding to "
            "nearest and training (QAT) leave such codes, "
            "and so does GPTQ where it keeps the ends of most groups."
        )
        yield note(layout, "requantizing_is_identity", words, **facts)
    elif seen.symmetric and seen.lowest and seen.lowest + seen.highest >= MOST * seen.groups:
        words = (
            "{reaches} code {lowest} or {highest} in {share:%} of {its} {groups:group}: {its} scales are max "
            f"|w| divided by {'{highest} and rounded to bfloat16, by ' * coarse}{{half}} or {{whole}}, or "
            "smaller ones that clip."
        )
        reached = (seen.lowest + seen.highest) / seen.groups
        ends: Facts = {"lowest": -top - 1, "highest": top, "half": top + 0.5, "whole": top + 1}
        yield note(layout, "scale_divisor", words, share=reached, groups=seen.groups, **ends)
    else:
        words = (
            f"{{does}} not stay the same after {again}: {{same:%}} of {{its}} {{groups:group}} keep their "
            f"scale. GPTQ, AWQ, a scale search{', arithmetic in bfloat16' * coarse} or another rule for "
            "scales leaves such codes."
        )
        yield note(layout, "requantizing_changes", words, **facts)


def _by_scales(seen: Provenance) -> Iterator[CheckpointFinding]:
    def nearness(divisor: float) -> float:
        """To the mean ratio, in which rounding errors cancel unless all are alike."""
        return -abs(divisor - seen.ratios / seen.compared)

    divisor, own = max(seen.exact, key=lambda key: (seen.exact[key], nearness(key[0])))
    share = seen.exact[divisor, own] / seen.compared
    if share < MOST:  # the original is not what was quantized, or another rule for scales
        divisor = max(seen.divided, key=nearness)
        share = seen.divided[divisor] / seen.compared
    facts: Facts = {"divisor": divisor, "share": share, "tried": ", ".join(f"{d:g}" for d in seen.divided)}
    if share >= MOST:
        words = "{has} scales equal to the original's max |w| / {divisor} in {share:%} of {its} groups."
    else:
        words = (
            "{has} scales that are not the original's max |w| divided by one of {tried}: the nearest, "
            "{divisor}, fits {share:%} of {its} groups."
        )
    yield note(seen.layout, "scale_divisor", words, **facts)


@dataclass
class DeadScales:
    """Counts runs of columns whose scale is 0 although the values of their codes differ.

    ``dead``: of ``runs``;
    ``first``: the row and the column of the first;
    ``lost``, ``elements``: Σx² of the original in them, and how many they are;
    ``original``: Σx² of the rest.
    """

    layout: Layout
    runs: int = 0
    dead: int = 0
    first: tuple[int, int] = (0, 0)
    lost: float = 0.0
    elements: int = 0
    original: float = 0.0

    def __post_init__(self) -> None:
        """Find the columns of each run."""
        self._width = math.prod(self.layout.shape[1:])
        self._run = min(self.layout.blocks.block[-1], self._width)
        index = self.layout.group_index()
        self._order = None if index is None else index.argsort(stable=True)
        self._grid = CodeGrid(self.layout)

    @classmethod
    def suits(cls, layout: Layout) -> bool:
        """Tell whether runs of columns share a scale, and `Provenance` does not look at them.

        llama.cpp leaves the codes of sub-blocks whose scale becomes 0 as its search found them.
        """
        if layout.block_type or len(layout.shape) < 2:
            return False
        if not CodeGrid.suits(layout) or Provenance.suits(layout):
            return False
        index = layout.group_index()
        whole = len(layout.shape) == 2 or layout.shape[-1] % layout.blocks.block[-1] == 0
        return whole and (index is None or index.dim() == 1) and layout.blocks.blocked_shape == layout.shape

    def add(self, box: Box) -> None:
        """Add some rows, and those of the original."""
        given = self._grid.scales(box.rows), self._grid.bits(box.codes)
        scales, bits = (t.reshape(len(box.codes), -1) for t in given)
        if self._order is not None:
            scales, bits = scales[:, self._order], bits[:, self._order]
        values = self._grid.table[bits].nan_to_num(0.0, 0.0, 0.0)
        last = (self._width // self._run) * self._run  # a shorter run at the end is left out
        runs = [t[:, :last].reshape(len(t), -1, self._run) for t in (scales, values)]
        low, high = torch.aminmax(runs[1], dim=-1)
        dead = (runs[0] == 0).all(-1) & (low < high)
        self.runs += dead.numel()
        found = dead.nonzero()
        if len(found) and not self.dead:
            column = int(found[0, 1]) * self._run
            at = column if self._order is None else int(self._order[column])
            self.first = (int(found[0, 0]) + box.rows.start, at)
        self.dead += len(found)
        if box.source is not None:
            x = box.original.reshape(len(box.codes), -1).nan_to_num(0.0, 0.0, 0.0)
            x = x if self._order is None else x[:, self._order]
            squares = x[:, :last].reshape(len(x), -1, self._run).double().square().sum(-1)
            self.lost += float(squares[dead].sum())
            self.original += float(squares.sum())
            self.elements += len(found) * self._run

    def found(self) -> list[CheckpointFinding]:
        """Return what has been added, an error where it matters."""
        if not 0 < self.dead < self.runs:  # of all, `siblings` says more
            return []
        matters = isinstance(self.layout.element, IntFormat) or self.dead >= _MANY * self.runs
        if self.elements:
            matters = self.lost > _MATTERS * self.elements * self.original / (self.runs * self._run)
        words = (
            "{has} a scale of 0 in {dead} of {groups} runs of {size:column}, the first at {at}, although "
            "{its} codes there differ; their values are lost."
        )
        say = error if matters else note
        found = say(
            self.layout, "scale_zero", words,
            dead=self.dead, groups=self.runs, size=self._run, at=self.first,
        )  # fmt: skip
        return [found]
