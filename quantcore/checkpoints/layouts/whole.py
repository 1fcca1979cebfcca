"""One code per byte: int8 or an 8-bit float, with scales per tensor, row, group or block.

``weight`` int8 or F8_E4M3 [out, in]; ``weight_scale`` [1], [out, 1], [out, groups], or one number per block;
optionally ``weight_zero_point`` of the same shape. The config gives the block: the shape of the scales does
not determine it.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, compared, instead
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT, Q, S, float_level, words
from quantcore.checkpoints.statement import Statement, named
from quantcore.errors import QuantError
from quantcore.expressions import PRODUCT, Explained, Let, Operation, Term
from quantcore.formats import FLOATS, FloatFormat, Format, IntFormat
from quantcore.granularity import Blocks, Granularity, PerBlock
from quantcore.notation import write_call

ELEMENTS: dict[str, Format] = {
    "I8": IntFormat(8),
    "F8_E4M3": FLOATS["e4m3fn"],
    "F8_E5M2": FLOATS["e5m2"],
    "F8_E4M3FNUZ": FLOATS["e4m3fnuz"],
    "F8_E5M2FNUZ": FLOATS["e5m2fnuz"],
}


def whole(
    name: str,
    dtype: torch.dtype,
    pieces: Pieces,
    kind: str,
    blocks: Granularity,
    bits: int = 8,
    remarks: tuple[Statement, ...] = (),
) -> Layout:
    """Return the layout of a weight with one code per byte.

    Args:
        pieces: "weight", "weight_scale" and optionally "weight_zero_point", whatever their names in the file.
        kind: the first word of `storage`.
        bits: of integers, which may use fewer than the 8 bits of their byte.

    Raises:
        QuantError: the scales don't fit the blocks.
    """
    weight, scale = pieces["weight"], Numbers(pieces["weight_scale"])
    shape, element = weight.shape, ELEMENTS[weight.dtype]
    grid = Blocks.of(blocks, shape).grid
    if [n for n in scale.shape if n > 1] != [n for n in grid if n > 1]:
        raise QuantError(
            f"{named(scale.piece.name)} has shape {scale.shape}, but {write_call(blocks)} with a "
            f"weight of shape {shape} takes scales of shape {grid}; the file does not fit its config."
        )
    fields: dict[str, Field] = {CODES: Numbers(weight, raw=weight.dtype != "I8"), SCALE: scale}
    if "weight_zero_point" in pieces:
        fields[ZERO_POINT] = Numbers(pieces["weight_zero_point"])
        if fields[ZERO_POINT].shape != scale.shape:
            raise QuantError(f"{named(name)} has zero points and scales of different shapes.")
    integer = isinstance(element, IntFormat)
    fmt = IntFormat(max(bits, 2)) if integer else element  # codes of 1 bit, -1 and 0, are among those of 2
    symmetry = "asymmetric" if ZERO_POINT in fields else "symmetric"
    return Layout(
        name, shape, dtype, pieces, fields,
        kind, words(kind, f"int{bits}" if integer else fmt, write_call(blocks), symmetry * integer),
        fmt, blocks,
        level=float_level(fmt) if isinstance(fmt, FloatFormat) else Q, remarks=remarks, rivals=block_scales,
        narrowed=None if kind == "compressed-tensors" else torch.bfloat16,
    )  # fmt: skip


def block_scales(layout: Layout) -> Iterator[Reading]:
    """Yield the other readings of FP8 in blocks: another block size, and other uses of the scale."""
    scale, block = layout.fields[SCALE], layout.blocks.block
    if not isinstance(layout.granularity, PerBlock) or len(layout.shape) != 2 or len(scale.shape) != 2:
        return
    if not any(layout.shape[i] % scale.shape[i] for i in (0, 1)):
        derived = tuple(n // count for n, count in zip(layout.shape, scale.shape, strict=True))
        library = "compressed-tensors' decompress, without arguments"
        reader = library if layout.format_name == "compressed-tensors" else "transformers 5.23.0"
        if derived != block:
            blocks = f"Reads blocks of {derived[0]} × {derived[1]} instead of {block[0]} × {block[1]}"
            own = compared(
                f"{blocks}: the scale at ", lambda o: str(list(o.parameters["scale"].words[0].index))
            )
            yield Reading(
                "block_of_grid", "block size derived from the grid of scales", reader,
                layout.changed(granularity=PerBlock(derived)), own,
            )  # fmt: skip
    if "_inv" in scale.piece.name:
        yield Reading(
            "scale_divides", "divided by the scale",
            "readers that trust the name weight_scale_inv; GPTQModel, where a scale is above 1",
            layout.changed(decoding="divided"),
            lambda here, there: "Divides by the scale instead of multiplying.",
        )  # fmt: skip
    if scale.piece.dtype == "F32":
        yield Reading(
            "ue8m0", "scale as a power of two", "kernels whose scales are E8M0, ue8m0 (transformers#46763)",
            layout.changed(derived={SCALE: Let("s", POWER_ABOVE(S))}),
            instead("s", "Rounds the scale up to a power of two"),
        )  # fmt: skip


def _power_above(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return 2^ceil(log2(x)), from the bits; 0 stays 0."""
    mantissa, exponent = torch.frexp(x)
    return torch.ldexp(torch.where(mantissa == 0.5, 0.5, 1.0), exponent).masked_fill(x == 0, 0.0)


def _explained(scale: Term) -> Explained:
    if not scale.value:
        return Explained(scale.names.text, scale.numbers.text)
    mantissa, exponent = math.frexp(float(scale.value))
    power = exponent - (mantissa == 0.5)
    note = f"the power of two at or above {scale.numbers.text}"
    return Explained(f"2^({power})", f"2^({power})", note, f"np.float32(2.0 ** ({power}))")


POWER_ABOVE = Operation(
    "2^ceil(log2({0}))", "2 ** torch.ceil(torch.log2({0}))", "2 ** np.ceil(np.log2({0}))", _power_above,
    lambda x: np.float32(float(_power_above(torch.tensor(float(x))))), PRODUCT, explain=_explained,
)  # fmt: skip
