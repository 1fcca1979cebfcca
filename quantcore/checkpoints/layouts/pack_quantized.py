"""``pack-quantized``: integers of 1 to 8 bits in 32-bit words along the rows.

``weight_packed`` int32 [out, words], ``weight_scale`` [out, groups], ``weight_shape`` int64 [2]; asymmetric:
``weight_zero_point``, packed the same way down the rows, int32 [words, groups] (before 0.9, int8 [out,
groups]); activation order: ``weight_g_idx`` int32 [in]. Stored bits are q + 2^(bits-1).

Since 0.17.0, codes are packed densely and may cross words; before, a word held 32 // bits whole codes. For 3,
5, 6 and 7 bits, the number of words shows which packing was used; if it is the same for both, the version in
the config decides.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.packing import PackingOrder, dense, padded
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import Packed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, elsewhere, in_order
from quantcore.checkpoints.protocol.record import CODES, GROUP_INDEX, SCALE, ZERO_POINT, GroupOrder, words
from quantcore.checkpoints.statement import Statement, named
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import Granularity, PerChannel, PerGroup, PerTensor, Shape

DENSE_SINCE = (0, 17)
ORDER = GroupOrder(
    "actorder group",
    "(actorder); compressed-tensors 0.20 and later read the columns in order, so they get most values wrong.",
    ", but the config names no activation order; readers that trust it take the columns in order.",
)


@dataclass(frozen=True)
class PackQuantized:
    """A weight of packed integers, as its config describes it; `layout` makes its record.

    ``version``: of the library that wrote it; ``group_size``: None without groups.
    """

    bits: int
    symmetric: bool
    group_size: int | None
    version: str
    activation_order: bool

    def layout(
        self, name: str, shape: Shape, dtype: torch.dtype, pieces: Pieces,
        remarks: tuple[Statement, ...],
    ) -> Layout:  # fmt: skip
        """Return the layout of a weight.

        Raises:
            QuantError: the stored tensors don't fit each other or the config.
        """
        one = math.prod(pieces["weight_scale"].shape) == 1
        size = f"per_group({self.group_size})" if self.group_size else "per_tensor" if one else "per_channel"
        symmetry = "symmetric" if self.symmetric else "asymmetric"
        order = "actorder" if "weight_g_idx" in pieces else ""
        channels: Granularity = PerTensor() if one else PerChannel(0)
        return Layout(
            name, shape, dtype, pieces, self.fields(name, shape, pieces),
            "compressed-tensors", words("compressed-tensors", f"int{self.bits}", size, symmetry, order),
            IntFormat(max(2, self.bits)),  # 1-bit codes are the codes -1 and 0 of two bits
            PerGroup(self.group_size) if self.group_size else channels, self.symmetric,
            remarks=remarks, more=_contradicted, group_order=replace(ORDER, said=self.activation_order),
            rivals=self.rivals,
        )  # fmt: skip

    def fields(self, name: str, shape: Shape, pieces: Pieces) -> dict[str, Field]:
        """Return codes, scales, zero points, and the group of each column."""
        packed, offset = pieces["weight_packed"], 1 << (self.bits - 1)
        order = self.order(shape[-1], packed.shape[-1])
        scale = self._scale(shape, pieces["weight_scale"])
        found: dict[str, Field] = {
            CODES: Packed(packed, order, shape, offset=offset, signed=True), SCALE: scale
        }  # fmt: skip
        if not self.symmetric:
            found[ZERO_POINT] = self._zero_point(shape, scale.shape, pieces["weight_zero_point"])
        if "weight_g_idx" in pieces:
            found[GROUP_INDEX] = Numbers(pieces["weight_g_idx"])
            if found[GROUP_INDEX].shape != shape[-1:]:
                raise QuantError(
                    f"{named(name)} has a weight_g_idx whose length is not its number of inputs."
                )
        return found

    def order(self, n: int, stored: int) -> PackingOrder:
        """Return the order in which ``n`` codes fill ``stored`` words."""
        new, old = dense(self.bits, 32), padded(self.bits, 32)
        if new.words_of(n) == old.words_of(n):
            found = re.match(r"(\d{1,9})\.(\d{1,9})", self.version)
            return old if found and (int(found[1]), int(found[2])) < DENSE_SINCE else new
        return old if stored == old.words_of(n) else new

    def _scale(self, shape: Shape, piece: StoredTensor) -> Numbers:
        groups = -(-shape[-1] // self.group_size) if self.group_size else 1
        if piece.shape != (*shape[:-1], groups) and math.prod(piece.shape) != 1:
            blocks = f" in groups of {self.group_size}" if self.group_size else ""
            raise QuantError(
                f"{named(piece.name)} has shape {piece.shape}, but a weight of shape {shape}{blocks} "
                f"takes scales of shape {(*shape[:-1], groups)}; the file does not fit its config."
            )
        return Numbers(piece)

    def _zero_point(self, shape: Shape, scale_shape: Shape, piece: StoredTensor) -> Field:
        if piece.shape == scale_shape:  # as in older versions
            return Numbers(piece)
        axis = len(shape) - 2
        order = self.order(shape[axis], piece.shape[axis] if len(piece.shape) > axis else 0)
        return Packed(piece, order, scale_shape, axis=axis, offset=1 << (self.bits - 1), signed=True)

    def rivals(self, layout: Layout) -> Iterator[Reading]:
        """Yield the other packing, if the two differ, and the columns in order."""
        n, stored = layout.shape[-1], layout.pieces["weight_packed"].shape[-1]
        for version, what, reader in (
            ("0.16.0", "whole codes per word", "compressed-tensors before 0.17.0"),
            ("0.17.0", "codes across words", "compressed-tensors since 0.17.0"),
        ):
            other = replace(self, version=version)
            if self.bits in (3, 5, 6, 7) and other.order(n, stored) != self.order(n, stored):
                fields = other.fields(layout.name, layout.shape, layout.pieces)
                sentence = elsewhere(f"Reads {what}")
                yield Reading("packing", what, reader, layout.changed(fields=fields), sentence)
        if layout.group_index() is not None:
            yield in_order(layout.without(GROUP_INDEX), "compressed-tensors 0.20")


def _contradicted(layout: Layout) -> tuple[Statement, ...]:
    """Return a statement if ``weight_shape`` contradicts the packed codes; reads it."""
    if "weight_shape" not in layout.pieces:
        return ()
    stored = shape_of(layout.pieces["weight_packed"], layout.pieces["weight_shape"])
    if stored == layout.shape:
        return ()
    words = (
        "{has} a weight_shape of {stored}, but {its} packed codes and scales are those of {shape}, "
        "which is used."
    )
    return (Statement("weight_shape", "error", words, {"stored": stored, "shape": layout.shape}),)


def shape_of(packed: StoredTensor, stored: StoredTensor) -> Shape:
    """Read the logical shape from ``weight_shape``.

    Raises:
        QuantError: it is not the shape of the packed codes.
    """
    if stored.dtype not in ("I64", "I32") or stored.shape != (len(packed.shape),):
        raise QuantError(
            f"{named(stored.name)} is not the shape of a weight with {len(packed.shape)} axes; "
            "save the file again."
        )
    shape = tuple(int(n) for n in stored.numbers())
    # the number of words is compared with the last axis by `Packed`
    if shape[:-1] != packed.shape[:-1] or not 0 < shape[-1] <= 32 * packed.shape[-1]:
        raise QuantError(
            f"{named(stored.name)} says {shape}, but {named(packed.name)} has shape {packed.shape}; "
            "the file is damaged."
        )
    return shape
