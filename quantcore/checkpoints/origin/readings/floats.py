"""Other readings of small floats and tables: FP8 in blocks, FP4 with scales, bitsandbytes in 4 bits."""

from collections.abc import Iterator
from dataclasses import replace

from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.libraries.bitsandbytes_4bit import FourBits
from quantcore.checkpoints.layouts.whole import Whole
from quantcore.checkpoints.origin.arithmetic import Origin
from quantcore.checkpoints.origin.expression import text_of
from quantcore.checkpoints.origin.readings.record import Reading, Sentence, elsewhere, instead, same_record
from quantcore.checkpoints.origin.rival_layouts import PowerScales, Transposed, sibling
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.granularity import PerBlock


def whole(layout: Whole) -> Iterator[Reading]:
    """Yield the other readings of FP8 in blocks: another block size, and other uses of the scale."""
    piece, block = layout.pieces["weight_scale"], layout.blocks_of
    if not isinstance(block, PerBlock) or len(layout.shape) != 2 or len(piece.shape) != 2:
        return
    if not any(layout.shape[i] % piece.shape[i] for i in (0, 1)):
        derived = tuple(n // count for n, count in zip(layout.shape, piece.shape, strict=True))
        library = "compressed-tensors' decompress, without arguments"
        reader = library if layout.kind == "compressed-tensors" else "transformers 5.23.0"
        if derived != layout.blocks.block:
            yield Reading(
                "block_of_grid", "block size derived from the grid of scales", reader,
                replace(layout, blocks_of=PerBlock(derived)), _of_grid(layout.blocks.block, derived),
            )  # fmt: skip
    if "_inv" in piece.name:
        yield Reading(
            "scale_divides", "divided by the scale",
            "readers that trust the name weight_scale_inv; GPTQModel, where a scale is above 1",
            sibling(layout, decoding="divided"), lambda here, there: "Divides by the scale instead of multiplying.",
        )  # fmt: skip
    if piece.dtype == "F32":
        yield Reading(
            "ue8m0", "scale as a power of two", "kernels whose scales are E8M0, ue8m0 (transformers#46763)",
            same_record(PowerScales, layout), instead("s", "Rounds the scale up to a power of two"),
        )  # fmt: skip


def _of_grid(own: tuple[int, ...], derived: tuple[int, ...]) -> Sentence:
    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (list(o.parameters["scale"].words[0].index) for o in (here, there))
        blocks = f"Reads blocks of {derived[0]} × {derived[1]} instead of {own[0]} × {own[1]}"
        return f"{blocks}: the scale at {theirs}" + (
            ", as here." if mine == theirs else f" instead of {mine}."
        )

    return sentence


def block_floats(layout: BlockFloats) -> Iterator[Reading]:
    """Yield the other readings of FP4 and FP8 with scales of small floats."""
    if layout.global_scale:
        pieces = {name: p for name, p in layout.pieces.items() if name != GLOBAL_SCALE}
        yield Reading(
            "global_scale_left_out", "global scale left out", "transformers, for experts in NVFP4 (transformers#48371)",
            replace(layout, global_scale="", pieces=pieces),
            lambda here, there: f"Leaves out the global scale of {text_of(here.numbers['s_global'])}: "
            f"s = {text_of(there.numbers['s'])} instead of {text_of(here.numbers['s'])}.",
        )  # fmt: skip
        divides = layout.global_scale == "divides"
        yield Reading(
            "global_scale_inverse", "global scale inverted",
            f"readers that follow {'ModelOpt, which multiplies' if divides else 'compressed-tensors, which divides'}",
            replace(layout, global_scale="multiplies" if divides else "divides"),
            instead("s", f"{'Multiplies' if divides else 'Divides'} by the global scale"),
        )  # fmt: skip
    if layout.element.bits == 4:
        yield Reading(
            "nibble_order", "upper half of a byte first", "readers that use bitsandbytes' order",
            sibling(layout, low_first=False), elsewhere("Takes the even one of two elements from the upper half of the byte"),
        )  # fmt: skip
    if layout.pieces[SCALE_CODE].dtype in ("U8", "F8_E8M0"):
        yield e8m0_255(replace(layout, e8m0_nan=not layout.e8m0_nan), not layout.e8m0_nan)
    if layout.kind == "mxfp4-gpt-oss" and len(layout.shape) == 3:
        *lead, rows, columns = layout.shape
        other = Transposed(layout.name, (*lead, columns, rows), layout.dtype, layout.pieces, inner=layout)
        yield Reading(
            "transposed", "experts transposed", "transformers, integrations/mxfp4.py", other,
            lambda here, there: f"Returns the weight as {list(other.shape)}: the element at {list(here.index)} here is at "
            f"{[*here.index[:-2], here.index[-1], here.index[-2]]} there.",
        )  # fmt: skip


def e8m0_255(layout: Layout, nan: bool) -> Reading:
    """Return E8M0's 255 as NaN, or as a number."""
    what = "NaN" if nan else "2^128"
    reader = "readers that follow the OCP standard" if nan else "readers that only shift the bits"
    return Reading(
        "e8m0_nan", f"E8M0 255 as {what}", reader, layout,
        lambda here, there: f"Reads a scale of 255 as {what}"
        + ("." if here.numbers.get("sc", here.numbers.get("scale_code")) == 255 else "; this one is not 255."),
    )  # fmt: skip


def four_bits(layout: FourBits) -> Iterator[Reading]:
    """Yield the other order of two codes in a byte."""
    yield Reading(
        "nibble_order", "lower half of a byte first", "readers that use the order of compressed-tensors, ModelOpt and MLX",
        sibling(layout, low_first=True), elsewhere("Takes the even one of two elements from the lower half of the byte"),
    )  # fmt: skip
