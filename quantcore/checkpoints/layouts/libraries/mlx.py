"""MLX releases (mlx-lm): affine integers of 2, 3, 4, 5, 6 and 8 bits, and mxfp4, mxfp8, nvfp4.

Per module: ``weight`` uint32 [out, in*bits/32], codes one after another from the lowest bit, across words; ``scales``
[out, groups]; affine, also ``biases`` of the same shape: w = scale * code + bias, where the product and the sum are
each rounded to the dtype of the scales. In the other modes scales are bytes: E8M0 (mxfp4, mxfp8), or E4M3 (nvfp4).

``quantization`` in the config gives group_size, bits and mode, and exceptions by module. A scale may be negative.

Source: mlx, mlx/backend/cpu/quantized.cpp (its CPU kernels round as described) and mlx/primitives; mlx-lm, utils.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar

import torch

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.layouts.block_floats import SCALE_CODE, BlockFloats, unpacked_shape
from quantcore.checkpoints.packing import dense
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import LENGTHS, group_size, integer, section, text
from quantcore.checkpoints.protocol.fields import Field, Numbers, Rows
from quantcore.checkpoints.protocol.layout import CODES, SCALE, ZERO_POINT, Layout, words
from quantcore.checkpoints.protocol.packed import Packed
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.spreading import Parameters
from quantcore.checkpoints.protocol.views import viewed
from quantcore.errors import QuantError
from quantcore.formats import FLOATS, Format, IntFormat
from quantcore.granularity import Granularity, PerGroup
from quantcore.tensors import short

BITS = (2, 3, 4, 5, 6, 8)
# mode -> format of a code, elements of a block
FLOAT_MODES = {"mxfp4": ("e2m1", 32), "mxfp8": ("e4m3fn", 32), "nvfp4": ("e2m1", 16)}


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights with uint32 codes and scales, which only MLX releases have."""
    for module, pieces in release.modules_with("weight", "scales"):
        if pieces["weight"].dtype == "U32":
            own = {name: pieces[name] for name in ("weight", "scales", "biases") if name in pieces}
            yield attempt(f"{module}.weight", own, partial(layout_of, module, own, _config(release, module)))


def _config(release: Release, module: str) -> Mapping[str, Any]:
    """Return the config of a module: that of all modules, with the exceptions for this one."""
    config = section(release.config, "quantization") or release.quantization
    own = section(config, module)
    return {**config, **own} if own else config


def layout_of(module: str, pieces: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: an unknown mode, or shapes that don't fit the config.
    """
    weight, scales = pieces["weight"], pieces["scales"]
    mode = text(config, "mode") or "affine"
    if mode not in ("affine", *FLOAT_MODES):
        raise QuantError(
            f"{named(module)} is stored in the mode {short(mode)}, which is not supported; the supported modes are "
            f"affine, {', '.join(FLOAT_MODES)}."
        )
    if len(weight.shape) < 2 or len(scales.shape) != len(weight.shape):
        raise QuantError(
            f"{named(weight.name)} has shape {weight.shape}, which does not fit scales of shape {scales.shape}."
        )
    if mode != "affine":
        return _floats(module, pieces, mode)
    if "biases" not in pieces or not scales.is_floating:
        raise QuantError(
            f"The biases of {named(module)} are missing, or its scales are not floats; download the release again."
        )
    bits = integer(config, "bits", BITS) or _bits(
        weight, scales, integer(config, "group_size", LENGTHS)
    )
    columns = weight.shape[-1] * 32 // bits
    size, remarks = group_size(config, ("group_size",), columns, scales.shape[-1], scales)
    shape = (*weight.shape[:-1], columns)
    dtype = TORCH_DTYPES[scales.dtype]
    return MlxAffine(f"{module}.weight", shape, dtype, pieces, bits=bits, group_size=size, remarks=remarks)


def _bits(weight: StoredTensor, scales: StoredTensor, size: int | None) -> int:
    """Return the bits that follow from the shapes and the group size, if the config does not give them."""
    for bits in BITS:
        if size is not None and weight.shape[-1] * 32 == scales.shape[-1] * size * bits:
            return bits
    raise QuantError(
        f"The config does not give the bits of {named(weight.name)}; put config.json next to the file."
    )


def _floats(module: str, pieces: Mapping[str, StoredTensor], mode: str) -> BlockFloats:
    code, size = FLOAT_MODES[mode]
    weight, scales = pieces["weight"], pieces["scales"]
    if scales.dtype != "U8":
        raise QuantError(f"{named(scales.name)} is {scales.dtype}, but scales of {mode} must be bytes.")
    # little-endian words and their bytes form the same bit stream
    packed = (*weight.shape[:-1], weight.shape[-1] * 4)
    return BlockFloats(
        f"{module}.weight",
        unpacked_shape(packed, FLOATS[code].bits),
        torch.bfloat16,
        {
            CODES: viewed(weight, "U8", packed),
            SCALE_CODE: viewed(scales, "F8_E4M3", scales.shape) if mode == "nvfp4" else scales,
        },
        kind=f"mlx {mode}",
        code=code,
        size=size,
    )


@dataclass(frozen=True, eq=False)
class MlxAffine(Layout):
    """A weight of integers with a scale and a bias per group."""

    bits: int = field(kw_only=True)
    group_size: int = field(kw_only=True)
    rounds_each: ClassVar[bool] = True

    @property
    def storage(self) -> str:
        """``mlx int4 per_group(64) asymmetric``."""
        return words("mlx", f"int{self.bits}", f"per_group({self.group_size})", "asymmetric")

    @property
    def element(self) -> Format:
        """Unsigned integers."""
        return IntFormat(self.bits, signed=False)

    @property
    def granularity(self) -> Granularity:
        """Groups along the last axis."""
        return PerGroup(self.group_size)

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        """Codes, scales and biases."""
        scales, biases = Numbers(self.pieces["scales"]), Numbers(self.pieces["biases"])
        grid = (*self.shape[:-1], self.shape[-1] // self.group_size)
        if scales.shape != grid or biases.shape != grid:
            raise QuantError(
                f"{named(self.name)} has scales of shape {scales.shape} and biases of shape {biases.shape}, but "
                f"groups of {self.group_size} take shape {grid}; the file does not fit its config."
            )
        codes = Packed(self.pieces["weight"], dense(self.bits, 32), self.shape)
        return {CODES: codes, SCALE: scales, ZERO_POINT: biases}

    def parameters(self, rows: Rows = None) -> Parameters:
        """Return scales and biases; biases are added after the multiplication."""
        scale, bias, _ = super().parameters(rows)
        return Parameters(scale, None, bias)
