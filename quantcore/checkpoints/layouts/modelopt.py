"""NVIDIA ModelOpt releases: FP8, NVFP4, MXFP4, INT4-AWQ.

FP8: ``weight`` F8_E4M3, ``weight_scale`` one number, or one per row. NVFP4: ``weight`` uint8 [out, in/2], two
FP4 codes per byte, the lower bits first; ``weight_scale`` F8_E4M3 [out, in/16]; ``weight_scale_2`` one
number. Both multiply: w = code * (scale * scale_2). MXFP4: ``weight_scale`` uint8 E8M0 [out, in/32].
INT4-AWQ: ``weight`` uint8 [out/2, in], the even row in the lower bits, two's complement; ``weight_scale``
[out, in/group]. W4A8: the same, with a ``weight_scale_2`` by which its values are brought into FP8's range to
be multiplied there. ``pre_quant_scale`` and ``input_scale`` belong to the activations. Values are float32.
Scales of FP4 may be swizzled for tensor cores; where that takes no padding, nothing in the file says it, and
they are read as they stand.

Source: ModelOpt 5a4242fa, modelopt/torch/export/quant_utils.py and quantization/qtensor.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats, padded, swizzled
from quantcore.checkpoints.layouts.whole import whole
from quantcore.checkpoints.protocol.config import Config, group_size, section
from quantcore.checkpoints.protocol.fields import Numbers
from quantcore.checkpoints.protocol.kinds import LOW_FIRST, Packed, at_least_1d, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import Reading, instead
from quantcore.checkpoints.protocol.record import CODES, SCALE, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.formats import INT4
from quantcore.granularity import PER_TENSOR, Granularity, PerChannel, PerGroup

NAMES = ("weight", "weight_scale", "weight_scale_2")
NVFP4 = BlockFloats("modelopt nvfp4", "e2m1", 16, "multiplies")
MXFP4 = BlockFloats("modelopt mxfp4", "e2m1", 32)


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of a ModelOpt release."""
    config = section(release.quantization, "quantization") or release.quantization
    for module, pieces in release.modules_with("weight", "weight_scale", keep=NAMES):
        own = {name: at_least_1d(piece) for name, piece in pieces.items()}
        make = _kind_of(own)
        said = release.method or "quant_algo" in config
        if make is not None and (said or _is_settled(own)):
            yield attempt(f"{module}.weight", own, make, module, own, config)


def _kind_of(pieces: Pieces) -> Any:
    """Return what makes the layout of a module, by its dtypes and shapes; None if it is not quantized."""
    weight, scale = pieces["weight"], pieces["weight_scale"]
    if weight.dtype == "F8_E4M3":
        return _fp8
    if weight.dtype != "U8" or len(weight.shape) < 2:
        return None
    if scale.dtype in ("F8_E4M3", "U8"):
        return _fp4
    return _int4


def _is_settled(pieces: Pieces) -> bool:
    """Tell whether dtypes and shapes alone leave no other format: those of NVFP4, MXFP4 and INT4-AWQ."""
    weight, scale = pieces["weight"], pieces["weight_scale"]
    if weight.dtype != "U8" or len(weight.shape) != 2 or len(scale.shape) != 2:
        return False
    rows, columns = weight.shape
    if scale.dtype == "F8_E4M3":
        return "weight_scale_2" in pieces
    if scale.dtype == "U8":
        return scale.shape == (rows, -(-2 * columns // MXFP4.size))
    return scale.is_floating and scale.shape[0] == 2 * rows and columns % scale.shape[1] == 0


def _fp8(module: str, pieces: Pieces, config: Config) -> Layout:
    weight, scale = pieces["weight"], pieces["weight_scale"]
    granularity: Granularity = PER_TENSOR
    if scale.shape in ((weight.shape[0],), (weight.shape[0], 1)) and weight.shape[0] > 1:
        granularity = PerChannel(0)
    _ = scale.float_dtype  # raises if they are not floats
    own = {name: pieces[name] for name in ("weight", "weight_scale")}
    return whole(f"{module}.weight", torch.float32, own, "modelopt", granularity)


def _fp4(module: str, pieces: Pieces, config: Config) -> Layout:
    weight, scale = pieces["weight"], pieces["weight_scale"]
    nvfp4 = scale.dtype == "F8_E4M3" or "weight_scale_2" in pieces
    if nvfp4 and scale.dtype == "U8":  # the bytes of E4M3, as TensorRT-LLM writes them
        scale = viewed(scale, "F8_E4M3", scale.shape)
    if nvfp4 and "weight_scale_2" not in pieces:
        raise QuantError(
            f"The weight_scale_2 of {named(module)}, the scale of the whole tensor, is missing, so its "
            "values are unknown; download the release again."
        )
    own = {CODES: weight, SCALE_CODE: scale}
    if nvfp4:
        own[GLOBAL_SCALE] = pieces["weight_scale_2"]
    kind, shape = NVFP4 if nvfp4 else MXFP4, (*weight.shape[:-1], 2 * weight.shape[-1])
    grid = (*shape[:-1], -(-shape[-1] // kind.size))
    tiled = padded(grid)
    in_tiles = len(shape) == 2 and scale.shape != grid and scale.shape in (tiled, (math.prod(tiled),))
    layout = kind.layout(f"{module}.weight", torch.float32, own, in_tiles)
    if len(shape) == 2 and grid == padded(grid) and not in_tiles:
        other = {**layout.fields, SCALE_CODE: swizzled(scale, grid)}
        known = layout.rivals
        reading = Reading(
            "scales_swizzled", "scales in tiles",
            "kernels that take the scales for tiles of tensor cores, swizzled",
            layout.changed(fields=other), instead("s", "Takes the scales for tiles of 128 × 4"),
        )  # fmt: skip
        return layout.changed(rivals=lambda own: (*(known(own) if known else ()), reading))
    return layout


def _int4(module: str, pieces: Pieces, config: Config) -> Layout:
    weight, scale = pieces["weight"], pieces["weight_scale"]
    rows, columns = 2 * weight.shape[0], weight.shape[1]
    if len(weight.shape) != 2 or len(scale.shape) != 2 or scale.shape[0] != rows or not scale.is_floating:
        raise QuantError(
            f"{named(scale.name)} is {scale.dtype} of shape {scale.shape}, but INT4-AWQ needs a float per "
            f"row and group for codes of shape {(rows, columns)}; the file is damaged."
        )
    size, remarks = group_size(config, ("group_size",), columns, scale.shape[1], scale)
    codes = Packed(weight, LOW_FIRST, (rows, columns), axis=0, signed=True)
    return Layout(
        f"{module}.weight", (rows, columns), torch.float32, pieces, {CODES: codes, SCALE: Numbers(scale)},
        "modelopt", words("modelopt", "int4", f"per_group({size})", "symmetric"), INT4, PerGroup(size),
        remarks=remarks,
    )  # fmt: skip
