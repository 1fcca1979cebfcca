"""HQQ releases in safetensors: 8, 6, 5, 4, 3, 2, 1.58 and 1 bits, groups along either axis.

Per module: ``W_q``, ``scale``, ``zero`` and their description, each a tensor of its own: ``shape`` int64 [2],
``group_size``, ``axis``, ``nbits`` int32, ``view_as_float`` uint8, and ``packing``, ``compute_dtype``,
``unpack_view_dtype`` as character codes. HQQ evaluates these strings; here they are looked up.

The weight is first reshaped, row-major: axis 1 to [n / group_size, group_size], with a scale per row; axis 0 to
[group_size, n / group_size], with a scale per column. The rows of that matrix are split into 2, 4 or 8 equal parts (ten
for 3 bits, in int32); a word holds a code from each part, the first part in the highest bits. Codes of 5, 6 and 8 bits
take a byte each.

w = (code - zero) * scale; both operations round to compute_dtype. Zero points are floats.

Source: hqq e0b1d00e, hqq/core/quantize.py, bitpack.py and utils.py.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import StoredTensor
from quantcore.checkpoints.layouts.in_parts.hqq_description import PACKINGS, Description
from quantcore.checkpoints.packing import Order
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.fields import Field, Numbers, Place, Rows
from quantcore.checkpoints.protocol.layout import CODES, SCALE, ZERO_POINT, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.spreading import Parameters
from quantcore.checkpoints.protocol.views import Reshaped, viewed
from quantcore.errors import QuantError
from quantcore.formats import Format, IntFormat
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerFlatGroup, Shape
from quantcore.numerics import round_to

NEEDED = ("W_q", "scale", "zero", "shape", "nbits", "axis", "packing")
DESCRIBED = (
    *NEEDED, "group_size", "view_as_float", "unpack_view_dtype", "compute_dtype", "channel_wise", "quant_scale",
    "quant_zero", "offload_meta", "encoded_state_dict", "stores_quant_config", "optimize", "round_zero",
)  # fmt: skip


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of an HQQ release."""
    for module, pieces in release.modules_with("W_q"):
        own = {name: pieces[name] for name in DESCRIBED if name in pieces}
        yield attempt(f"{module}.weight", own, partial(layout_of, module, own))


def layout_of(module: str, pieces: Mapping[str, StoredTensor]) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: a stored tensor is missing, or is not what HQQ writes.
    """
    missing = [name for name in NEEDED if name not in pieces]
    if missing:
        raise QuantError(
            f"{named(module)} has W_q, but its {missing[0]} is missing; save it in HQQ's safetensors format, "
            "without quantizing scale and zero."
        )
    if not (pieces["scale"].is_floating and pieces["zero"].is_floating):
        raise QuantError(
            f"The scale and zero of {named(module)} are not both floats; the file is damaged."
        )
    if pieces["shape"].dtype != "I64" or pieces["shape"].shape != (2,):
        raise QuantError(
            f"{named(pieces['shape'].name)} does not hold a shape of two axes; the file is damaged."
        )
    meta = Description(pieces)
    # a single row of scales: a group is a column of the reshaped weight
    strided = len(pieces["scale"].shape) == 2 and pieces["scale"].shape[0] == 1 < pieces["scale"].shape[1]
    kind = HqqColumns if strided else Hqq
    return kind(f"{module}.weight", meta.shape, meta.dtype, pieces, meta=meta)


@dataclass(frozen=True, eq=False)
class Hqq(Layout):
    """A weight with a scale for each row of the reshaped weight, or one for the whole weight."""

    meta: Description = field(kw_only=True)
    format: ClassVar[str] = "hqq"
    rounds_each: ClassVar[bool] = True

    @property
    def storage(self) -> str:
        """``hqq int4 per_flat_group(64) asymmetric``."""
        size = self.meta.group_size
        groups = (
            "per_tensor"
            if math.prod(self.pieces["scale"].shape) == 1
            else f"per_channel({1 - self.meta.axis})"
        )
        groups = f"per_flat_group({size})" if size else groups
        return words("hqq", f"int{self.meta.bits}", groups, f"axis {self.meta.axis}", "asymmetric")

    @property
    def element(self) -> Format:
        """Unsigned integers; 1-bit codes are the codes 0 and 1 of two bits."""
        return IntFormat(max(2, self.meta.bits), signed=False)

    @property
    def granularity(self) -> Granularity:
        """Runs of the flat weight, rows, or the whole weight."""
        if math.prod(self.pieces["scale"].shape) == 1:
            return PER_TENSOR
        return PerFlatGroup(self.meta.group_size) if self.meta.group_size else PerChannel(0)

    @property
    def order(self) -> Order:
        """The order of codes in words, along the rows of the reshaped weight."""
        return self.meta.order

    @cached_property
    def reshaped(self) -> Shape:
        """The shape in which codes are packed."""
        n, size = math.prod(self.shape), self.meta.group_size
        if size is None:
            return self.shape
        if n % size:
            raise QuantError(
                f"The {n:,} elements of {named(self.name)} are not a multiple of the group size, {size}."
            )
        return (n // size, size) if self.meta.axis else (size, n // size)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales and zero points."""
        packed, word = self.pieces["W_q"], self.meta.word("packing", PACKINGS, "4bit_u8")[0]
        rows = self.order.words_of(self.reshaped[0])
        if self.meta.number("view_as_float"):
            packed = viewed(packed, word, (rows, self.reshaped[1]))
        codes = Packed(packed, self.order, self.reshaped, axis=0)
        scale, zero = Numbers(self.pieces["scale"]), Numbers(self.pieces["zero"])
        groups = self.reshaped[1 - self.meta.axis]
        expected = (groups, 1) if self.meta.axis else (1, groups)
        for number in (scale, zero):
            if number.shape != expected and math.prod(number.shape) != 1:
                raise QuantError(
                    f"{named(number.piece.name)} has shape {number.shape}, but the groups of a weight of shape "
                    f"{self.shape} take {expected}; the file is damaged."
                )
        return {CODES: Reshaped(codes, self.shape), SCALE: scale, ZERO_POINT: zero}


@dataclass(frozen=True, eq=False)
class HqqColumns(Hqq):
    """A weight with a scale per column of the reshaped weight: flat element i is in group i mod the number of groups."""

    @property
    def granularity(self) -> Granularity:
        """Columns; the elements of a group are not adjacent, so each is a block of its own."""
        return PerBlock((1,) * len(self.shape)) if self.meta.group_size else PerChannel(1)

    def group_index(self) -> Tensor | None:
        """Return the group of each element."""
        if not self.meta.group_size:
            return None
        return torch.arange(math.prod(self.shape)).remainder(self.reshaped[1]).view(self.shape)

    def parameters(self, rows: Rows = None) -> Parameters:
        """Return scales and zero points, a single row of each."""
        return Parameters(self.scale(), self.zero_point(), None)

    def values(self, rows: Rows = None, out: Tensor | None = None, rounded: bool = True) -> Tensor:
        """Return the values of some rows, in runs of the flat weight with at most one element of each group."""
        codes = self.codes(rows)
        out = torch.empty(codes.shape) if out is None else out
        flat, target, parameters, count = codes.view(-1), out.view(-1), self.parameters(), self.reshaped[1]
        start = 0 if rows is None else rows.start * self.shape[1]
        stop = start + len(flat)
        cuts = sorted({start, min(stop, -(-start // count) * count), max(start, stop // count * count), stop})
        for a, b in pairwise(cuts):
            of_run = slice(a % count, a % count + min(b - a, count))
            mine = parameters.each(partial(_columns, cut=of_run))
            piece, goal = (t[a - start : b - start].view(-1, min(b - a, count)) for t in (flat, target))
            self.dequantize(piece, mine, goal, rounded)
        return round_to(out, self.dtype) if rounded and not self.rounds_each else out

    def place_of(self, role: str, field: Field, index: tuple[int, ...], position: tuple[int, ...]) -> Place:
        """Return the place of the scale or zero point of a column."""
        return field.place((0, (index[0] * self.shape[1] + index[1]) % self.reshaped[1]))


def _columns(parameter: Tensor, cut: slice) -> Tensor:
    return parameter[:, cut]
