"""Weights that no name or config explains, and whose dtypes and shapes alone settle how they are read.

``weight`` FP8 or int8, and one float tensor of its module that is called a scale in whatever spelling
(``scale_weight`` of ComfyUI, ``weight_scales``, ``w_scale``, ...), with one number for the weight, each row,
or each group or block: w = code * scale. Scales of activations are not those of the weight.

What compressed-tensors writes, without its config: the stored shape and the width of the words give the bits,
the shape of the scales their groups, and zero points that are there make it asymmetric.
"""

import math
import re
from collections.abc import Iterator, Mapping

import torch

from quantcore.checkpoints.containers.stored import Pieces, StoredTensor
from quantcore.checkpoints.layouts import compressed_tensors
from quantcore.checkpoints.layouts.compressed_tensors import Group
from quantcore.checkpoints.layouts.pack_quantized import shape_of
from quantcore.checkpoints.layouts.whole import ELEMENTS, whole
from quantcore.checkpoints.packing import dense, padded
from quantcore.checkpoints.protocol.config import Patterns
from quantcore.checkpoints.protocol.kinds import at_least_1d
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.record import SCALE
from quantcore.checkpoints.protocol.release import Release, attempt
from quantcore.checkpoints.statement import Statement, named
from quantcore.errors import QuantError
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup

BLOCK = 128  # rows and columns of a block of FP8
BITS = (4, 8, 2, 3, 6, 5, 7, 1)  # of packed integers, the usual ones first
# words of names that are not those of the weight's scales
_OTHERS = frozenset((
    "input", "output", "act", "activation", "activations", "bias", "zero", "k", "v", "q", "kv", "smooth",
    "layer", "logit", "pre",
))  # fmt: skip
_WORD = re.compile(r"[a-z]+")


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights whose dtypes and shapes settle how they are read."""
    if release.structures:  # such a file says itself what belongs together
        return
    taken: set[str] = set()
    if not release.method:
        for module, pieces in release.modules_with("weight_scale", keep=compressed_tensors.NAMES):
            if "weight_packed" in pieces or ("weight" in pieces and pieces["weight"].dtype == "I8"):
                taken |= {piece.name for piece in pieces.values()}
                yield attempt(f"{module}.weight", pieces, _compressed, module, pieces)
    for name, weight in release.stored.items():
        if weight.dtype not in ELEMENTS or len(weight.shape) != 2 or min(weight.shape) < 2 or name in taken:
            continue
        scales = [piece for n, piece in _near(release, name).items() if _is_scale(n, name, weight, piece)]
        if len(scales) == 1:
            pieces = {"weight": weight, "weight_scale": at_least_1d(scales[0])}
            yield attempt(name, pieces, _scaled, name, pieces)


def _near(release: Release, name: str) -> Pieces:
    """Return the other stored tensors of a weight's module, and those below its own name."""
    module = name.rpartition(".")[0]
    near = release.modules[module] if module else {}
    found = {piece.name: piece for piece in near.values()}
    found |= {piece.name: piece for piece in release.modules.get(name, {}).values()}
    for last in ("scale", "_scale", "_scales"):
        if f"{name}{last}" in release.stored:
            found[f"{name}{last}"] = release.stored[f"{name}{last}"]
    return found


def _is_scale(own: str, name: str, weight: StoredTensor, piece: StoredTensor) -> bool:
    last = own.removeprefix(name.rpartition(".")[0]).lower()
    return (
        own != name
        and piece.dtype in ("F32", "F16", "BF16")
        and "scal" in last
        and _OTHERS.isdisjoint(_WORD.findall(last))
        and granularity_of(weight, piece) is not None
    )


def granularity_of(weight: StoredTensor, scale: StoredTensor) -> Granularity | None:
    """Return the blocks that the shape of scales settles; None if it does not."""
    rows, columns = weight.shape
    if math.prod(scale.shape) == 1:
        return PER_TENSOR
    if scale.shape in ((rows,), (rows, 1)):
        return PerChannel(0)
    if weight.dtype != "I8" and scale.shape == (-(-rows // BLOCK), -(-columns // BLOCK)):
        return PerBlock((min(BLOCK, rows), min(BLOCK, columns)))
    if len(scale.shape) == 2 and scale.shape[0] == rows and columns % max(1, scale.shape[1]) == 0:
        return PerGroup(columns // scale.shape[1])
    return None


def _scaled(name: str, pieces: Mapping[str, StoredTensor]) -> Layout:
    weight, scale = pieces["weight"], pieces["weight_scale"]
    granularity = granularity_of(weight, scale)
    assert granularity is not None  # see `_is_scale`
    kind = "int8" if weight.dtype == "I8" else "fp8"
    words = "{is} read as {format} times {its} {scale}: no config says so, but {its} dtypes and shapes fit."
    facts = {"format": str(ELEMENTS[weight.dtype]), "scale": scale.name.rpartition(".")[2]}
    said = Statement("assumed", "note", words, facts)
    return whole(name, torch.float32, pieces, kind, granularity, remarks=(said,)).changed(checks=_inverted)


def _inverted(layout: Layout) -> Iterator[Statement]:
    """Tell whether scales look like the inverse of those that multiply: weights would be far above 1."""
    middle = float(layout.fields[SCALE].read().abs().median())
    if middle > 1:
        words = (
            "{is} read as {its} codes times {scale}, {middle} (median): above 1, that looks like the "
            "inverse, and nothing in the file says which it is."
        )
        own = layout.fields[SCALE].piece.name.rpartition(".")[2]
        yield Statement("scale_inverted", "error", words, {"scale": own, "middle": middle})


def _compressed(module: str, pieces: Pieces) -> Layout:
    """Return the layout of what compressed-tensors wrote.

    Raises:
        QuantError: its dtypes and shapes don't settle it.
    """
    group = _group(pieces)
    if group is None:
        raise QuantError(
            f"{named(module)} looks like a weight of compressed-tensors ({', '.join(sorted(pieces))}), but "
            "the config is missing, and its shapes don't settle how it is read; put config.json next to the "
            "file."
        )
    found = compressed_tensors.layout_of(module, pieces, (group,), Patterns(), "")
    words = "{is} read as {storage}: no config says so, but {its} dtypes and shapes fit."
    said = Statement("assumed", "note", words, {"storage": str(found.storage)})
    return found.changed(remarks=(*found.remarks, said)) if isinstance(found, Layout) else found


def _group(pieces: Pieces) -> Group | None:
    """Return how a weight is quantized, from dtypes and shapes."""
    scale, symmetric = pieces["weight_scale"], "weight_zero_point" not in pieces
    if "weight_packed" not in pieces:
        return _of(8, "int", "int-quantized", symmetric, pieces["weight"].shape, scale)
    packed = pieces["weight_packed"]
    if packed.dtype == "U8":
        nvfp4 = scale.dtype == "F8_E4M3"
        size, name = (16, "nvfp4-pack-quantized") if nvfp4 else (32, "mxfp4-pack-quantized")
        fits = scale.shape == (*packed.shape[:-1], -(-2 * packed.shape[-1] // size))
        return Group((), name, 4, "float", True, "group", size, None, False) if fits else None
    if packed.dtype != "I32" or "weight_shape" not in pieces:
        return None
    shape = shape_of(packed, pieces["weight_shape"])
    orders = (o for bits in BITS for o in (dense(bits, 32), padded(bits, 32)))
    bits = next((o.bits for o in orders if o.words_of(shape[-1]) == packed.shape[-1]), None)
    return None if bits is None else _of(bits, "int", "pack-quantized", symmetric, shape, scale)


def _of(
    bits: int, kind: str, name: str, symmetric: bool, shape: tuple[int, ...], scale: StoredTensor
) -> Group | None:
    size, strategy = None, "channel"
    if math.prod(scale.shape) == 1:
        strategy = "tensor"
    elif len(scale.shape) == len(shape) and scale.shape[-1] > 1:
        strategy, size = "group", shape[-1] // scale.shape[-1]
        if size * scale.shape[-1] != shape[-1]:
            return None
    return Group((), name, bits, kind, symmetric, strategy, size, None, False)
