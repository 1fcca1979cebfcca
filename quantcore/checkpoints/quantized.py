"""A weight, or some of its rows, as a `Quantized` result, for everything in quantcore that works on one.

A window is part of one plane: the matrix of the weight's last two axes, at one index of the other axes (such
as an expert of a stack), so that a large weight can be viewed without reading all of it. Its numbers are
those of the full weight, bit for bit; only the requested rows are read, where the layout allows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from quantcore.checkpoints.layouts.plain import as_floats
from quantcore.checkpoints.protocol.layout import Layout, Parameters
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.rows import MOST_ELEMENTS
from quantcore.checkpoints.statement import named
from quantcore.conventions import TEXTBOOK
from quantcore.errors import QuantError
from quantcore.granularity import Blocks, Granularity, PerBlock
from quantcore.numerics import as_float32
from quantcore.qparams import QParams
from quantcore.quantization import Quantized
from quantcore.range_setting import Stored
from quantcore.scheme import Scheme

Span = tuple[int, int]


def quantized_of(layout: Layout, original: Any, values: Callable[[], Tensor]) -> Quantized:
    """Return a result whose codes and parameters are those of the file.

    Args:
        original: the tensor before it was quantized, or None.
        values: returns the values that are used if it is None.

    Raises:
        QuantError: the weight is not quantized or has no elements, or the original has another shape.
    """
    if 0 in layout.shape:
        raise QuantError(f"{named(layout.name)} has shape {layout.shape}, so it has no elements.")
    codes = layout.codes().to(layout.element.dtype)
    x = values() if original is None else as_float32(original)
    if tuple(x.shape) != layout.shape:
        raise QuantError(
            f"The original has shape {tuple(x.shape)}, but {named(layout.name)} has {layout.shape}; "
            "give the weight that it was quantized from."
        )
    groups = layout.group_index()
    granularity: Granularity = layout.granularity
    if groups is not None:  # a group's columns are not adjacent: every element is a block
        granularity = PerBlock((1,) * len(layout.shape))
    return _result_of(layout, layout.parameters(), groups, granularity, codes, x)


def _result_of(
    layout: Layout,
    parameters: Parameters,
    groups: Tensor | None,
    granularity: Granularity,
    codes: Tensor,
    x: Tensor,
) -> Quantized:
    """Return all or some rows of a weight as a result, with the convention that its parameters follow.

    Args:
        groups: the group of each column or element; None without a group index.
    """
    # parameters of a result are float32; a product in float64 differs from theirs by the last bit
    convention = TEXTBOOK.changed(decoding="scaled" if layout.decoding == "in_double" else layout.decoding)
    if layout.rounds_each:
        convention = convention.changed(decoding_dtype=str(layout.dtype).removeprefix("torch."))
    shift = parameters.zero_point if parameters.min is None else parameters.min
    if parameters.min is not None:
        convention = convention.changed(zero_point_form="min", kernel="H")
    elif shift is not None and shift.is_floating_point():
        convention = convention.changed(zero_point_form="float", kernel="C")
    shift = torch.zeros((), dtype=torch.int32) if shift is None else shift
    setting = Stored(
        torch.ones(()) if parameters.scale is None else parameters.scale,
        shift if shift.is_floating_point() else shift.to(torch.int32),
        origin=f"{' '.join(dict.fromkeys(p.source.name for p in layout.pieces.values()))}: {layout.name}",
        group_index=groups,
        owner=layout,
        num_bytes=layout.num_bytes,
    )
    scheme = Scheme(layout.element, layout.symmetric, granularity, setting, convention)
    params = QParams(*setting.parameters(Blocks.of(granularity, tuple(codes.shape)).grid, x.device))
    # the number that the library dequantizes with instead of the scale, if any
    if layout.decoding == "divided":
        params = replace(params, scale=1 / params.scale, inverse=params.scale)
    elif layout.decoding == "of_largest":
        params = replace(params, scale=params.scale * (1 / layout.element.symmetric_max), high=params.scale)
    return Quantized(x, scheme, codes, params)


@dataclass(frozen=True, eq=False)
class Window:
    """Rows of a plane of a weight.

    ``values``: float32 [rows, columns];
    ``result``: the same rows with codes and parameters, each row in blocks of its own, None if there are no
        codes;
    ``original``: the rows before they were quantized, if known.
    ``row``: the index of the first of them in the plane;
    ``block``: the size of the weight's blocks in the plane, (rows, columns).
    """

    values: Tensor
    result: Quantized | None
    original: Tensor | None
    row: int
    block: Span

    def against(self, original: Tensor) -> "Window":
        """Return the window with its original rows, float32, which were read elsewhere."""
        result = None if self.result is None else replace(self.result, kept=original)
        return replace(self, result=result, original=original)


def plane_shape(shape: Sequence[int]) -> Span:
    """Return the rows and columns of a weight's plane; a one-dimensional weight is one row.

    >>> plane_shape((8, 32, 64)), plane_shape((5,)), plane_shape(())
    ((32, 64), (1, 5), (1, 1))
    """
    height, width = (1, 1, *shape)[-2:]
    return height, width


def window_of(layout: Layout, rows: Span | None, at: tuple[int, ...], original: Layout | None) -> Window:
    """Return some rows of a plane.

    Args:
        rows: (start, stop); None for all.
        at: the index of the plane on all axes but the last two.
        original: the weight before it was quantized.

    Raises:
        QuantError: there are no such rows, they are too many to be read at once, or the weight can't be read.
    """
    part = _Part.of(layout, rows, at)
    values = None
    if original is not None:
        if original.shape != layout.shape:
            raise QuantError(
                f"The original has shape {original.shape}, but {named(layout.name)} has {layout.shape}; "
                "give the weight that it was quantized from."
            )
        values = _values(replace(part, layout=original))
    if not has_codes(layout):
        return Window(_values(part), None, values, part.start, (1, 1))
    result, block = _result(part)
    window = Window(result.x, result, None, part.start, block)
    return window if values is None else window.against(values)


def has_codes(layout: Layout) -> bool:
    """Tell whether a weight has codes to show, and not only values."""
    try:
        return layout.element is not None
    except QuantError:
        return False


@dataclass(frozen=True)
class _Part:
    """The rows from ``start`` to ``stop`` of the plane ``at`` an index."""

    layout: Layout
    at: tuple[int, ...]
    start: int
    stop: int

    @classmethod
    def of(cls, layout: Layout, rows: Span | None, at: tuple[int, ...]) -> "_Part":
        """Check the request."""
        _ = layout.fields  # raises if it can't be read
        shape, name = layout.shape, named(layout.name)
        if 0 in shape:
            raise QuantError(f"{name} has shape {shape}, so it has no elements.")
        height, width = plane_shape(shape)
        start, stop = rows or (0, height)
        if not 0 <= start < stop <= height:
            raise QuantError(
                f"The rows {start}:{stop} are not within 0:{height} of {name}; give a start below a stop, "
                "both inside."
            )
        if len(at) != max(0, len(shape) - 2) or any(not 0 <= i < n for i, n in zip(at, shape, strict=False)):
            raise QuantError(
                f"There is no plane at {at} in {name} of shape {shape}; "
                "give one index for each axis but the last two."
            )
        by_rows = len(shape) < 3 or layout.is_plain
        read = width * (stop - start if by_rows else height)
        if read > MOST_ELEMENTS:
            advice = "choose fewer rows" if by_rows else "its format does not allow reading fewer"
            raise QuantError(
                f"{stop - start:,} rows of {name} take {read:,} elements at once, more than the limit of "
                f"{MOST_ELEMENTS:,}; {advice}."
            )
        return cls(layout, at, start, stop)

    @property
    def rows(self) -> slice | None:
        """What to read along axis 0."""
        if len(self.layout.shape) < 2:
            return None
        return slice(self.at[0], self.at[0] + 1) if self.at else slice(self.start, self.stop)

    def cut(self, numbers: Tensor) -> Tensor:
        """Return the rows out of what was read along axis 0."""
        if not self.at:
            return numbers.reshape(-1, plane_shape(self.layout.shape)[1])
        plane = numbers[0]
        for i in self.at[1:]:
            plane = plane[i]
        return plane[self.start : self.stop]


def _values(part: _Part) -> Tensor:
    layout = part.layout
    if layout.is_plain and len(layout.shape) == 3:
        box = (slice(part.at[0], part.at[0] + 1), slice(part.start, part.stop))
        return as_floats(layout.fields[CODES].piece.numbers(box))[0]
    return part.cut(layout.values(part.rows))


def _result(part: _Part) -> tuple[Quantized, Span]:
    """Return codes, parameters and values of the rows, and the size of the weight's blocks."""
    layout = part.layout
    codes = part.cut(layout.codes(part.rows).to(layout.element.dtype))
    parameters, width, block = _parameters(part)
    result = _result_of(layout, parameters, None, PerBlock((1, width)), codes, codes)
    return replace(result, kept=result.dequantized), block


def _parameters(part: _Part) -> tuple[Parameters, int, Span]:
    """Return the parameters, one row per row; the columns of a block; and the size of the weight's blocks."""
    layout, shape = part.layout, part.layout.shape
    width = plane_shape(shape)[1]
    groups = layout.group_index()
    if groups is not None and groups.dim() > 1:
        own = groups[part.start : part.stop]
        return layout.parameters().each(lambda p: p if p.numel() == 1 else p.reshape(-1)[own]), 1, (1, 1)
    if layout.blocks.blocked_shape != shape:
        return _of_runs(part, width)
    block = (1, 1, *layout.blocks.block)[-2:]
    spread = _of_boxes(part, block[0])
    if groups is None:
        return spread, block[1], (block[0], block[1])
    return spread.each(lambda p: p if p.numel() == 1 else p[:, groups]), 1, (1, 1)


def _of_boxes(part: _Part, height: int) -> Parameters:
    """Return parameters of blocks that are boxes; ``height``: rows per block."""
    layout, at = part.layout, part.at
    grid = layout.blocks.grid
    if len(grid) < 2:
        return layout.parameters().each(lambda p: p.reshape(1, -1))
    first, rows = 0, slice(part.start // height, -(-part.stop // height))
    if at:
        above = at[0] // layout.blocks.block[0]
        rows = slice(above, above + 1)
    else:
        first = rows.start
    every = torch.arange(part.start, part.stop) // height - first

    def of_rows(p: Tensor) -> Tensor:
        if p.numel() == 1:
            return p
        for axis, i in enumerate(at):
            place = i // layout.blocks.block[axis] if axis else 0
            p = p[place if p.shape[0] > 1 else 0]
        p = p.index_select(0, every) if p.shape[0] > 1 else p.expand(len(every), -1)
        return p.expand(-1, grid[-1])

    return layout.parameters(rows).each(of_rows)


def _of_runs(part: _Part, width: int) -> tuple[Parameters, int, Span]:
    """Return parameters of blocks that are runs of the flat weight."""
    layout, size = part.layout, part.layout.blocks.block[0]
    plane = 0
    for i, n in zip(part.at, layout.shape, strict=False):
        plane = plane * n + i
    plane *= plane_shape(layout.shape)[0] * width
    start, stop = plane + part.start * width, plane + part.stop * width
    runs = slice(start // size, -(-stop // size))
    found = layout.parameters(runs)
    if width % size == 0:
        return found.each(lambda p: p if p.numel() == 1 else p.reshape(-1, width // size)), size, (1, size)
    if size % width == 0:
        rows = torch.arange(start, stop, width) // size - runs.start
        block = (size // width, width) if plane % size == 0 else (1, width)
        return found.each(lambda p: p if p.numel() == 1 else p.reshape(-1)[rows, None]), width, block
    each = (torch.arange(start, stop) // size - runs.start).reshape(-1, width)
    return found.each(lambda p: p if p.numel() == 1 else p.reshape(-1)[each]), 1, (1, 1)
