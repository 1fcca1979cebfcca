"""HQQ releases in safetensors: 8, 6, 5, 4, 3, 2, 1.58 and 1 bits, groups along either axis.

Per module: ``W_q``, ``scale``, ``zero`` and their description, each a tensor of its own: ``shape`` int64 [2],
``group_size``, ``axis``, ``nbits`` int32, ``view_as_float`` uint8, and ``packing``, ``compute_dtype``,
``unpack_view_dtype`` as character codes. HQQ evaluates these strings; here they are looked up.

The weight is first reshaped, row-major: axis 1 to [n / group_size, group_size], with a scale per row; axis 0
to [group_size, n / group_size], with a scale per column. The rows of that matrix are split into 2, 4 or 8
equal parts (ten for 3 bits, in int32); a word holds a code from each part, the first part in the highest
bits. Codes of 5, 6 and 8 bits take a byte each.

w = (code - zero) * scale; both operations round to compute_dtype. Zero points are floats.

Source: hqq e0b1d00e, hqq/core/quantize.py, bitpack.py and utils.py.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import torch

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, Pieces
from quantcore.checkpoints.packing import PackingOrder, high_first, padded, parts
from quantcore.checkpoints.protocol.config import Config
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.kinds import Packed, Reshaped, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, other_parts
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT, words
from quantcore.checkpoints.protocol.release import DTYPES, Deferred, Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerFlatGroup, Shape
from quantcore.wording import short

BITS = (8, 6, 5, 4, 3, 2, 1)  # 1.58 bits are packed as 2
# packing -> dtype of a word, and bits per code; None: as nbits says
PACKINGS = {
    "8bit_u8": ("U8", None),
    "4bit_u8": ("U8", 4),
    "3bit_32": ("I32", 3),
    "2bit_u8": ("U8", 2),
    "1bit_u8": ("U8", 1),
}
COMPUTE = {f"torch.{name}": DTYPES[name] for name in ("float16", "bfloat16", "float32")}
NEEDED = ("W_q", "scale", "zero", "shape", "nbits", "axis", "packing")
DESCRIBED = (
    *NEEDED, "group_size", "view_as_float", "unpack_view_dtype", "compute_dtype", "channel_wise",
    "quant_scale", "quant_zero", "offload_meta", "encoded_state_dict", "stores_quant_config", "optimize",
    "round_zero",
)  # fmt: skip


@dataclass(frozen=True)
class Description:
    """The small tensors stored with a weight, read on first access."""

    pieces: Pieces

    def _refuse(self, name: str, what: str) -> QuantError:
        return QuantError(f"{named(self.pieces[name].name)} {what}; the file is damaged.")

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a number that is stored as a tensor of one element, or the default if it is absent."""
        piece = self.pieces.get(name)
        if piece is None:
            return default
        if math.prod(piece.shape) != 1 or piece.dtype not in TORCH_DTYPES:
            raise self._refuse(name, f"is {piece.dtype} of shape {piece.shape}, not one number")
        return float(piece.numbers().reshape(()))

    def word(self, name: str, allowed: Config, default: str) -> Any:
        """Return what a stored string stands for; it is never evaluated."""
        piece = self.pieces.get(name)
        if piece is None:
            return allowed[default]
        if piece.dtype != "U8" or piece.num_bytes > 64:
            raise self._refuse(name, f"is {piece.dtype} of shape {piece.shape}, not a short string")
        found = bytes(piece.bytes()).decode("latin-1")
        if found not in allowed:
            raise self._refuse(name, f"says {short(found)}, which is not one of {', '.join(allowed)}")
        return allowed[found]

    def shape(self) -> Shape:
        """Return the shape of the weight."""
        found = tuple(int(n) for n in self.pieces["shape"].numbers())
        if any(not 0 < n < 2**40 for n in found):
            raise self._refuse("shape", f"says {found}, which is not a shape")
        return found

    def dtype(self) -> torch.dtype:
        """Return the dtype that HQQ computes in."""
        return self.word("compute_dtype", COMPUTE, "torch.float16")  # type: ignore[no-any-return]

    @cached_property
    def bits(self) -> int:
        """Bits of a code, as packed."""
        nbits = self.number("nbits")
        bits = 2 if abs(nbits - 1.58) < 0.01 else nbits
        packed = self.word("packing", PACKINGS, "4bit_u8")[1]
        if bits not in BITS or (packed or bits) != bits or (packed is None and bits < 5):
            raise self._refuse("nbits", f"says {nbits:g}, which does not fit its packing")
        return int(bits)

    @cached_property
    def order(self) -> PackingOrder:
        """The order of codes in words."""
        word = 32 if self.bits == 3 else 8
        return padded(self.bits, 8) if self.bits > 4 else parts(high_first(self.bits, word))

    @cached_property
    def group_size(self) -> int | None:
        """Elements per group; None if scales are per row, per column or one for all."""
        size = self.number("group_size")
        if not 0 <= size < 2**40 or size != int(size):
            raise self._refuse("group_size", f"says {size:g}, which is not a group size")
        return int(size) or None if self.number("channel_wise", 1) else None

    @cached_property
    def axis(self) -> int:
        """The axis of the reshaped weight along which groups run."""
        axis = self.number("axis")
        if axis not in (0, 1):
            raise self._refuse("axis", f"says {axis:g}, not 0 or 1")
        return int(axis)


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of an HQQ release."""
    for module, pieces in release.modules_with("W_q", keep=DESCRIBED):
        yield attempt(f"{module}.weight", pieces, layout_of, module, pieces)


def layout_of(module: str, pieces: Pieces) -> Layout:
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
        raise QuantError(f"The scale and zero of {named(module)} are not both floats; the file is damaged.")
    if pieces["shape"].dtype != "I64" or pieces["shape"].shape != (2,):
        raise QuantError(
            f"{named(pieces['shape'].name)} does not hold a shape of two axes; the file is damaged."
        )
    return cast(Layout, Deferred(f"{module}.weight", "hqq", pieces, partial(_described, module, pieces)))


def _described(module: str, pieces: Pieces) -> Layout:
    """Return the layout that the tensors stored with the weight describe; reads them."""
    meta, name = Description(pieces), f"{module}.weight"
    shape, dtype, bits, size = meta.shape(), meta.dtype(), meta.bits, meta.group_size
    scale, zero = Numbers(pieces["scale"]), Numbers(pieces["zero"])
    one = math.prod(scale.shape) == 1
    # a single row of scales: a group is a column of the reshaped weight
    strided = len(scale.shape) == 2 and scale.shape[0] == 1 < scale.shape[1]
    reshaped = _reshaped(name, shape, size, meta.axis)
    groups = reshaped[1 - meta.axis]
    expected = (groups, 1) if meta.axis else (1, groups)
    for number in (scale, zero):
        if number.shape != expected and math.prod(number.shape) != 1:
            raise QuantError(
                f"{named(number.piece.name)} has shape {number.shape}, but the groups of a weight of shape "
                f"{shape} take {expected}; the file is damaged."
            )
    packed = pieces["W_q"]
    if meta.number("view_as_float"):
        word = meta.word("packing", PACKINGS, "4bit_u8")[0]
        packed = viewed(packed, word, (meta.order.words_of(reshaped[0]), reshaped[1]))
    codes = Reshaped(Packed(packed, meta.order, reshaped, axis=0), shape)
    per = f"per_flat_group({size})" if size else "per_tensor" if one else f"per_channel({1 - meta.axis})"
    # the elements of a group in columns are not adjacent, so each is a block of its own
    columns: Granularity = PerBlock((1,) * len(shape)) if size else PerChannel(1)
    storage = words("hqq", f"int{bits}", per, f"axis {meta.axis}", "asymmetric")
    return Layout(
        name, shape, dtype, pieces, {CODES: codes, SCALE: scale, ZERO_POINT: zero},
        # 1-bit codes are the codes 0 and 1 of two bits
        "hqq", storage, IntFormat(max(2, bits), signed=False),
        columns if strided else PER_TENSOR if one else PerFlatGroup(size) if size else PerChannel(0),
        rounds_each=True, columns=reshaped[1] if strided else 0, rivals=_rivals,
    )  # fmt: skip


def _reshaped(name: str, shape: Shape, size: int | None, axis: int) -> Shape:
    """Return the shape in which codes are packed."""
    n = math.prod(shape)
    if size is None:
        return shape
    if n % size:
        raise QuantError(f"The {n:,} elements of {named(name)} are not a multiple of the group size, {size}.")
    return (n // size, size) if axis else (size, n // size)


def _rivals(layout: Layout) -> Iterator[Reading]:
    """Yield the reading that takes the parts of the rows from the other end of the word."""
    codes = layout.fields[CODES]
    assert isinstance(codes, Reshaped)
    assert isinstance(codes.field, Packed)
    order = codes.field.order
    if order.in_parts:
        yield other_parts(layout, parts(padded(order.bits, order.word_bits)), "low", "optimum-quanto")
