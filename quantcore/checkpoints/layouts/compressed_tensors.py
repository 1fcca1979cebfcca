"""compressed-tensors releases: llm-compressor, Neural Magic, Kimi-K2.

Source: compressed-tensors 0.20.0 (ac8e2ba8), src/compressed_tensors/compressors; 0.14.0 for the earlier packing and
activation order.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import cast

import torch

from quantcore.checkpoints.containers.stored import TORCH_DTYPES, StoredTensor
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats, unpacked_shape
from quantcore.checkpoints.layouts.compressed_tensors_groups import FORMATS, Group, Matcher, read_groups
from quantcore.checkpoints.layouts.pack_quantized import PackQuantized, shape_of
from quantcore.checkpoints.layouts.whole import ELEMENTS, whole
from quantcore.checkpoints.problem import named
from quantcore.checkpoints.protocol.config import group_size, text
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.refused import Deferred
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.protocol.value import CODES
from quantcore.checkpoints.statement import Facts, Statement
from quantcore.errors import QuantError
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup, Shape
from quantcore.wording import short

Pieces = Mapping[str, StoredTensor]
NAMES = (
    "weight", "weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx",
    "weight_global_scale",
)  # fmt: skip


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of a compressed-tensors release."""
    if not release.method:
        return
    groups, matcher = read_groups(release.quantization), Matcher()
    version = text(release.quantization, "version") or ""
    for module, pieces in release.modules_with("weight_scale"):
        own = {name: pieces[name] for name in NAMES if name in pieces}
        if "weight_packed" in own or ("weight" in own and own["weight"].dtype in ELEMENTS):
            make = partial(layout_of, module, own, groups, matcher, version)
            yield attempt(f"{module}.weight", own, make)


def layout_of(
    module: str, pieces: Pieces, groups: tuple[Group, ...], matcher: Matcher, version: str
) -> Layout:
    """Return the layout of one module.

    Raises:
        QuantError: no group of the config matches the kind of the stored tensors, or their shapes don't fit it.
    """
    fitting = tuple(group for group in groups if _fits(group, pieces))
    if not fitting:
        raise QuantError(
            f"No group of the config matches the stored tensors of {named(module)}; correct config.json."
        )
    group = matcher.choose(module, fitting)
    group.check(module)
    said = _other_format(pieces, group)
    if "weight_packed" in pieces and pieces["weight_packed"].dtype != "U8":
        return _packed(module, pieces, group, version, said)
    if "weight_packed" in pieces:
        found = _block_floats(module, pieces, group)
    else:
        make = _mxfp8 if pieces["weight_scale"].dtype == "U8" else _whole
        found = make(module, pieces, group)
    return found.changed(remarks=(*found.remarks, *said))


def _other_format(pieces: Pieces, group: Group) -> tuple[Statement, ...]:
    """Say that the stored tensors are not of the format that the config gives."""
    if group.format not in FORMATS:
        return ()
    name, dtypes = FORMATS[group.format]
    own = "weight_packed" if "weight_packed" in pieces else "weight"
    if own == name and pieces[own].dtype in dtypes:
        return ()
    words = (
        "{has} the format {format} according to the config, but {is} stored as a {piece} of {dtype}, which it does not "
        "write; other readers choose by the config and fail."
    )
    facts: Facts = {"format": group.format, "piece": own, "dtype": pieces[own].dtype}
    return (Statement("config_contradicted", "error", words, facts),)


def _fits(group: Group, pieces: Pieces) -> bool:
    """Whether the stored tensors are of the kind that the group says."""
    if "weight_packed" not in pieces:
        return (group.kind == "int") == (pieces["weight"].dtype == "I8")
    if pieces["weight_packed"].dtype == "U8":
        return group.kind == "float" and group.bits < 8
    return group.kind == "int" and group.bits <= 8


def _dtype(scale: StoredTensor) -> torch.dtype:
    """Return the dtype of the scales, in which the library returns values."""
    if not scale.is_floating:
        raise QuantError(f"{named(scale.name)} has the dtype {scale.dtype}, but scales must be floats.")
    return TORCH_DTYPES[scale.dtype]


def _packed(
    module: str, pieces: Pieces, group: Group, version: str, said: tuple[Statement, ...] = ()
) -> Layout:
    packed, scale = pieces["weight_packed"], pieces["weight_scale"]
    if len(packed.shape) < 2 or len(scale.shape) not in (0, 1, len(packed.shape)):
        raise QuantError(
            f"{named(packed.name)} has shape {packed.shape}, which does not fit scales of shape {scale.shape}."
        )
    if not group.symmetric and "weight_zero_point" not in pieces:
        raise QuantError(f"{named(module)} is asymmetric, but its weight_zero_point is missing.")
    has_groups = group.strategy in ("group", "tensor_group")
    columns = packed.shape[-1] * 32 // group.bits
    certain = has_groups and group.group_size and scale.shape[-1] * group.group_size == columns
    size: int | None = None
    remarks: tuple[Statement, ...] = ()
    read = None
    if "weight_shape" in pieces:
        read = partial(shape_of, packed, pieces["weight_shape"])
    if has_groups and not certain:
        # the group size differs from the config's, or words are padded: the stored shape tells
        columns = read()[-1] if read else columns
    if has_groups:
        size, remarks = group_size(
            {"group_size": group.group_size}, ("group_size",), columns, scale.shape[-1], scale
        )
    own = {name: piece for name, piece in pieces.items() if name not in ("weight", "weight_global_scale")}
    kind = PackQuantized(group.bits, group.symmetric, size, version, group.activation_order)
    name, dtype = f"{module}.weight", _dtype(scale)

    def make(shape: Shape) -> Layout:
        return kind.layout(name, shape, dtype, own, (*remarks, *said))

    if has_groups or read is None:
        return make((*packed.shape[:-1], columns))
    return cast(Layout, Deferred(name, "compressed-tensors", own, lambda: make(read())))


def _whole(module: str, pieces: Pieces, group: Group) -> Layout:
    weight, scale = pieces["weight"], pieces["weight_scale"]
    names = ("weight", "weight_scale") if group.symmetric else ("weight", "weight_scale", "weight_zero_point")
    missing = [name for name in names if name not in pieces]
    if missing:
        raise QuantError(f"The {missing[0]} of {named(module)} is missing; download the release again.")
    granularity, remarks = _granularity(group, weight, scale)
    own = {name: pieces[name] for name in names}
    return whole(
        f"{module}.weight", _dtype(scale), own, "compressed-tensors", granularity, min(group.bits, 8), remarks
    )


def _granularity(
    group: Group, weight: StoredTensor, scale: StoredTensor
) -> tuple[Granularity, tuple[Statement, ...]]:
    """Return the blocks as the config says, and a remark where the scales contradict it."""
    if group.strategy == "tensor" or math.prod(scale.shape) == 1 == math.prod(weight.shape[:-1]):
        return PER_TENSOR, ()
    if group.strategy == "channel":
        rows = len(weight.shape) - 1
        return (PerChannel(0) if rows < 2 else PerBlock((*([1] * rows), -1))), ()
    if group.strategy in ("group", "tensor_group"):
        if not weight.shape or not scale.shape:
            raise QuantError(
                f"{named(scale.name)} has shape {scale.shape}, which does not fit groups of a weight of shape "
                f"{weight.shape}."
            )
        config = {"group_size": group.group_size}
        size, remarks = group_size(config, ("group_size",), weight.shape[-1], scale.shape[-1], scale)
        return PerGroup(size), remarks
    if group.strategy == "block" and group.block and len(weight.shape) >= 2:
        block = (*([1] * (len(weight.shape) - 2)), *group.block)
        return PerBlock(tuple(min(b, n) for b, n in zip(block, weight.shape, strict=True))), ()
    raise QuantError(
        f"The strategy {short(group.strategy)} that the config gives for {named(weight.name)} is unknown or can't "
        "be applied to it; correct the config."
    )


def _mxfp8(module: str, pieces: Pieces, group: Group) -> Layout:
    weight = pieces["weight"]
    own = {CODES: weight, SCALE_CODE: pieces["weight_scale"]}
    kind = BlockFloats("compressed-tensors mxfp8", str(ELEMENTS[weight.dtype]), group.group_size or 32)
    return kind.layout(f"{module}.weight", weight.shape, torch.bfloat16, own)


def _block_floats(module: str, pieces: Pieces, group: Group) -> Layout:
    packed, scale = pieces["weight_packed"], pieces["weight_scale"]
    nvfp4 = scale.dtype == "F8_E4M3"
    own = {CODES: packed, SCALE_CODE: scale}
    if nvfp4:
        if "weight_global_scale" not in pieces:
            raise QuantError(
                f"The weight_global_scale of {named(module)} is missing, so its values are unknown."
            )
        own[GLOBAL_SCALE] = pieces["weight_global_scale"]
    elif scale.dtype not in ("U8", "F8_E8M0") or group.bits not in (4, 6):
        raise QuantError(
            f"{named(scale.name)} has the dtype {scale.dtype}, which is not supported for {group.bits}-bit codes."
        )
    kind = BlockFloats(
        f"compressed-tensors {'nvfp4' if nvfp4 else f'mxfp{group.bits}'}",
        "e2m1" if group.bits == 4 else "e2m3",
        group.group_size or (16 if nvfp4 else 32),
        "divides" if nvfp4 else "",
    )
    return kind.layout(f"{module}.weight", unpacked_shape(packed.shape, group.bits), torch.bfloat16, own)
