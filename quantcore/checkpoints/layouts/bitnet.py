"""BitNet releases (quant_method bitnet): ternary weights, four rows per byte.

``weight`` uint8 [out/4, in]: bits 0-1 hold a row of the first quarter, bits 6-7 one of the last; code + 1 is
stored. ``weight_scale`` one number: the layer bitlinear divides by it, autobitlinear multiplies by it
(``linear_class`` in the config; the bytes are the same). Values are float32.

Source: transformers 5.23.0, integrations/bitnet.py.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.packing import padded, parts
from quantcore.checkpoints.protocol.config import Config, text
from quantcore.checkpoints.protocol.fields import Field, Numbers, Rows
from quantcore.checkpoints.protocol.kinds import Packed, at_least_1d
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading
from quantcore.checkpoints.protocol.record import CODES, SCALE, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.expressions import Expression, Let, Where
from quantcore.formats import INT2
from quantcore.granularity import PER_TENSOR
from quantcore.wording import short


def find(release: Release) -> Iterator[Layout]:
    """Yield the packed weights of a BitNet release."""
    for module, pieces in release.modules_with("weight", "weight_scale"):
        if release.method and pieces["weight"].dtype == "U8":
            own = {"weight": pieces["weight"], "weight_scale": at_least_1d(pieces["weight_scale"])}
            yield attempt(f"{module}.weight", own, layout_of, module, own, release.quantization)


def layout_of(module: str, pieces: Pieces, config: Config) -> Layout:
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
            f"{named(weight.name)} has shape {weight.shape} and its weight_scale {scale.shape}; BitNet "
            "stores a matrix and one float scale, so the file is damaged."
        )
    shape, divided = (4 * weight.shape[0], weight.shape[1]), layer == "bitlinear"
    fields: dict[str, Field] = {
        CODES: Ternary(weight, parts(padded(2, 8)), shape, axis=0, offset=1, signed=True),
        SCALE: Numbers(scale),
    }
    return Layout(
        f"{module}.weight", shape, torch.float32, pieces, fields,
        "bitnet", _storage(divided), INT2, PER_TENSOR,
        decoding="divided" if divided else "scaled", rivals=_rivals,
    )  # fmt: skip


def _storage(divided: bool) -> str:
    return words("bitnet", "ternary", "per_tensor", "divided" * divided)


@dataclass(frozen=True)
class Ternary(Packed):
    """Codes -1, 0 and 1; a stored 3, which no release has, is read as code 2, as in the library."""

    def read(self, rows: Rows = None) -> Tensor:
        """Return the codes of some rows."""
        found = super().read(rows)
        return found.masked_fill_(found == INT2.qmin, 2)

    def meaning(self, bits: Expression, width: int, name: str) -> Expression:
        """Return the stored number minus 1."""
        three = Let(name, bits - 1, "no release stores 3; the library reads it as 2")
        return Where(bits, 3, three, super().meaning(bits, width, name))


def _rivals(layout: Layout) -> Iterator[Reading]:
    """Yield the other use of the scale."""
    divided = layout.decoding == "divided"
    used = ("Divides", "multiplying") if not divided else ("Multiplies", "dividing")
    verb = f"{used[0]} by the scale instead of {used[1]}."
    yield Reading(
        "linear_class", f"as {'autobitlinear' if divided else 'bitlinear'}",
        "transformers, with the other linear_class in the config",
        layout.changed(decoding="scaled" if divided else "divided", storage=_storage(not divided)),
        lambda here, there: verb,
    )  # fmt: skip
