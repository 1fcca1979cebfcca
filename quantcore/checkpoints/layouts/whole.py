"""One code per byte: int8 or an 8-bit float, with scales per tensor, row, group or block.

``weight`` int8 or F8_E4M3 [out, in]; ``weight_scale`` [1], [out, 1], [out, groups], or one number per block; optionally
``weight_zero_point`` of the same shape. The config gives the block: the shape of the scales does not determine it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import CODES, SCALE, ZERO_POINT, Layout, words
from quantcore.errors import QuantError
from quantcore.formats import FLOATS, Format, IntFormat
from quantcore.granularity import Blocks, Granularity
from quantcore.notation import write_call

ELEMENTS: dict[str, Format] = {
    "I8": IntFormat(8),
    "F8_E4M3": FLOATS["e4m3fn"],
    "F8_E5M2": FLOATS["e5m2"],
    "F8_E4M3FNUZ": FLOATS["e4m3fnuz"],
    "F8_E5M2FNUZ": FLOATS["e5m2fnuz"],
}


@dataclass(frozen=True, eq=False)
class Whole(Layout):
    """A weight with one code per byte.

    ``pieces``: "weight", "weight_scale" and optionally "weight_zero_point", whatever their names in the file.
    ``kind``: the first word of `storage`; ``bits``: of integers, which may use fewer than the 8 bits of their byte.
    """

    kind: str = field(kw_only=True)
    blocks_of: Granularity = field(kw_only=True)
    bits: int = field(default=8, kw_only=True)

    @property
    def storage(self) -> str:
        """``compressed-tensors e4m3fn per_channel(0)``."""
        symmetry = "asymmetric" if ZERO_POINT in self.fields else "symmetric"
        integer = isinstance(self.element, IntFormat)
        return words(self.kind, self.element, write_call(self.blocks_of), symmetry if integer else "")

    @property
    def element(self) -> Format:
        """As the dtype of the stored tensor says."""
        element = ELEMENTS[self.pieces["weight"].dtype]
        return IntFormat(self.bits) if isinstance(element, IntFormat) else element

    @property
    def granularity(self) -> Granularity:
        """As the config says."""
        return self.blocks_of

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales and zero points."""
        weight, scale = self.pieces["weight"], Numbers(self.pieces["weight_scale"])
        grid = Blocks.of(self.blocks_of, self.shape).grid
        if [n for n in scale.shape if n > 1] != [n for n in grid if n > 1]:
            raise QuantError(
                f"{named(scale.piece.name)} has shape {scale.shape}, but {write_call(self.blocks_of)} with a "
                f"weight of shape {self.shape} takes scales of shape {grid}; the file does not fit its config."
            )
        found: dict[str, Field] = {CODES: Numbers(weight, raw=weight.dtype != "I8"), SCALE: scale}
        if "weight_zero_point" in self.pieces:
            found[ZERO_POINT] = Numbers(self.pieces["weight_zero_point"])
            if found[ZERO_POINT].shape != scale.shape:
                raise QuantError(f"{named(self.name)} has zero points and scales of different shapes.")
        return found
