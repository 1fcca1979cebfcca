"""How other libraries, and common mistakes, read the same bytes: a layout for each, and a sentence on what it does."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from quantcore.checkpoints.layouts.awq import Awq
from quantcore.checkpoints.layouts.block_floats import BlockFloats
from quantcore.checkpoints.layouts.compressed_tensors.packed import PackQuantized
from quantcore.checkpoints.layouts.gguf.blocks import Gguf
from quantcore.checkpoints.layouts.gguf.weights import GgufFloats
from quantcore.checkpoints.layouts.gptq import Gptq
from quantcore.checkpoints.layouts.in_parts.bitnet import BitNet
from quantcore.checkpoints.layouts.in_parts.hqq import Hqq
from quantcore.checkpoints.layouts.in_parts.quanto import QuantoBits
from quantcore.checkpoints.layouts.libraries.bitsandbytes_4bit import FourBits
from quantcore.checkpoints.layouts.libraries.torchao import TorchaoInt4
from quantcore.checkpoints.layouts.plain import Plain
from quantcore.checkpoints.layouts.whole import Whole
from quantcore.checkpoints.origin.readings.blocks import gguf, rotary
from quantcore.checkpoints.origin.readings.floats import block_floats, four_bits, whole
from quantcore.checkpoints.origin.readings.integers import (
    awq,
    bitnet,
    gptq,
    in_parts,
    pack_quantized,
    torchao_int4,
)
from quantcore.checkpoints.origin.readings.record import Reading
from quantcore.checkpoints.origin.rival_layouts import sibling
from quantcore.checkpoints.protocol.layout import Layout


def readings(layout: Layout, heads: int = 0) -> Iterator[Reading]:
    """Yield the other readings of a weight, those that change most first.

    Args:
        heads: the number of attention heads of a weight whose rows llama.cpp may have permuted, else 0.

    Raises:
        QuantError: the tensor can't be read.
    """
    layout.check()
    for kind, find in _FINDERS:
        if isinstance(layout, kind):
            yield from find(layout)
    if heads and isinstance(layout, Gguf | GgufFloats):
        yield from rotary(layout, heads)
    yield from _precision(layout)


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
        reader = "float16 kernels" if other == torch.float16 else "converters that cast to bfloat16"
        yield Reading(
            narrow, f"rounded to {narrow}", reader, replace(layout, given_dtype=other),
            lambda here, there: f"Rounds the value to {narrow}.",
        )  # fmt: skip


def _narrower(layout: Layout) -> torch.dtype | None:
    """The dtype that readers of this format round to, although the format defines float32."""
    if layout.dtype != torch.float32:
        return None
    if isinstance(layout, Gptq | Awq | Gguf):
        return torch.float16
    narrow = isinstance(layout, Whole | BlockFloats) and layout.format_name != "compressed-tensors"
    return torch.bfloat16 if narrow else None


_FINDERS: tuple[tuple[type[Layout], Callable[..., Iterator[Reading]]], ...] = (
    (Gptq, gptq), (Awq, awq), (PackQuantized, pack_quantized), (Whole, whole), (BlockFloats, block_floats),
    (FourBits, four_bits), (Hqq, in_parts), (QuantoBits, in_parts), (TorchaoInt4, torchao_int4), (BitNet, bitnet), (Gguf, gguf),
)  # fmt: skip
