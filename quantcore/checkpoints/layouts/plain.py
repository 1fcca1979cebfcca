"""Tensors that are stored as their values: floats, and integers that no format claims."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers, Rows
from quantcore.checkpoints.protocol.layout import CODES, Layout
from quantcore.checkpoints.protocol.location import Location
from quantcore.checkpoints.protocol.refused import Refused
from quantcore.checkpoints.protocol.release import Release
from quantcore.errors import QuantError
from quantcore.formats import Format, IntFormat
from quantcore.granularity import PER_TENSOR, Granularity


def find(release: Release) -> Iterator[Layout]:
    """Yield every stored tensor as its own weight."""
    for name, piece in release.stored.items():
        yield plain(name, piece)


def plain(name: str, piece: StoredTensor) -> Layout:
    """Return the layout of a stored tensor whose elements are its values."""
    if piece.dtype not in TORCH_DTYPES:
        reason = (
            f"{named(name)} has the dtype {piece.dtype}, which is not supported; save it in another one."
        )
        return Refused(name, piece.shape, torch.float32, {"": piece}, reason, f"dtype {piece.dtype}")
    return Plain(name, piece.shape, TORCH_DTYPES[piece.dtype], {"": piece})


@dataclass(frozen=True, eq=False)
class Plain(Layout):
    """One stored tensor, whose elements are the values."""

    @property
    def storage(self) -> str:
        """``plain float16``."""
        return f"plain {str(self.dtype).removeprefix('torch.')}"

    @property
    def element(self) -> Format:
        """Integers; floats have no codes.

        Raises:
            QuantError: the tensor is not quantized.
        """
        bits = 8 * self.dtype.itemsize
        if self.dtype.is_floating_point or self.dtype == torch.bool or bits > 16:
            raise QuantError(
                f"{named(self.name)} is {self.storage}, so it has no codes; read its values."
            )
        return IntFormat(bits, signed=self.dtype.is_signed)

    @property
    def granularity(self) -> Granularity:
        """One block: there is no scale."""
        return PER_TENSOR

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """The values, in place of codes."""
        return {CODES: Numbers(self.pieces[""])}

    def codes(self, rows: Rows = None) -> Tensor:
        """Return integers as they are.

        Raises:
            QuantError: the tensor holds floats.
        """
        _ = self.element
        return super().codes(rows)

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, float32."""
        field = self.fields[CODES]
        if out is not None and self.dtype.is_floating_point and not field.across_rows:
            return out.copy_(field.piece.numbers(() if rows is None else (rows,), widened=False))
        found = self._floats(field.read(rows))
        return found if out is None else out.copy_(found)

    def part(self, box: tuple[slice, ...]) -> Tensor:
        """Return a box of the values, float32: cut along axis 0 and one more."""
        return self._floats(self.pieces[""].numbers(box))

    def _floats(self, found: Tensor) -> Tensor:
        if self.dtype == torch.uint64:  # which torch can't cast
            found = torch.from_numpy(found.numpy().astype("float32"))
        return found.to(torch.float32)

    def locate(self, index: Sequence[int]) -> Location:
        """Return where the element is."""
        return Location(self.fields[CODES].place(tuple(index)), {})
