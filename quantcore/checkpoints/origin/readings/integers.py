"""Other readings of integers: GPTQ, AWQ, compressed-tensors, HQQ, optimum-quanto, torchao, BitNet."""

from collections.abc import Iterator
from dataclasses import replace

from quantcore.checkpoints.layouts.awq import Awq
from quantcore.checkpoints.layouts.compressed_tensors.packed import PackQuantized
from quantcore.checkpoints.layouts.gptq import PLANAR, Gptq
from quantcore.checkpoints.layouts.in_parts.bitnet import BitNet, DividedBitNet
from quantcore.checkpoints.layouts.in_parts.hqq import Hqq
from quantcore.checkpoints.layouts.in_parts.quanto import QuantoBits
from quantcore.checkpoints.layouts.libraries.torchao import TorchaoInt4
from quantcore.checkpoints.origin.arithmetic import Origin
from quantcore.checkpoints.origin.readings.record import Reading, elsewhere, instead, same_record
from quantcore.checkpoints.origin.rival_layouts import CarriedGptq, UnwrappedGptq, sibling, without
from quantcore.checkpoints.packing import dense, high_first, padded, parts
from quantcore.checkpoints.protocol.layout import Layout


def gptq(layout: Gptq) -> Iterator[Reading]:
    """Yield the other readings of GPTQ: the version of the zero points, how a stored 15 wraps, the group index."""
    if layout.bits not in PLANAR and layout.version != "gptq_p":
        v1 = layout.zero_offset() == -1
        other = replace(layout, version="gptq_v2" if v1 else "gptq", config_symmetric=False)
        if v1:
            reader, what = (
                "readers that expect gptq_v2 or don't know v1 (vllm#26092)",
                "Takes the stored zero point as it is",
            )
        else:
            reader, what = (
                "readers that assume v1, as for a config that names no version (vllm#38966)",
                "Adds 1 to the stored zero point",
            )
        yield Reading("gptq_version", f"as GPTQ {'v2' if v1 else 'v1'}", reader, other, instead("z", what))
        if v1 and layout.bits in (2, 4, 8):
            largest = (1 << layout.bits) - 1
            yield Reading(
                "zero_point_unwrapped", "1 added without wrapping", "AutoGPTQ's qlinear_cuda, llama.cpp's converter",
                same_record(UnwrappedGptq, layout), instead("z", f"Reads a stored {largest} as {largest + 1}, not 0"),
            )  # fmt: skip
            yield Reading(
                "zero_point_carried", "1 added to the whole word", "GPTQModel's kernels",
                same_record(CarriedGptq, layout),
                instead("z", f"Lets a stored {largest} carry into the next zero point of its word"),
            )  # fmt: skip
    if layout.group_index() is not None:
        yield _in_order(without(layout, "g_idx"), "readers that ignore g_idx, or trust a desc_act of false")


def _in_order(layout: Layout, reader: str) -> Reading:
    """Return the reading with the columns in the order of the file."""

    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (o.parameters["scale"].words[0].index for o in (here, there))
        end = (
            "the same scale as here."
            if mine == theirs
            else f"the scale at {list(theirs)} instead of {list(mine)}."
        )
        return f"Takes the columns in order, without the group index: {end}"

    return Reading("g_idx_ignored", "group index ignored", reader, layout, sentence)


def awq(layout: Awq) -> Iterator[Reading]:
    """Yield the reading of AWQ without undoing its interleave."""
    yield Reading(
        "awq_interleave", "interleave not undone", "GPTQModel 7.7.0, convert_awq_file",
        sibling(layout, order=dense(4, 32)), elsewhere("Takes the eight codes of a word in the order in which they are stored"),
    )  # fmt: skip


def pack_quantized(layout: PackQuantized) -> Iterator[Reading]:
    """Yield the other packing of compressed-tensors, if the two differ, and the columns in order."""
    for version, words, reader in (
        ("0.16.0", "whole codes per word", "compressed-tensors before 0.17.0"),
        ("0.17.0", "codes across words", "compressed-tensors since 0.17.0"),
    ):
        other = replace(layout, version=version)
        if layout.bits in (3, 5, 6, 7) and other.order(*_width(other)) != layout.order(*_width(layout)):
            yield Reading("packing", words, reader, other, elsewhere(f"Reads {words}"))
    if layout.group_index() is not None:
        yield _in_order(without(layout, "weight_g_idx"), "compressed-tensors 0.20")


def _width(layout: PackQuantized) -> tuple[int, int]:
    return layout.shape[-1], layout.pieces["weight_packed"].shape[-1]


def in_parts(layout: Hqq | QuantoBits) -> Iterator[Reading]:
    """Yield the reading that takes the parts of the rows from the other end of the word."""
    low_first = isinstance(layout, QuantoBits)
    order, bits = layout.order, layout.order.bits
    if order.in_parts:
        other = parts((high_first if low_first else padded)(bits, order.word_bits))
        yield Reading(
            "part_order", f"first rows in the {'high' if low_first else 'low'} bits",
            f"readers that use the order of {'HQQ' if low_first else 'optimum-quanto'}", sibling(layout, order=other),
            elsewhere(f"Takes the first part of the rows from the {'high' if low_first else 'low'} bits"),
        )  # fmt: skip


def torchao_int4(layout: TorchaoInt4) -> Iterator[Reading]:
    """Yield the other order of two codes in a byte."""
    yield Reading(
        "nibble_order", "upper half of a byte first", "readers that use bitsandbytes' order",
        sibling(layout, order=high_first(4, 8)), elsewhere("Takes the even one of two elements from the upper half of the byte"),
    )  # fmt: skip


def bitnet(layout: BitNet) -> Iterator[Reading]:
    """Yield the other use of the scale."""
    divided = layout.decoding == "divided"
    verb = (
        "Multiplies by the scale instead of dividing."
        if divided
        else "Divides by the scale instead of multiplying."
    )
    yield Reading(
        "linear_class", f"as {'autobitlinear' if divided else 'bitlinear'}",
        "transformers, with the other linear_class in the config",
        same_record(BitNet if divided else DividedBitNet, layout), lambda here, there: verb,
    )  # fmt: skip
