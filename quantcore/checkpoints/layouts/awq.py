"""AWQ releases (AutoAWQ), the gemm version.

Per module: ``qweight`` int32 [in, out/8] and ``qzeros`` int32 [groups, out/8], eight 4-bit codes per word, along the
output axis and interleaved; ``scales`` [groups, out]. w = (code - zero) * scale, in float32.

Source: AutoAWQ 88e4c76b, awq/utils/packing_utils.py and awq/modules/linear/gemm.py. The versions gemv and gemv_fast
are stored differently (awq/modules/linear/gemv.py, gemv_fast.py) and are not supported.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import torch

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.packing import Order, permuted
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import group_size, integer, text
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import CODES, SCALE, ZERO_POINT, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.errors import QuantError
from quantcore.formats import UINT4, Format
from quantcore.granularity import Granularity, PerGroup
from quantcore.tensors import short

INTERLEAVE = (0, 4, 1, 5, 2, 6, 3, 7)  # the place of column j of eight in its word, counted from the lowest bits
ORDER = permuted(4, 32, INTERLEAVE)
NAMES = ("qweight", "qzeros", "scales")


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of an AWQ release."""
    for module, pieces in release.modules_with(*NAMES):
        own = {name: pieces[name] for name in NAMES}
        if release.method or has_its_shape(own):
            yield attempt(f"{module}.weight", own, partial(layout_of, module, own, release.quantization))


def has_its_shape(pieces: Mapping[str, StoredTensor]) -> bool:
    """Whether eight outputs share a word of qweight, as in no GPTQ release."""
    return pieces["qweight"].shape[-1:] == pieces["qzeros"].shape[-1:]


def layout_of(module: str, pieces: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> "Awq":
    """Return the layout of one module.

    Raises:
        QuantError: an unsupported version or number of bits, or shapes that don't fit the config.
    """
    version = (text(config, "version") or "gemm").lower()
    if version != "gemm":
        raise QuantError(
            f"{named(module)} is stored in AWQ's version {short(version)}, which is not supported; convert it "
            "to version gemm."
        )
    for key in ("bits", "w_bit"):
        integer(config, key, (4,))
    for piece in pieces.values():
        if len(piece.shape) != 2:
            raise QuantError(f"{named(piece.name)} has shape {piece.shape}; AWQ stores matrices.")
    (columns, _), (groups, rows) = pieces["qweight"].shape, pieces["scales"].shape
    size, remarks = group_size(config, ("group_size", "q_group_size"), columns, groups, pieces["scales"])
    return Awq(
        f"{module}.weight",
        (rows, columns),
        torch.float32,
        pieces,
        group_size=size,
        remarks=remarks,
    )


@dataclass(frozen=True, eq=False)
class Awq(Layout):
    """A weight of an AWQ release; ``order``: the order of codes in a word."""

    group_size: int
    order: ClassVar[Order] = ORDER

    @property
    def storage(self) -> str:
        """``awq int4 per_group(128) asymmetric``."""
        return words("awq", "int4", f"per_group({self.group_size})", "asymmetric")

    @property
    def element(self) -> Format:
        """Unsigned integers of 4 bits."""
        return UINT4

    @property
    def granularity(self) -> Granularity:
        """Groups along the input axis."""
        return PerGroup(self.group_size)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales and zero points."""
        rows, groups = self.shape[0], self.pieces["scales"].shape[0]
        return {
            CODES: Packed(self.pieces["qweight"], self.order, self.shape, axis=0, transposed=True),
            SCALE: Numbers(self.pieces["scales"], transposed=True),
            ZERO_POINT: Packed(self.pieces["qzeros"], self.order, (rows, groups), axis=0, transposed=True),
        }
