"""BitNet releases (quant_method bitnet): ternary weights, four rows per byte.

``weight`` uint8 [out/4, in]: bits 0-1 hold a row of the first quarter, bits 6-7 one of the last; code + 1 is stored.
``weight_scale`` one number: the layer bitlinear divides by it, autobitlinear multiplies by it (``linear_class`` in the
config; the bytes are the same). Values are float32.

Source: transformers 5.23.0, integrations/bitnet.py.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import padded, parts
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import text
from quantcore.checkpoints.protocol.fields import Field, Numbers, Rows
from quantcore.checkpoints.protocol.layout import CODES, SCALE, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.views import at_least_1d
from quantcore.errors import QuantError
from quantcore.formats import INT2, Format
from quantcore.granularity import PER_TENSOR, Granularity
from quantcore.tensors import short


def find(release: Release) -> Iterator[Layout]:
    """Yield the packed weights of a BitNet release."""
    for module, pieces in release.modules_with("weight", "weight_scale"):
        if release.method and pieces["weight"].dtype == "U8":
            own = {"weight": pieces["weight"], "weight_scale": at_least_1d(pieces["weight_scale"])}
            yield attempt(f"{module}.weight", own, partial(layout_of, module, own, release.quantization))


def layout_of(module: str, pieces: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> "BitNet":
    """Return the layout of one module.

    Raises:
        QuantError: an unsupported kind of layer, or shapes other than a matrix and one float scale.
    """
    weight, scale = pieces["weight"], pieces["weight_scale"]
    layer = text(config, "linear_class") or "bitlinear"
    if layer not in ("bitlinear", "autobitlinear"):
        raise QuantError(
            f"The config says linear_class {short(layer)}; only bitlinear and autobitlinear are supported."
        )
    if len(weight.shape) != 2 or math.prod(scale.shape) != 1 or not scale.is_floating:
        raise QuantError(
            f"{named(weight.name)} has shape {weight.shape} and its weight_scale {scale.shape}; BitNet stores a "
            "matrix and one float scale, so the file is damaged."
        )
    kind = BitNet if layer == "autobitlinear" else DividedBitNet
    shape = (4 * weight.shape[0], weight.shape[1])
    return kind(f"{module}.weight", shape, torch.float32, pieces)


@dataclass(frozen=True, eq=False)
class BitNet(Layout):
    """A ternary weight that is multiplied by its scale."""

    @property
    def storage(self) -> str:
        """``bitnet ternary per_tensor divided``."""
        return words("bitnet", "ternary", "per_tensor", "divided" * (self.decoding == "divided"))

    @property
    def element(self) -> Format:
        """Signed integers of 2 bits."""
        return INT2

    @property
    def granularity(self) -> Granularity:
        """One scale."""
        return PER_TENSOR

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes and the scale."""
        order = parts(padded(2, 8))
        codes = Packed(self.pieces["weight"], order, self.shape, axis=0, offset=1, signed=True)
        return {CODES: codes, SCALE: Numbers(self.pieces["weight_scale"])}

    def codes(self, rows: Rows = None) -> Tensor:
        """Return the codes of some rows; a stored 3, which no release has, is read as code 2, as in the library."""
        found = super().codes(rows)
        return found.masked_fill_(found == INT2.qmin, 2)


@dataclass(frozen=True, eq=False)
class DividedBitNet(BitNet):
    """A ternary weight that is divided by its scale."""

    decoding: ClassVar[Literal["scaled", "divided", "of_largest"]] = "divided"
