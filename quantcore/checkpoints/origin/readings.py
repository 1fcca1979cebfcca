"""What other libraries, and common mistakes, make of the same bytes: a layout for each, and in words what it does."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import torch

from quantcore.checkpoints.ggml.levels import Offset
from quantcore.checkpoints.ggml.ternary_fp4_types import HalfE8m0
from quantcore.checkpoints.layouts.awq import Awq
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.compressed_tensors.packed import PackQuantized
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.gguf.weights import GgufFloats
from quantcore.checkpoints.layouts.gptq import PLANAR, Gptq
from quantcore.checkpoints.layouts.in_parts.bitnet import BitNet, DividedBitNet
from quantcore.checkpoints.layouts.in_parts.hqq import Hqq
from quantcore.checkpoints.layouts.in_parts.quanto import QuantoBits
from quantcore.checkpoints.layouts.libraries.bitsandbytes_4bit import FourBits
from quantcore.checkpoints.layouts.libraries.torchao import TorchaoInt4
from quantcore.checkpoints.layouts.plain import Plain
from quantcore.checkpoints.layouts.whole import Whole
from quantcore.checkpoints.origin.arithmetic import Origin
from quantcore.checkpoints.origin.expression import text_of
from quantcore.checkpoints.origin.rival_layouts import (
    CarriedGptq,
    PowerScales,
    RotaryRows,
    Transposed,
    Unleaked,
    UnwrappedGptq,
    adjacent_nibbles,
    sibling,
    without,
)
from quantcore.checkpoints.packing import dense, high_first, padded, parts
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.granularity import PerBlock

Sentence = Callable[[Origin, Origin], str]


@dataclass(frozen=True)
class Reading:
    """Another reading of a weight.

    ``key``: names it in findings; ``name``: a few words; ``reader``: who reads so, with a source; ``layout``: reads the
    same bytes in that way; ``difference``: a sentence from the origins of one element, as here and as there.
    """

    key: str
    name: str
    reader: str
    layout: Layout
    difference: Sentence


def readings(layout: Layout, heads: int = 0) -> Iterator[Reading]:
    """Yield the other readings of a weight, those that change most first.

    Args:
        heads: of attention, of which llama.cpp may have permuted the rows; 0 for another weight.

    Raises:
        QuantError: the tensor can't be read.
    """
    layout.check()
    for kind, find in _FINDERS:
        if isinstance(layout, kind):
            yield from find(layout)
    if heads and isinstance(layout, Gguf | GgufFloats):
        yield from _rotary(layout, heads)
    yield from _precision(layout)


def _same_record(kind: type[Layout], layout: Layout, **changes: object) -> Layout:
    return kind(**{f.name: getattr(layout, f.name) for f in fields(layout)} | changes)


def _instead(symbol: str, before: str) -> Sentence:
    """``before`` with the number that differs, or that it is the same here."""

    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (text_of(o.numbers[symbol]) for o in (here, there))
        same = mine == theirs
        return f"{before}: {symbol} = {theirs}" + (", as here." if same else f" instead of {mine}.")

    return sentence


def _place(origin: Origin) -> str:
    word = origin.code.words[0]
    low, high = min(word.own), max(word.own)
    return f"bits {low}–{high} of {word.name.rpartition('.')[2]}"


def _elsewhere(before: str) -> Sentence:
    """``before`` with the place from which the code is read."""

    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = _place(here), _place(there)
        if mine == theirs:
            return f"{before}: this code is read from the same bits."
        one_word = here.code.words[0].offset == there.code.words[0].offset
        return f"{before}: this code is read from {theirs} instead of {mine.partition(' of ')[0] if one_word else mine}."

    return sentence


def _gptq(layout: Gptq) -> Iterator[Reading]:
    if layout.bits not in PLANAR and layout.version != "gptq_p":
        v1 = layout.zero_offset() == -1
        other = replace(layout, version="gptq_v2" if v1 else "gptq", config_symmetric=False)
        if v1:
            reader, what = (
                "readers of gptq_v2, or that don't know v1 (vllm#26092)",
                "Takes the stored zero point as it is",
            )
        else:
            reader, what = (
                "readers that take it for v1, as a config says that names no version (vllm#38966)",
                "Adds 1 to the stored zero point",
            )
        yield Reading("gptq_version", f"as GPTQ {'v2' if v1 else 'v1'}", reader, other, _instead("z", what))
        if v1 and layout.bits in (2, 4, 8):
            largest = (1 << layout.bits) - 1
            yield Reading(
                "zero_point_unwrapped", "1 added without a remainder", "AutoGPTQ's qlinear_cuda, llama.cpp's converter",
                _same_record(UnwrappedGptq, layout), _instead("z", f"Reads a stored {largest} as {largest + 1}, not 0"),
            )  # fmt: skip
            yield Reading(
                "zero_point_carried", "1 added to the whole word", "GPTQModel's kernels",
                _same_record(CarriedGptq, layout),
                _instead("z", f"Lets a stored {largest} carry into the next zero point of its word"),
            )  # fmt: skip
    if layout.group_index() is not None:
        yield _in_order(without(layout, "g_idx"), "readers that ignore g_idx, or believe desc_act false")


def _in_order(layout: Layout, reader: str) -> Reading:
    """The columns in the order of the file."""

    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (o.parameters["scale"].words[0].index for o in (here, there))
        end = (
            "the same scale as here."
            if mine == theirs
            else f"the scale at {list(theirs)} instead of {list(mine)}."
        )
        return f"Takes the columns in order, without the group index: {end}"

    return Reading("g_idx_ignored", "group index ignored", reader, layout, sentence)


def _awq(layout: Awq) -> Iterator[Reading]:
    yield Reading(
        "awq_interleave", "interleave not undone", "GPTQModel 7.7.0, convert_awq_file",
        sibling(layout, order=dense(4, 32)), _elsewhere("Takes the eight codes of a word in their order"),
    )  # fmt: skip


def _pack_quantized(layout: PackQuantized) -> Iterator[Reading]:
    for version, words, reader in (
        ("0.16.0", "whole codes per word", "compressed-tensors before 0.17.0"),
        ("0.17.0", "codes across words", "compressed-tensors since 0.17.0"),
    ):
        other = replace(layout, version=version)
        if layout.bits in (3, 5, 6, 7) and other.order(*_width(other)) != layout.order(*_width(layout)):
            yield Reading("packing", words, reader, other, _elsewhere(f"Reads {words}"))
    if layout.group_index() is not None:
        yield _in_order(without(layout, "weight_g_idx"), "compressed-tensors 0.20")


def _width(layout: PackQuantized) -> tuple[int, int]:
    return layout.shape[-1], layout.pieces["weight_packed"].shape[-1]


def _whole(layout: Whole) -> Iterator[Reading]:
    piece, block = layout.pieces["weight_scale"], layout.blocks_of
    if not isinstance(block, PerBlock) or len(layout.shape) != 2 or len(piece.shape) != 2:
        return
    if not any(layout.shape[i] % piece.shape[i] for i in (0, 1)):
        derived = tuple(n // count for n, count in zip(layout.shape, piece.shape, strict=True))
        library = "compressed-tensors' decompress, without arguments"
        reader = library if layout.kind == "compressed-tensors" else "transformers 5.23.0"
        if derived != layout.blocks.block:
            yield Reading(
                "block_of_grid", "block derived from the grid of scales", reader,
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
            _same_record(PowerScales, layout), _instead("s", "Rounds the scale up to a power of two"),
        )  # fmt: skip


def _of_grid(own: tuple[int, ...], derived: tuple[int, ...]) -> Sentence:
    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (list(o.parameters["scale"].words[0].index) for o in (here, there))
        blocks = f"Reads blocks of {derived[0]} × {derived[1]} instead of {own[0]} × {own[1]}"
        return f"{blocks}: the scale at {theirs}" + (
            ", as here." if mine == theirs else f" instead of {mine}."
        )

    return sentence


def _block_floats(layout: BlockFloats) -> Iterator[Reading]:
    if layout.global_scale:
        pieces = {name: p for name, p in layout.pieces.items() if name != GLOBAL_SCALE}
        yield Reading(
            "global_scale_left_out", "global scale left out", "transformers, for experts in NVFP4 (transformers#48371)",
            replace(layout, global_scale="", pieces=pieces),
            lambda here, there: f"Leaves out the global scale of {text_of(here.numbers['global_scale'])}: "
            f"s = {text_of(there.numbers['s'])} instead of {text_of(here.numbers['s'])}.",
        )  # fmt: skip
        divides = layout.global_scale == "divides"
        yield Reading(
            "global_scale_inverse", "global scale the other way",
            f"readers with the convention of {'ModelOpt, which multiplies' if divides else 'compressed-tensors, which divides'}",
            replace(layout, global_scale="multiplies" if divides else "divides"),
            _instead("s", f"{'Multiplies' if divides else 'Divides'} by the global scale"),
        )  # fmt: skip
    if layout.element.bits == 4:
        yield Reading(
            "nibble_order", "upper half of a byte first", "readers with bitsandbytes' order",
            sibling(layout, low_first=False), _elsewhere("Takes the even of two elements from the upper half of the byte"),
        )  # fmt: skip
    if layout.pieces[SCALE_CODE].dtype in ("U8", "F8_E8M0"):
        yield _e8m0(replace(layout, e8m0_nan=not layout.e8m0_nan), not layout.e8m0_nan)
    if layout.kind == "mxfp4-gpt-oss" and len(layout.shape) == 3:
        *lead, rows, columns = layout.shape
        other = Transposed(layout.name, (*lead, columns, rows), layout.dtype, layout.pieces, inner=layout)
        yield Reading(
            "transposed", "experts transposed", "transformers, integrations/mxfp4.py", other,
            lambda here, there: f"Hands the weight out as {list(other.shape)}: what is at {list(here.index)} here is at "
            f"{[*here.index[:-2], here.index[-1], here.index[-2]]} there.",
        )  # fmt: skip


def _e8m0(layout: Layout, nan: bool) -> Reading:
    what = "NaN" if nan else "2^128"
    reader = "the OCP standard" if nan else "readers that only shift the bits"
    return Reading(
        "e8m0_nan", f"E8M0 255 as {what}", reader, layout,
        lambda here, there: f"Reads a scale of 255 as {what}"
        + ("." if here.numbers.get("sc", here.numbers.get("scale_code")) == 255 else "; this one is not 255."),
    )  # fmt: skip


def _parts(layout: Hqq | QuantoBits) -> Iterator[Reading]:
    low_first = isinstance(layout, QuantoBits)
    order, bits = layout.order, layout.order.bits
    if order.in_parts:
        other = parts((high_first if low_first else padded)(bits, order.word_bits))
        yield Reading(
            "part_order", f"first rows in the {'high' if low_first else 'low'} bits",
            f"readers with the order of {'HQQ' if low_first else 'optimum-quanto'}", sibling(layout, order=other),
            _elsewhere(f"Takes the first part of the rows from the {'high' if low_first else 'low'} bits"),
        )  # fmt: skip


def _torchao_int4(layout: TorchaoInt4) -> Iterator[Reading]:
    yield Reading(
        "nibble_order", "upper half of a byte first", "readers with bitsandbytes' order",
        sibling(layout, order=high_first(4, 8)), _elsewhere("Takes the even of two elements from the upper half of the byte"),
    )  # fmt: skip


def _four_bits(layout: FourBits) -> Iterator[Reading]:
    yield Reading(
        "nibble_order", "lower half of a byte first", "readers with the order of compressed-tensors, ModelOpt and MLX",
        sibling(layout, low_first=True), _elsewhere("Takes the even of two elements from the lower half of the byte"),
    )  # fmt: skip


def _bitnet(layout: BitNet) -> Iterator[Reading]:
    divided = layout.decoding == "divided"
    verb = (
        "Multiplies by the scale instead of dividing."
        if divided
        else "Divides by the scale instead of multiplying."
    )
    yield Reading(
        "linear_class", f"as {'autobitlinear' if divided else 'bitlinear'}",
        "transformers, with the other linear_class in the config",
        _same_record(BitNet if divided else DividedBitNet, layout), lambda here, there: verb,
    )  # fmt: skip


def _gguf(layout: Gguf) -> Iterator[Reading]:
    kind = layout.kind
    if kind.name == "Q5_K" and type(kind.levels) is Offset:
        yield Reading(
            "q5k_leak", "without a leaked bit", "what was meant, if auto-round before 0.16.1 packed it without a mask",
            sibling(layout, kind=replace(kind, levels=Unleaked())),
            _instead("q", "Clears bit 0 of odd sub-blocks where bit 4 of the other code in the byte is 1"),
        )  # fmt: skip
    other = adjacent_nibbles(kind)
    if other is not None:
        yield Reading(
            "nibble_order", "neighbors in a byte", "readers with the order of MLX and compressed-tensors",
            sibling(layout, kind=other), _in_block("Takes two neighbors from each byte"),
        )  # fmt: skip
    if isinstance(kind.scale_of, HalfE8m0):
        yield _e8m0(sibling(layout, kind=replace(kind, scale_of=HalfE8m0(nan=True))), True)


def _in_block(before: str) -> Sentence:
    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (o.code.place.bits[0] for o in (here, there))
        start = here.code.words[0].offset
        words = [f"byte {byte - start} of the block, from bit {bit}" for byte, bit in (theirs, mine)]
        return f"{before}: this code is read from {words[0]}, instead of {words[1]}."

    return sentence


def _rotary(layout: Gguf | GgufFloats, heads: int) -> Iterator[Reading]:
    if len(layout.shape) != 2 or layout.shape[0] % (2 * heads):
        return
    other = RotaryRows(layout.name, layout.shape, layout.dtype, layout.pieces, inner=layout, heads=heads)
    yield Reading(
        "rows_permuted", "rows in the order of Hugging Face",
        "Hugging Face's original of a Llama model: llama.cpp's converter permutes the rows of q and k", other,
        lambda here, there: f"Row {here.index[0]} of the original is row {other.stored_index(here.index)[0]} here.",
    )  # fmt: skip


def _precision(layout: Layout) -> Iterator[Reading]:
    """Other roundings of the result."""
    name = str(layout.dtype).removeprefix("torch.")
    if layout.dtype in (torch.float16, torch.bfloat16) and not isinstance(layout, Plain):
        if layout.rounds_each:
            yield Reading(
                "rounded_once", "rounded once", "readers that compute in float32 and round at the end",
                sibling(layout, rounds_each=False), lambda here, there: f"Rounds to {name} once, not after each operation.",
            )  # fmt: skip
        yield Reading(
            "float32", "kept in float32", "readers that don't round to the output dtype",
            replace(layout, given_dtype=torch.float32), lambda here, there: f"Does not round to {name}.",
        )  # fmt: skip
    other = _narrower(layout)
    if other is not None:
        narrow = str(other).removeprefix("torch.")
        reader = "kernels in float16" if other == torch.float16 else "converters that cast to bfloat16"
        yield Reading(
            narrow, f"rounded to {narrow}", reader, replace(layout, given_dtype=other),
            lambda here, there: f"Rounds the value to {narrow}.",
        )  # fmt: skip


def _narrower(layout: Layout) -> torch.dtype | None:
    """The dtype to which readers of this format round what is float32 by its definition."""
    if layout.dtype != torch.float32:
        return None
    if isinstance(layout, Gptq | Awq | Gguf):
        return torch.float16
    narrow = isinstance(layout, Whole | BlockFloats) and layout.format_name != "compressed-tensors"
    return torch.bfloat16 if narrow else None


_FINDERS: tuple[tuple[type[Layout], Callable[..., Iterator[Reading]]], ...] = (
    (Gptq, _gptq), (Awq, _awq), (PackQuantized, _pack_quantized), (Whole, _whole), (BlockFloats, _block_floats),
    (FourBits, _four_bits), (Hqq, _parts), (QuantoBits, _parts), (TorchaoInt4, _torchao_int4), (BitNet, _bitnet), (Gguf, _gguf),
)  # fmt: skip
