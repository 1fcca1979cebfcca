"""MLX releases (mlx-lm): affine integers of 2, 3, 4, 5, 6 and 8 bits, and mxfp4, mxfp8, nvfp4.

Per module: ``weight`` uint32 [out, in*bits/32], codes one after another from the lowest bit, across words;
``scales`` [out, groups]; affine, also ``biases`` of the same shape: w = scale * code + bias, where the
product and the sum are each rounded to the dtype of the scales. In the other modes scales are bytes: E8M0
(mxfp4, mxfp8), or E4M3 (nvfp4).

``quantization`` in the config gives group_size, bits and mode, and exceptions by module. A scale may be
negative.

Source: mlx, mlx/backend/cpu/quantized.cpp (its CPU kernels round as described) and mlx/primitives; mlx-lm,
utils.py.
"""

from collections.abc import Iterator, Mapping

import torch

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, Pieces, StoredTensor
from quantcore.checkpoints.layouts.block_floats import SCALE_CODE, BlockFloats
from quantcore.checkpoints.packing import dense
from quantcore.checkpoints.protocol.config import (
    FROM_HIDDEN,
    LENGTHS,
    Config,
    group_size,
    hidden_size,
    integer,
    section,
    text,
)
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import Packed, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT, words
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import Facts, Statement, named
from quantcore.errors import QuantError
from quantcore.formats import IntFormat
from quantcore.granularity import PerGroup, Shape
from quantcore.wording import short

BITS = (2, 3, 4, 5, 6, 8)
GROUP_SIZES = (32, 64, 128)
# mode -> format of a code, elements of a block
FLOAT_MODES = {"mxfp4": ("e2m1", 32), "mxfp8": ("e4m3fn", 32), "nvfp4": ("e2m1", 16)}


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights with uint32 codes and scales, which only MLX releases have."""
    every = release.modules_with("weight", "scales", keep=("weight", "scales", "biases"))
    found = {module: pieces for module, pieces in every if pieces["weight"].dtype == "U32"}
    config = section(release.config, "quantization") or release.quantization
    alike = {module: pieces["weight"] for module, pieces in found.items() if not section(config, module)}
    bits = _bits_by_width(alike, hidden_size(release.config))
    for module, pieces in found.items():
        own = {**config, **section(config, module)}
        known = bits if module in alike else None
        yield attempt(f"{module}.weight", pieces, layout_of, module, pieces, own, known)


def _bits_by_width(weights: Mapping[str, StoredTensor], hidden: int | None) -> int | None:
    """Return the bits by which all weights that take the hidden state have its width; None if none do.

    Codes of 4 bits in groups of 64 have the shapes of codes of 8 bits in groups of 32.
    """
    from_hidden = [w for name, w in weights.items() if name.rpartition(".")[2] in FROM_HIDDEN and w.shape]
    found = {w.shape[-1] * 32 / hidden for w in from_hidden} if hidden else set()
    return next((b for b in BITS if found == {b}), None)


def layout_of(module: str, pieces: Pieces, config: Config, known: int | None = None) -> Layout:
    """Return the layout of one module; ``known``: the bits that the model's width says.

    Raises:
        QuantError: an unknown mode, or shapes that don't fit the config.
    """
    weight, scales = pieces["weight"], pieces["scales"]
    mode = text(config, "mode") or "affine"
    if mode not in ("affine", *FLOAT_MODES):
        raise QuantError(
            f"{named(module)} is stored in the mode {short(mode)}, which is not supported; the supported "
            f"modes are affine, {', '.join(FLOAT_MODES)}."
        )
    if len(weight.shape) < 2 or len(scales.shape) != len(weight.shape):
        raise QuantError(
            f"{named(weight.name)} has shape {weight.shape}, "
            f"which does not fit scales of shape {scales.shape}."
        )
    if mode != "affine":
        return _floats(module, pieces, mode)
    if "biases" not in pieces or not scales.is_floating:
        raise QuantError(
            f"The biases of {named(module)} are missing, or its scales are not floats; "
            "download the release again."
        )
    said, wanted = integer(config, "bits", BITS), integer(config, "group_size", LENGTHS)
    bits = said or known or _bits(weight, scales, wanted)
    remarks: tuple[Statement, ...] = ()
    other = (known or _other_bits(weight, scales, bits, wanted)) if said else None
    if other is not None and other != bits:
        words_ = (
            "{has} {said} bits according to the config, but codes of shape {shape} and scales of {scales} "
            "are those of {bits} bits in groups of {size}; {bits} bits are used."
        )
        columns = weight.shape[-1] * 32 // other
        facts: Facts = {
            "said": bits,
            "bits": other,
            "size": columns // max(1, scales.shape[-1]) if known else wanted or 0,
            "shape": weight.shape,
            "scales": scales.shape,
        }
        bits, remarks = other, (Statement("config_contradicted", "error", words_, facts),)
    columns = weight.shape[-1] * 32 // bits
    size, more = group_size(config, ("group_size",), columns, scales.shape[-1], scales)
    remarks = remarks or more
    shape = (*weight.shape[:-1], columns)
    dtype = TORCH_DTYPES[scales.dtype]
    fields = _fields(module, shape, pieces, size, bits)
    return Layout(
        f"{module}.weight", shape, dtype, pieces, fields,
        "mlx", words("mlx", f"int{bits}", f"per_group({size})", "asymmetric"),
        IntFormat(bits, signed=False), PerGroup(size),
        added=(ZERO_POINT, 1), rounds_each=True, symbols={ZERO_POINT: "bias"}, remarks=remarks,
    )  # fmt: skip


def _fields(module: str, shape: Shape, pieces: Pieces, size: int, bits: int) -> dict[str, Field]:
    """Return codes, scales and biases."""
    scales, biases = Numbers(pieces["scales"]), Numbers(pieces["biases"])
    grid = (*shape[:-1], shape[-1] // size)
    if scales.shape != grid or biases.shape != grid:
        raise QuantError(
            f"{named(f'{module}.weight')} has scales of shape {scales.shape} and biases of shape "
            f"{biases.shape}, but groups of {size} take shape {grid}; the file does not fit its config."
        )
    return {CODES: Packed(pieces["weight"], dense(bits, 32), shape), SCALE: scales, ZERO_POINT: biases}


def _bits(weight: StoredTensor, scales: StoredTensor, size: int | None) -> int:
    """Return the bits that follow from the shapes and the group size, if the config does not give them."""
    for bits in BITS:
        if size is not None and weight.shape[-1] * 32 == scales.shape[-1] * size * bits:
            return bits
    raise QuantError(
        f"The config does not give the bits of {named(weight.name)}; put config.json next to the file."
    )


def _other_bits(weight: StoredTensor, scales: StoredTensor, bits: int, size: int | None) -> int | None:
    """Return the bits that fit the group size of the config, if the config's bits need one that MLX lacks."""
    words_, groups = weight.shape[-1] * 32, max(1, scales.shape[-1])
    if size is None or words_ == groups * size * bits or words_ in [groups * s * bits for s in GROUP_SIZES]:
        return None
    return next((b for b in BITS if words_ == groups * size * b), None)


def _floats(module: str, pieces: Pieces, mode: str) -> Layout:
    code, size = FLOAT_MODES[mode]
    weight, scales = pieces["weight"], pieces["scales"]
    if scales.dtype != "U8":
        raise QuantError(f"{named(scales.name)} is {scales.dtype}, but scales of {mode} must be bytes.")
    # little-endian words and their bytes form the same bit stream
    packed = (*weight.shape[:-1], weight.shape[-1] * 4)
    own = {
        CODES: viewed(weight, "U8", packed),
        SCALE_CODE: viewed(scales, "F8_E4M3", scales.shape) if mode == "nvfp4" else scales,
    }
    return BlockFloats(f"mlx {mode}", code, size).layout(f"{module}.weight", torch.bfloat16, own)
