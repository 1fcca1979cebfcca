"""What `Extremes` finds in small plain weights, of many at once.

A weight of 16 elements takes as many reads and calls as a large one, and a file may have thousands. So
neighbours in a file are read in one read, and those of one shape are summarized together.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES
from quantcore.checkpoints.findings.record import CheckpointFinding, alike
from quantcore.checkpoints.findings.stored import LONG
from quantcore.checkpoints.findings.summary import (
    Summary,
    largest_of,
    moments,
    of_bits,
    of_values,
    two_largest,
)
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.release import AsStored
from quantcore.checkpoints.tensor import CheckpointTensor
from quantcore.errors import QuantError

MOST = 1 << 12  # elements; reading and summarizing more takes longer than what surrounds it
_TOGETHER = 512  # weights that are read at once
_ELEMENTS = 1 << 18  # that are summarized at once
_SPAN = 1 << 23  # bytes of one read


class Checked(NamedTuple):
    """What the values of a weight say: its summary, and what is wrong with it alone."""

    summary: Summary
    findings: list[CheckpointFinding]


class SmallWeights:
    """Reads small plain weights ahead of a check, which takes them one by one in their order."""

    def __init__(self, tensors: Iterable[CheckpointTensor]) -> None:
        self._left = (record for tensor in tensors if (record := _small(tensor)) is not None)
        self._read: dict[str, Checked | None] = {}

    def take(self, tensor: CheckpointTensor) -> Checked | None:
        """Return what was found; None if the weight must be looked at alone."""
        record = _small(tensor)
        if record is None:
            return None
        if record.name not in self._read:
            self._read |= _checked(list(islice(self._left, _TOGETHER)))
        return self._read.pop(record.name, None)


def _small(tensor: CheckpointTensor) -> AsStored | None:
    """Return the record of a weight of a few floats; None of another."""
    record = tensor.record
    if not isinstance(record, AsStored) or not record.dtype.is_floating_point or not record.shape:
        return None
    return record if 0 < math.prod(record.shape) <= MOST else None


def _checked(records: Sequence[AsStored]) -> dict[str, Checked | None]:
    """Return what is found in each weight, by name; None if it must be looked at alone."""
    found: dict[str, Checked | None] = dict.fromkeys(record.name for record in records)
    data = {name: own for run in _runs(records) for name, own in _bytes(run)}
    readable = (record for record in records if record.name in data)
    for (shape, dtype), same in alike(readable, lambda record: (record.shape, record.piece.dtype)).items():
        step = max(1, _ELEMENTS // math.prod(shape))
        for some in (same[i : i + step] for i in range(0, len(same), step)):
            stacked = torch.from_numpy(np.stack([data[record.name] for record in some]))
            values = stacked.view(TORCH_DTYPES[dtype]).to(torch.float32)
            found |= {one.summary.name: one for one in _summarized(some, values, shape)}
    return found


def _runs(records: Iterable[AsStored]) -> Iterator[list[AsStored]]:
    """Yield weights that are near each other in a file, in the order of their bytes."""
    for same in alike(records, lambda record: id(record.piece.source)).values():
        run, stop = list[AsStored](), 0
        for record in sorted(same, key=lambda each: each.piece.offset):
            piece = record.piece
            is_near = piece.offset - stop <= piece.source.gap
            if run and not (is_near and piece.offset - run[0].piece.offset < _SPAN):
                yield run
                run, stop = [], 0
            run.append(record)
            stop = max(stop, piece.offset + piece.num_bytes)
        yield run


def _bytes(run: Sequence[AsStored]) -> Iterator[tuple[str, npt.NDArray[np.uint8]]]:
    """Yield the bytes of weights that are near each other, by name; of none if they can't be read."""
    start = run[0].piece.offset
    stop = max(record.piece.offset + record.num_bytes for record in run)
    with suppress(QuantError):  # raised again for the weight that can't be read
        data = np.frombuffer(run[0].piece.source.read(start, stop - start), np.uint8)
        for record in run:
            at = record.piece.offset - start
            yield record.name, data[at : at + record.num_bytes]


def _summarized(records: Sequence[AsStored], values: Tensor, shape: tuple[int, ...]) -> Iterator[Checked]:
    """Yield what is found in weights of one shape, a row of ``values`` each."""
    nonfinite = (~values.isfinite()).sum(1).tolist()
    largest_two = two_largest(values.abs().nan_to_num_(0.0, 0.0, 0.0))
    spreads, means = (each.tolist() for each in moments(values.nan_to_num(0.0, 0.0, 0.0)))
    flat = _may_have_flat_lines(values.view(-1, *shape)).tolist()
    for i, (record, two) in enumerate(zip(records, largest_two, strict=True)):
        largest = largest_of(*two, shape)
        if flat[i] and largest.first:
            continue
        summary = Summary(record.name, record.storage, shape, spreads[i], largest, means[i])
        findings = list(of_values(record, record.dtype, largest, nonfinite[i]))
        yield Checked(summary, findings + list(of_bits(record, Numbers(record.piece), summary)))


def _may_have_flat_lines(values: Tensor) -> Tensor:
    """Tell of each weight whether a row or a column of it may be flat."""
    found = torch.zeros(len(values), dtype=torch.bool)
    lines = values.flatten(2) if values.dim() > 2 else values[:, None, :0]
    for axis in (1, 2):
        if lines.shape[axis] >= LONG:
            found |= (lines == lines.narrow(axis, 0, 1)).all(axis).any(1)
    return found
