"""Other readings of ggml's blocks, and of rows that llama.cpp permutes."""

from collections.abc import Iterator
from dataclasses import replace

from quantcore.checkpoints.ggml.block_types.ternary_fp4_types import HalfE8m0
from quantcore.checkpoints.ggml.levels import Offset
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.gguf.weights import GgufFloats
from quantcore.checkpoints.origin.arithmetic import Origin
from quantcore.checkpoints.origin.readings.floats import e8m0_255
from quantcore.checkpoints.origin.readings.record import Reading, Sentence, instead
from quantcore.checkpoints.origin.rival_layouts import (
    RotaryRows,
    Unleaked,
    adjacent_nibbles,
    sibling,
)


def gguf(layout: Gguf) -> Iterator[Reading]:
    """Yield the other readings of ggml's blocks."""
    kind = layout.kind
    if kind.name == "Q5_K" and type(kind.levels) is Offset:
        yield Reading(
            "q5k_leak", "without a leaked bit",
            "no library; undoes what auto-round before 0.16.1, which packed without a mask, may have done",
            sibling(layout, kind=replace(kind, levels=Unleaked())),
            instead("q", "Clears bit 0 in odd sub-blocks where bit 4 of the other code in the byte is 1"),
        )  # fmt: skip
    other = adjacent_nibbles(kind)
    if other is not None:
        yield Reading(
            "nibble_order", "adjacent codes in a byte", "readers that use the order of MLX and compressed-tensors",
            sibling(layout, kind=other), _in_block("Takes two adjacent codes from each byte"),
        )  # fmt: skip
    if isinstance(kind.scale_of, HalfE8m0):
        yield e8m0_255(sibling(layout, kind=replace(kind, scale_of=HalfE8m0(nan=True))), True)


def _in_block(before: str) -> Sentence:
    def sentence(here: Origin, there: Origin) -> str:
        mine, theirs = (o.code.place.bits[0] for o in (here, there))
        start = here.code.words[0].offset
        where = [f"+{byte - start:02x}, {'upper' if bit else 'lower'} half" for byte, bit in (theirs, mine)]
        return f"{before}: this code is read from byte {where[0]}, instead of {where[1]}."

    return sentence


def rotary(layout: Gguf | GgufFloats, heads: int) -> Iterator[Reading]:
    """Yield the reading with the rows of q or k in Hugging Face's order."""
    if len(layout.shape) != 2 or layout.shape[0] % (2 * heads):
        return
    other = RotaryRows(layout.name, layout.shape, layout.dtype, layout.pieces, inner=layout, heads=heads)
    yield Reading(
        "rows_permuted", "rows in Hugging Face's order",
        "readers of Hugging Face's original: llama.cpp's converter permutes the rows of q and k", other,
        lambda here, there: f"Row {here.index[0]} of the original is row {other.stored_index(here.index)[0]} here.",
    )  # fmt: skip
