"""Tensors that are stored as their values: floats, and integers that no format claims."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Numbers, Rows
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, PLAIN
from quantcore.checkpoints.protocol.release import Refused, Release
from quantcore.formats import Format, IntFormat
from quantcore.granularity import PER_TENSOR


def find(release: Release) -> Iterator[Layout]:
    """Yield every stored tensor as its own weight."""
    for name, piece in release.stored.items():
        yield plain(name, piece)


def plain(name: str, piece: StoredTensor, storage: str = "", dtype: torch.dtype | None = None) -> Layout:
    """Return the layout of a stored tensor whose elements are its values.

    Args:
        storage: how it is stored, in words, if not as ``plain float16``.
        dtype: the reader's output dtype, if not that of the tensor.
    """
    if piece.dtype not in TORCH_DTYPES:
        reason = (
            f"{named(name)} has the dtype {piece.dtype}, which is not supported; save it in another one."
        )
        return cast(Layout, Refused(name, piece.shape, {"": piece}, reason, f"dtype {piece.dtype}"))
    own = dtype or TORCH_DTYPES[piece.dtype]
    storage = storage or f"plain {str(own).removeprefix('torch.')}"
    return Layout(
        name, piece.shape, own, {"": piece}, {CODES: Numbers(piece)},
        storage.partition(" ")[0], storage, _coded(name, own, storage), PER_TENSOR,
        own_value=PLAIN, fast=_values, symbols={CODES: "x"}, of_part=lambda part: plain(name, part, storage, dtype),
    )  # fmt: skip


def _coded(name: str, dtype: torch.dtype, storage: str) -> Format | str:
    """Return integers of up to 16 bits; other values are no codes."""
    bits = 8 * dtype.itemsize
    if dtype.is_floating_point or dtype == torch.bool or bits > 16:
        return f"{named(name)} is {storage}, so it has no codes; read its values."
    return IntFormat(bits, signed=dtype.is_signed)


def _values(layout: Layout, rows: Rows, out: Tensor | None) -> Tensor:
    field = layout.fields[CODES]
    if out is not None and layout.dtype.is_floating_point and not field.across_rows:
        return out.copy_(field.piece.numbers(() if rows is None else (rows,), widened=False))
    found = as_floats(field.read(rows))
    return found if out is None else out.copy_(found)


def as_floats(numbers: Tensor) -> Tensor:
    """Return stored numbers as float32."""
    if numbers.dtype == torch.uint64:  # which torch can't cast
        numbers = torch.from_numpy(numbers.numpy().astype("float32"))
    return numbers.to(torch.float32)
