"""What is wrong or unusual about stored scales, zero points and the group of each column (g_idx)."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.checkpoints.findings.record import CheckpointFinding, error, finding_of, note, warning
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import GROUP_INDEX, SCALE, GroupOrder
from quantcore.checkpoints.rows import boxes

FEW = 8  # fewer scales than this can all be powers of two by chance


def of_parameters(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield the findings that need only the parameters of a quantized weight.

    Raises:
        QuantError: they can't be read.
    """
    # decisions against the config or without it, which other readers may make differently, and the format's own checks
    said = (*layout.statements(), *(layout.checks(layout) if layout.checks is not None else ()))
    yield from (finding_of(s.severity, s.kind, layout, s.words, **s.facts) for s in said)
    powers = any(s.kind == "e8m0_nan" for s in said)
    yield from of_group_index(layout)
    yield from (found for found in _scales(layout) if not (powers and found.kind == "scale_nonfinite"))
    yield from _powers_of_two(layout)


def _scales(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield the scales that are not finite or negative; of zeros, see `extremes`."""
    nonfinite, negative, total = _Marked(), _Marked(), 0
    for start, scale in scale_boxes(layout):
        nonfinite.add(~scale.isfinite(), start)
        negative.add(scale < 0, start)
        total += scale.numel()
    if nonfinite.count:
        words = "{has} {scales:NaN or infinite scale}, first at {first} of the grid of blocks; the values there are wrong."
        yield error(layout, "scale_nonfinite", words, scales=nonfinite.count, first=nonfinite.first)
    # those of MLX and ggml are signed, and nested ones of bitsandbytes are rounded
    unusual = layout.symmetric and SCALE in layout.fields
    if unusual and negative.count:
        words = (
            "{has} {scales:negative scale} ({share:%}), first at {first} of the grid of blocks; {its} format does not write "
            "negative scales."
        )
        count = negative.count
        yield warning(layout, "scale_negative", words, scales=count, share=count / total, first=negative.first)


class _Marked:
    """The number of marked entries over boxes of rows, and the index of the first."""

    def __init__(self) -> None:
        self.count = 0
        self.first: tuple[int, ...] = ()

    def add(self, mask: Tensor, start: int) -> None:
        """Count the marks of a box whose first row is ``start``."""
        n = int(mask.sum())
        if n and not self.count:
            place = mask.nonzero()[0].tolist()
            self.first = (place[0] + start, *place[1:]) if place else ()  # of one scale that has no axes
        self.count += n


def scale_boxes(layout: Layout) -> Iterator[tuple[int, Tensor]]:
    """Yield the effective scales in block form, in boxes of rows, each with its first row."""
    if layout.blocks.blocked_shape != layout.shape or layout.blocks.block[:1] != (1,):
        scale = layout.scale()
        if scale is not None:
            yield 0, scale
        return
    for box in boxes(layout):
        scale = layout.parameters(box).scale
        if scale is None:
            return
        yield box.start, scale
        if scale.numel() == 1 < layout.shape[0]:  # one scale for all rows
            return


def _powers_of_two(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield scales in float32 that E8M0 could store."""
    field = layout.fields.get(SCALE)
    if field is None or field.piece.dtype != "F32":
        return
    scale = field.read().contiguous()
    powers = (scale.view(torch.int32) & 0x7FFFFF == 0) & (scale != 0)
    if scale.numel() >= FEW and bool((powers | (scale == 0)).all()) and int((powers & (scale != 1)).sum()):
        words = (
            "{has} float32 scales that are all powers of two ({scales:scale}), as in E8M0 (ue8m0); if they were rounded "
            "after the codes were computed, values are too large or too small by a factor of up to 2."
        )
        yield warning(layout, "scales_powers_of_two", words, scales=int(powers.sum()))


def of_group_index(layout: Layout) -> Iterator[CheckpointFinding]:
    """Yield findings about columns that are not in the order of their groups, and groups of a wrong size."""
    if GROUP_INDEX not in layout.fields:
        return
    found = layout.fields[GROUP_INDEX].read()
    if not found.numel() or bool((found == -1).all()):  # compressed-tensors: never set
        return
    yield from _sizes(layout, found)
    order = layout.group_order
    assert order is not None  # every format with a group index says it
    falls = found[1:] < found[:-1]
    if bool(falls.any()):
        yield _unsorted(layout, found, int(falls.nonzero()[0, 0]) + 1, order)
    elif order.said and layout.blocks.grid[-1] > 1:
        words = "{has} columns in the order of {its} groups, although the config says {says}; the values are the same."
        yield note(
            layout,
            "config_unused",
            words,
            says=order.option,
            groups=layout.blocks.grid[-1],
        )


def _unsorted(layout: Layout, found: Tensor, at: int, order: GroupOrder) -> CheckpointFinding:
    where = "{has} an unsorted g_idx: column {column} belongs to group {group}, the one before it to group {before}"
    say, words = (note, f"{where} {order.unsorted}") if order.said else (error, f"{where}{order.unsaid}")
    group, before = int(found[at]), int(found[at - 1])
    return say(layout, "g_idx_unsorted", words, column=at, group=group, before=before)


def _sizes(layout: Layout, found: Tensor) -> Iterator[CheckpointFinding]:
    """Yield the groups that do not have as many columns as the group size says; the last may have fewer."""
    size, groups = layout.blocks.block[-1], layout.blocks.grid[-1]
    if int(found.min()) < 0 or int(found.max()) >= groups:  # reading it says so
        return
    counts = torch.bincount(found.to(torch.int64), minlength=groups)
    expected = torch.full_like(counts, size)
    expected[-1] = layout.shape[-1] - size * (groups - 1)
    wrong = (counts.sort().values != expected.sort().values).nonzero()
    if not len(wrong):
        return
    at = int((counts != expected).nonzero()[0, 0])
    words = (
        "{has} a g_idx that gives group {group} {columns:column} instead of {size}; every group has as many columns as "
        "the group size, so it is damaged."
    )
    yield error(layout, "g_idx_unbalanced", words, group=at, columns=int(counts[at]), size=size)
