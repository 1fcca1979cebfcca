"""Small floats with a small float as the scale of each block: MXFP8, MXFP6, MXFP4, NVFP4.

A weight [out, in] is stored as codes, two FP4 codes per byte (the lower bits first) or four FP6 codes in three bytes;
scales [out, in/size] as E8M0 or E4M3 bytes; NVFP4 has one more scale for the tensor, by which the others are
multiplied or divided. Sources: OCP Microscaling Formats (MX) 1.0, 5.2-5.4; NVIDIA, "Introducing NVFP4", 2025.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from quantcore.checkpoints.packing import Order, dense, fits_pairs, high_first, look_up_pairs, pairs_of
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers, Rows, e8m0
from quantcore.checkpoints.protocol.layout import CODES, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.errors import QuantError
from quantcore.formats import FLOATS, Format
from quantcore.granularity import Granularity, PerGroup, Shape
from quantcore.numerics import round_to

SCALE_CODE, GLOBAL_SCALE = "scale_code", "global_scale"


@dataclass(frozen=True, eq=False)
class BlockFloats(Layout):
    """A weight in blocks of small floats.

    ``pieces``: "codes", "scale_code" and optionally "global_scale", whatever their names in the file. ``kind``: the
    start of `storage`, such as ``compressed-tensors nvfp4``; ``code``: "e2m1", "e2m3", "e3m2", "e4m3fn" or "e5m2";
    ``size``: elements per block. ``global_scale``: whether it multiplies or divides. ``e8m0_nan``: whether an E8M0
    scale of 255 is NaN. ``low_first``: whether the even-indexed code of two is in the lower bits of their byte.
    """

    low_first: ClassVar[bool] = True

    kind: str = field(kw_only=True)
    code: str = field(kw_only=True)
    size: int = field(kw_only=True)
    global_scale: Literal["multiplies", "divides", ""] = field(default="", kw_only=True)
    e8m0_nan: bool = field(default=False, kw_only=True)

    @property
    def storage(self) -> str:
        """``compressed-tensors nvfp4 e2m1 per_group(16)``."""
        return words(self.kind, self.code, f"per_group({self.size})")

    @property
    def element(self) -> Format:
        """The small float."""
        return FLOATS[self.code]

    @property
    def granularity(self) -> Granularity:
        """Blocks along the last axis."""
        return PerGroup(self.size)

    @property
    def symmetric(self) -> bool:
        """There is no zero point."""
        return True

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, and the scales as they are stored."""
        codes, scale = self.pieces[CODES], Numbers(self.pieces[SCALE_CODE], raw=True)
        grid = (*self.shape[:-1], -(-self.shape[-1] // self.size))
        if scale.shape != grid:
            raise QuantError(
                f"{named(scale.piece.name)} has shape {scale.shape}, but a weight of shape {self.shape} in blocks "
                f"of {self.size} takes scales of shape {grid}; the file does not fit its config."
            )
        bits = self.element.bits
        found: dict[str, Field] = {
            CODES: Numbers(codes, raw=True) if bits == 8 else Packed(codes, self._order, self.shape),
            SCALE_CODE: scale,
        }
        if self.global_scale:
            found[GLOBAL_SCALE] = Numbers(self.pieces[GLOBAL_SCALE])
        return found

    @property
    def _order(self) -> Order:
        bits = self.element.bits
        return dense(bits, 8) if self.low_first else high_first(bits, 8)

    @cached_property
    def _pairs(self) -> Tensor:
        return pairs_of(FLOATS[self.code].table, self.low_first)

    def scale(self, rows: Rows = None) -> Tensor:
        """Return the scale of each block, multiplied or divided by the tensor's if there is one; float32."""
        piece = self.pieces[SCALE_CODE]
        raw = self.fields[SCALE_CODE]
        own = (
            e8m0(raw.read(rows), self.e8m0_nan)
            if piece.dtype in ("U8", "F8_E8M0")
            else Numbers(piece).read(rows)
        )
        if not self.global_scale:
            return own
        one = self.fields[GLOBAL_SCALE].read()
        return own / one if self.global_scale == "divides" else own * one

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, float32."""
        first, last = (0, self.shape[0]) if rows is None else (rows.start, rows.stop)
        out = torch.empty((last - first, *self.shape[1:])) if out is None else out
        if self.element.bits != 4 or self.shape[-1] % self.size or not fits_pairs(0, out):
            return super().values(rows, out, rounded)
        _ = self.fields
        packed = torch.from_numpy(self.pieces[CODES].bits((slice(first, last),)))
        look_up_pairs(packed.view(-1), self._pairs, out.view(-1))
        out.view(*out.shape[:-1], -1, self.size).mul_(self.scale(rows).unsqueeze(-1))
        return round_to(out, self.dtype) if rounded else out


def unpacked_shape(packed: Shape, bits: int) -> Shape:
    """Return the shape of codes that fill bytes of shape ``packed``."""
    return (*packed[:-1], packed[-1] * 8 // bits)
