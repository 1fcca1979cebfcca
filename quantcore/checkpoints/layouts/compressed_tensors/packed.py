"""``pack-quantized``: integers of 1 to 8 bits in 32-bit words along the rows.

``weight_packed`` int32 [out, words], ``weight_scale`` [out, groups], ``weight_shape`` int64 [2]; asymmetric:
``weight_zero_point``, packed the same way down the rows, int32 [words, groups] (before 0.9, int8 [out, groups]);
activation order: ``weight_g_idx`` int32 [in]. Stored bits are q + 2^(bits-1).

Since 0.17.0, codes are packed densely and may cross words; before, a word held 32 // bits whole codes. For 3, 5, 6 and
7 bits, the number of words shows which packing was used; if it is the same for both, the version in the config decides.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import Order, dense, padded
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import CODES, GROUP_INDEX, SCALE, ZERO_POINT, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.statement import Statement
from quantcore.errors import QuantError
from quantcore.formats import Format, IntFormat
from quantcore.granularity import Granularity, PerChannel, PerGroup, PerTensor, Shape

DENSE_SINCE = (0, 17)


@dataclass(frozen=True, eq=False)
class PackQuantized(Layout):
    """A weight of packed integers; ``version``: of the library that wrote it; ``group_size``: None without groups."""

    bits: int = field(kw_only=True)
    is_symmetric: bool = field(kw_only=True)
    group_size: int | None = field(kw_only=True)
    version: str = field(kw_only=True)
    activation_order: bool = field(default=False, kw_only=True)

    @property
    def storage(self) -> str:
        """``compressed-tensors int4 per_group(128) symmetric``."""
        size = f"per_group({self.group_size})" if self.group_size else "per_channel"
        if not self.group_size and math.prod(self.pieces["weight_scale"].shape) == 1:
            size = "per_tensor"
        symmetry = "symmetric" if self.is_symmetric else "asymmetric"
        order = "actorder" if "weight_g_idx" in self.pieces else ""
        return words("compressed-tensors", f"int{self.bits}", size, symmetry, order)

    @property
    def element(self) -> Format:
        """Signed integers; 1-bit codes are the codes -1 and 0 of two bits."""
        return IntFormat(max(2, self.bits))

    @property
    def symmetric(self) -> bool:
        """As the config says."""
        return self.is_symmetric

    @property
    def granularity(self) -> Granularity:
        """Groups along the input axis, rows, or the whole tensor."""
        if self.group_size:
            return PerGroup(self.group_size)
        return PerTensor() if math.prod(self.pieces["weight_scale"].shape) == 1 else PerChannel(0)

    def statements(self) -> tuple[Statement, ...]:
        """Return the remarks, and a statement if ``weight_shape`` contradicts the packed codes; reads it."""
        if "weight_shape" not in self.pieces:
            return self.remarks
        stored = shape_of(self.pieces["weight_packed"], self.pieces["weight_shape"])
        if stored == self.shape:
            return self.remarks
        words = "{has} a weight_shape of {stored}, but {its} packed codes and scales are those of {shape}, which is used."
        return (
            *self.remarks,
            Statement("weight_shape", "error", words, {"stored": stored, "shape": self.shape}),
        )

    def order(self, n: int, stored: int) -> Order:
        """Return the order in which ``n`` codes fill ``stored`` words."""
        new, old = dense(self.bits, 32), padded(self.bits, 32)
        if new.words_of(n) == old.words_of(n):
            return old if _is_before(self.version, DENSE_SINCE) else new
        return old if stored == old.words_of(n) else new

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales, zero points, and the group of each column."""
        packed, offset = self.pieces["weight_packed"], 1 << (self.bits - 1)
        order = self.order(self.shape[-1], packed.shape[-1])
        found: dict[str, Field] = {
            CODES: Packed(packed, order, self.shape, offset=offset, signed=True),
            SCALE: self._scale(),
        }
        if not self.is_symmetric:
            found[ZERO_POINT] = self._zero_point(found[SCALE].shape, offset)
        if "weight_g_idx" in self.pieces:
            found[GROUP_INDEX] = Numbers(self.pieces["weight_g_idx"])
            if found[GROUP_INDEX].shape != self.shape[-1:]:
                raise QuantError(
                    f"{named(self.name)} has a weight_g_idx whose length is not its number of inputs."
                )
        return found

    def _scale(self) -> Field:
        scale = Numbers(self.pieces["weight_scale"])
        groups = -(-self.shape[-1] // self.group_size) if self.group_size else 1
        if scale.shape != (*self.shape[:-1], groups) and math.prod(scale.shape) != 1:
            blocks = f" in groups of {self.group_size}" if self.group_size else ""
            raise QuantError(
                f"{named(scale.piece.name)} has shape {scale.shape}, but a weight of shape {self.shape}{blocks} "
                f"takes scales of shape {(*self.shape[:-1], groups)}; the file does not fit its config."
            )
        return scale

    def _zero_point(self, scale_shape: Shape, offset: int) -> Field:
        piece = self.pieces["weight_zero_point"]
        if piece.shape == scale_shape:  # as in older versions
            return Numbers(piece)
        axis = len(self.shape) - 2
        order = self.order(self.shape[axis], piece.shape[axis] if len(piece.shape) > axis else 0)
        return Packed(piece, order, scale_shape, axis=axis, offset=offset, signed=True)


def shape_of(packed: StoredTensor, stored: StoredTensor) -> Shape:
    """Read the logical shape from ``weight_shape``.

    Raises:
        QuantError: it is not the shape of the packed codes.
    """
    if stored.dtype not in ("I64", "I32") or stored.shape != (len(packed.shape),):
        raise QuantError(
            f"{named(stored.name)} is not the shape of a weight with {len(packed.shape)} axes; save the file again."
        )
    shape = tuple(int(n) for n in stored.numbers())
    # the number of words is compared with the last axis by `Packed`
    if shape[:-1] != packed.shape[:-1] or not 0 < shape[-1] <= 32 * packed.shape[-1]:
        raise QuantError(
            f"{named(stored.name)} says {shape}, but {named(packed.name)} has shape {packed.shape}; "
            "the file is damaged."
        )
    return shape


def _is_before(version: str, since: tuple[int, int]) -> bool:
    found = re.match(r"(\d{1,9})\.(\d{1,9})", version)
    return bool(found) and (int(found[1]), int(found[2])) < since  # type: ignore[index]
