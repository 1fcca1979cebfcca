"""Findings from g_idx, the group of each column: an order that the config denies, and groups of unequal size."""

from collections.abc import Iterator

import torch
from torch import Tensor

from quantcore.checkpoints.findings.record import CheckpointFinding, error, note
from quantcore.checkpoints.protocol.layout import GroupOrder, Layout
from quantcore.checkpoints.protocol.value import GROUP_INDEX


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
    """Groups that do not have as many columns as the group size says; the last may have fewer."""
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
