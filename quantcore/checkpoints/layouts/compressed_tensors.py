"""compressed-tensors releases: llm-compressor, Neural Magic, Kimi-K2.

``config_groups`` in the config: how the weights of groups of modules are quantized.

Source: compressed-tensors 0.20.0 (ac8e2ba8), src/compressed_tensors/compressors; 0.14.0 for the earlier
packing and activation order.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats
from quantcore.checkpoints.layouts.pack_quantized import PackQuantized, shape_of
from quantcore.checkpoints.layouts.whole import ELEMENTS, whole
from quantcore.checkpoints.protocol.config import LENGTHS, Patterns, flag, group_size, integer, section, text
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import CODES
from quantcore.checkpoints.protocol.release import Deferred, Release, attempt
from quantcore.checkpoints.statement import Facts, Statement, named
from quantcore.errors import QuantError
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup, Shape
from quantcore.wording import short

# QuantizationArgs.actorder: only these write weight_g_idx; "weight" and "static" leave columns in their order
_WITH_INDEX = ("group", "dynamic", True)
# CompressionFormat -> what holds the codes, and its dtypes; quantized weights have no other format
_INTEGERS, _FLOATS = ("I8",), ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
FORMATS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "int-quantized": ("weight", _INTEGERS),
    "float-quantized": ("weight", _FLOATS),
    "naive-quantized": ("weight", _INTEGERS + _FLOATS),
    "mxfp8-quantized": ("weight", _FLOATS),
    "pack-quantized": ("weight_packed", ("I32",)),
    "marlin-24": ("weight_packed", ("I32",)),
    "nvfp4-pack-quantized": ("weight_packed", ("U8",)),
    "mxfp4-pack-quantized": ("weight_packed", ("U8",)),
    "mxfp6-pack-quantized": ("weight_packed", ("U8",)),
}
MIXED = ("", "dense", "mixed-precision")  # each group has its own, or the stored tensors tell
STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")  # those of weights
NAMES = (
    "weight", "weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx",
    "weight_global_scale",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """The weights of a group of modules.

    ``targets``: names, classes or patterns (``re:...``);
    ``format``: such as ``pack-quantized``;
    ``group_size``: None or -1 without groups;
    ``block``: rows and columns of a block.
    """

    targets: tuple[str, ...]
    format: str
    bits: int
    kind: str
    symmetric: bool
    strategy: str
    group_size: int | None
    block: tuple[int, int] | None
    activation_order: bool

    def check(self, module: str) -> None:
        """Check that the library has such a format and strategy.

        Raises:
            QuantError: it has not.
        """
        for what, given, known in (
            ("format", self.format, (*FORMATS, *MIXED)),
            ("strategy", self.strategy, STRATEGIES),
        ):
            if given not in known:
                raise QuantError(
                    f"The config gives {named(module)} the {what} {short(given)}, which compressed-tensors "
                    f"does not have for weights; it is one of {', '.join(k for k in known if k)}."
                )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """The settings that determine how its weights are read."""
        return (self.format, self.bits, self.kind, self.symmetric, self.strategy, self.group_size, self.block)


def read_groups(config: Mapping[str, Any]) -> tuple[Group, ...]:
    """Return the groups of a quantization_config that quantize weights.

    Raises:
        QuantError: an entry has the wrong type, or an integer is out of range.
    """
    own = text(config, "format") or ""
    found = []
    for group in section(config, "config_groups").values():
        weights = section(group, "weights") if isinstance(group, dict) else {}
        if not weights:
            continue
        targets = group.get("targets")
        size = integer(weights, "group_size", range(-1, 2**31))
        found.append(
            Group(
                tuple(t for t in targets if isinstance(t, str)) if isinstance(targets, list) else (),
                text(group, "format") or own,
                integer(weights, "num_bits", range(1, 17)) or 8,
                text(weights, "type") or "int",
                flag(weights, "symmetric") is not False,
                text(weights, "strategy") or ("group" if size and size > 0 else "tensor"),
                size,
                _block(weights.get("block_structure")),
                weights.get("actorder") in _WITH_INDEX,
            )
        )
    return tuple(found)


def _block(value: Any) -> tuple[int, int] | None:
    if isinstance(value, str):  # as in old configs
        value = [int(part) if part.isdecimal() else part for part in value.split("x")[:3]]
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 2 and all(type(n) is int and n in LENGTHS for n in value):
        return value[0], value[1]
    raise QuantError(
        f"The config says block_structure {short(str(value))}; write two lengths, such as [128, 128]."
    )


def choose(module: str, groups: tuple[Group, ...], patterns: Patterns) -> Group:
    """Return the group whose targets name the module, else the first.

    Raises:
        QuantError: a pattern of the config takes too long to match, or is invalid.
    """
    if len({group.arguments for group in groups}) == 1:
        return groups[0]

    def matches(target: str) -> bool:
        return target.startswith("re:") and patterns.matches(target[3:], module)

    # in the library's order: exact names, then patterns; no file contains the classes of modules
    for names in (lambda target: target == module, matches):
        for group in groups:
            if any(names(target) for target in group.targets):
                return group
    return groups[0]


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights of a compressed-tensors release."""
    if not release.method:
        return
    groups, patterns = read_groups(release.quantization), Patterns()
    version, form = (text(release.quantization, key) or "" for key in ("version", "format"))
    said: tuple[Statement, ...] = ()
    if form not in (*FORMATS, *MIXED):  # groups may have formats of their own
        words = (
            "{has} the format {format} according to the top of {its} config, which compressed-tensors does "
            "not have; the format of {its} group, {own}, is used."
        )
        own_format = groups[0].format if groups else ""
        facts: Facts = {"format": short(form, 60), "own": short(own_format, 60)}
        said = (Statement("config_contradicted", "error", words, facts),)
    for module, own in release.modules_with("weight_scale", keep=NAMES):
        if "weight_packed" in own or ("weight" in own and own["weight"].dtype in ELEMENTS):
            yield attempt(f"{module}.weight", own, layout_of, module, own, groups, patterns, version, said)


def layout_of(
    module: str,
    pieces: Pieces,
    groups: tuple[Group, ...],
    patterns: Patterns,
    version: str,
    said: tuple[Statement, ...] = (),
) -> Layout:
    """Return the layout of one module.

    Args:
        said: of the config as a whole.

    Raises:
        QuantError: no group of the config matches the kind of the stored tensors, or their shapes don't fit
            it.
    """
    fitting = tuple(group for group in groups if _fits(group, pieces))
    if not fitting:
        raise QuantError(
            f"No group of the config matches the stored tensors of {named(module)}; correct config.json."
        )
    group = choose(module, fitting, patterns)
    group.check(module)
    said = (*said, *_other_format(pieces, group))
    if group.symmetric and "weight_zero_point" in pieces:
        found = _of_group(module, pieces, replace(group, symmetric=False), version, said)
        zero_point = found.zero_point()
        if zero_point is not None and bool(zero_point.any()):
            return found.changed(remarks=(*found.remarks, _asymmetric(zero_point)))
    return _of_group(module, pieces, group, version, said)


def _of_group(module: str, pieces: Pieces, group: Group, version: str, said: tuple[Statement, ...]) -> Layout:
    if "weight_packed" in pieces and pieces["weight_packed"].dtype != "U8":
        return _packed(module, pieces, group, version, said)
    if "weight_packed" in pieces:
        found = _block_floats(module, pieces, group)
    else:
        make = _mxfp8 if pieces["weight_scale"].dtype == "U8" else _whole
        found = make(module, pieces, group)
    return found.changed(remarks=(*found.remarks, *said))


def _asymmetric(zero_point: Tensor) -> Statement:
    """Say that the config takes a weight for symmetric that has zero points."""
    others = zero_point != 0
    words = (
        "{is} symmetric according to the config, but {zeros} ({share:%}) of {its} stored zero points are not "
        "0, such as {example}: the config is wrong, and readers that trust it leave them out. They are used; "
        "write symmetric: false."
    )
    facts: Facts = {
        "zeros": int(others.sum()), "share": float(others.double().mean()),
        "example": int(zero_point[others][0]),
    }  # fmt: skip
    return Statement("config_symmetric", "error", words, facts)


def _other_format(pieces: Pieces, group: Group) -> tuple[Statement, ...]:
    """Say that the stored tensors are not of the format that the config gives."""
    if group.format not in FORMATS:
        return ()
    name, dtypes = FORMATS[group.format]
    own = "weight_packed" if "weight_packed" in pieces else "weight"
    if own == name and pieces[own].dtype in dtypes:
        return ()
    words = (
        "{has} the format {format} according to the config, but {is} stored as a {piece} of {dtype}, which "
        "it does not write; other readers choose by the config and fail."
    )
    facts: Facts = {"format": group.format, "piece": own, "dtype": pieces[own].dtype}
    return (Statement("config_contradicted", "error", words, facts),)


def _fits(group: Group, pieces: Pieces) -> bool:
    """Tell whether the stored tensors are of the kind that the group says."""
    if "weight_packed" not in pieces:
        return (group.kind == "int") == (pieces["weight"].dtype == "I8")
    if pieces["weight_packed"].dtype == "U8":
        return group.kind == "float" and group.bits < 8
    return group.kind == "int" and group.bits <= 8


def _packed(
    module: str, pieces: Pieces, group: Group, version: str, said: tuple[Statement, ...] = ()
) -> Layout:
    packed, scale = pieces["weight_packed"], pieces["weight_scale"]
    if len(packed.shape) < 2 or len(scale.shape) not in (0, 1, len(packed.shape)):
        raise QuantError(
            f"{named(packed.name)} has shape {packed.shape}, "
            f"which does not fit scales of shape {scale.shape}."
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
    name, dtype = f"{module}.weight", scale.float_dtype

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
        f"{module}.weight",
        scale.float_dtype,
        own,
        "compressed-tensors",
        granularity,
        min(group.bits, 8),
        remarks,
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
                f"{named(scale.name)} has shape {scale.shape}, which does not fit groups of a weight of "
                f"shape {weight.shape}."
            )
        config = {"group_size": group.group_size}
        size, remarks = group_size(config, ("group_size",), weight.shape[-1], scale.shape[-1], scale)
        return PerGroup(size), remarks
    if group.strategy == "block" and group.block and len(weight.shape) >= 2:
        block = (*([1] * (len(weight.shape) - 2)), *group.block)
        return PerBlock(tuple(min(b, n) for b, n in zip(block, weight.shape, strict=True))), ()
    raise QuantError(
        f"The strategy {short(group.strategy)} that the config gives for {named(weight.name)} is unknown or "
        "can't be applied to it; correct the config."
    )


def _mxfp8(module: str, pieces: Pieces, group: Group) -> Layout:
    weight = pieces["weight"]
    own = {CODES: weight, SCALE_CODE: pieces["weight_scale"]}
    kind = BlockFloats("compressed-tensors mxfp8", str(ELEMENTS[weight.dtype]), group.group_size or 32)
    return kind.layout(f"{module}.weight", torch.bfloat16, own)


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
            f"{named(scale.name)} has the dtype {scale.dtype}, "
            f"which is not supported for {group.bits}-bit codes."
        )
    kind = BlockFloats(
        f"compressed-tensors {'nvfp4' if nvfp4 else f'mxfp{group.bits}'}",
        "e2m1" if group.bits == 4 else "e2m3",
        group.group_size or (16 if nvfp4 else 32),
        "divides" if nvfp4 else "",
    )
    return kind.layout(f"{module}.weight", torch.bfloat16, own)
