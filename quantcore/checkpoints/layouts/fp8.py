"""FP8 releases (quant_method fp8): in blocks (DeepSeek-V3 and others), or with one scale per tensor or row.

``weight`` F8_E4M3 [out, in]; ``weight_scale_inv`` [ceil(out/128), ceil(in/128)], which multiplies, despite
its name; blocks at the edges are partial. The block size is ``weight_block_size`` in the config, 128 x 128 by
default: the shape of the scales does not determine it. Scales are float32, or E8M0 (DeepSeek-V3.1 writes such
values as float32). Other releases have ``weight_scale``, one number or one per row. w = code * scale in
float32.

DeepSeek-V4: ``scale`` F8_E8M0 instead of weight_scale_inv; experts hold two FP4 codes per byte (int8 [out,
in/2], the lower bits first), with one scale per 32.

Source: DeepSeek-V3 9b4e9788, README_WEIGHTS.md and inference/kernel.py; GPTQModel f4c327a1,
utils/model_dequant.py.
"""

import math
from collections.abc import Iterator

import torch

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.layouts.block_floats import SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.whole import whole
from quantcore.checkpoints.protocol.config import Config, lengths
from quantcore.checkpoints.protocol.kinds import at_least_1d, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel

FP8 = ("F8_E4M3", "F8_E5M2")
CODED = (*FP8, "I8")  # an int8 holds two FP4 codes
BLOCK = (128, 128)


def find(release: Release) -> Iterator[Layout]:
    """Yield the FP8 weights (and FP4 experts) whose scales have one of the known names."""
    for name, piece in release.stored.items():
        if piece.dtype not in CODED:
            continue
        names = [f"{name}_scale_inv", f"{name}_scale"]
        if name.endswith(".weight"):  # experts in one tensor have names without it
            names.append(f"{name.removesuffix('weight')}scale")
        scale = next((release.stored[other] for other in names if other in release.stored), None)
        if scale is None:
            continue
        if piece.dtype in FP8:
            config, pieces = release.quantization, {"weight": piece, "weight_scale": at_least_1d(scale)}
            yield attempt(name, pieces, layout_of, name, pieces, config)
        elif piece.dtype == "I8" and scale.dtype == "F8_E8M0":
            pieces = {CODES: piece, SCALE_CODE: scale}
            yield attempt(name, pieces, _fp4, name, pieces)


def layout_of(name: str, pieces: Pieces, config: Config) -> Layout:
    """Return the layout of one weight.

    Raises:
        QuantError: the scales don't fit it.
    """
    weight, scale = pieces["weight"], pieces["weight_scale"]
    if not scale.is_floating or len(weight.shape) < 2:
        raise QuantError(
            f"{named(name)} has shape {weight.shape} and scales of {scale.dtype}; an FP8 weight has at least "
            "two axes and float scales."
        )
    block = lengths(config, "weight_block_size", 2) or (BLOCK if config else _of_shapes(weight, scale))
    granularity = _granularity(weight, scale, block)
    blocked = isinstance(granularity, PerBlock)
    kind = "fp8-block" if blocked else "fp8"
    return whole(name, torch.float32, pieces, kind, granularity)


def _granularity(weight: StoredTensor, scale: StoredTensor, block: tuple[int, ...]) -> Granularity:
    if "_inv" not in scale.name:
        if math.prod(scale.shape) == 1:
            return PER_TENSOR
        if len(weight.shape) == 2 and scale.shape in ((weight.shape[0],), (weight.shape[0], 1)):
            return PerChannel(0)
    shape = (*([1] * (len(weight.shape) - 2)), *block)
    return PerBlock(tuple(min(b, n) for b, n in zip(shape, weight.shape, strict=True)))


def _of_shapes(weight: StoredTensor, scale: StoredTensor) -> tuple[int, ...]:
    """Return the lengths of blocks that the shapes allow, where no config says them: 128 if these fit."""
    last = [*zip(weight.shape[-2:], scale.shape[-2:], strict=False)]
    usual = [-(-n // length) == count for (n, count), length in zip(last, BLOCK, strict=False)]
    if len(last) < 2 or all(usual) or any(not count or n % count for n, count in last):
        return BLOCK
    return tuple(n // count for n, count in last)


def _fp4(name: str, pieces: Pieces) -> Layout:
    codes = pieces[CODES]
    own = {CODES: viewed(codes, "U8", codes.shape), SCALE_CODE: pieces[SCALE_CODE]}
    kind = BlockFloats("fp8-block mxfp4", "e2m1", 32, e8m0_nan=True)
    return kind.layout(name, torch.float32, own)
