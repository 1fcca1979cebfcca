"""torchao releases in safetensors: its tensor classes, flattened.

The header's metadata has a JSON text per weight, {"_type", "_data", "_tensor_data_names"}; its parts are
stored as ``<module>._<parameter>_<part>``. The config's quant_type only names a recipe.

Float8Tensor, Int8Tensor, IntxUnpackedToInt8Tensor: one code a byte, scales (and zero points) per
``block_size``. MXTensor: E8M0 scales per 32; NVFP4Tensor: E4M3 scales per 16, times ``per_tensor_scale`` if
there is one. Int4Tensor: ``qdata`` int8 [out, in/2], the even column in the lower bits, two's complement;
``scale`` and ``zero_point`` [in/group, out]; w = code * scale + zero_point. The library has no CPU kernel for
this class, so its formula is computed in float32.

Source: torchao 0.18.0, torchao/prototype/safetensors, quantization/quantize_/workflows, prototype/mx_formats.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from quantcore.checkpoints.containers.stored import Pieces
from quantcore.checkpoints.layouts.block_floats import GLOBAL_SCALE, SCALE_CODE, BlockFloats, unpacked_shape
from quantcore.checkpoints.layouts.whole import ELEMENTS, whole
from quantcore.checkpoints.protocol.config import LENGTHS, Config, flag, integer, lengths, section
from quantcore.checkpoints.protocol.fields import Field, Numbers
from quantcore.checkpoints.protocol.kinds import LOW_FIRST, Packed, at_least_1d, viewed
from quantcore.checkpoints.protocol.layout import Layout
from quantcore.checkpoints.protocol.reading import nibbles
from quantcore.checkpoints.protocol.record import CODES, SCALE, ZERO_POINT, words
from quantcore.checkpoints.protocol.release import DTYPES, Release, attempt
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError
from quantcore.formats import INT4
from quantcore.granularity import PER_TENSOR, Granularity, PerBlock, PerChannel, PerGroup
from quantcore.tensors import load_json
from quantcore.wording import short

MAX_JSON = 64 * 2**10  # characters of one weight's description; it takes 200 to 600
INTEGERS = {f"int{bits}": bits for bits in range(1, 9)}
MX_ELEMENTS = {"float8_e4m3fn": "e4m3fn", "float8_e5m2": "e5m2", "float4_e2m1fn_x2": "e2m1"}
OTHERS = {
    "Int4TilePackedTo4dTensor": "tile-packed for a GPU's matrix units (tinygemm)",
    "Int4PreshuffledTensor": "shuffled for a GPU's matrix units",
    "Int4PlainInt32Tensor": "packed for an XPU or NPU",
    "IntxOpaqueTensor": "packed for one kernel",
}


def find(release: Release) -> Iterator[Layout]:
    """Yield the weights that the metadata of the headers describes."""
    for name, text in release.metadata.items():
        if not isinstance(text, str) or '"_type"' not in text or "." not in name:
            continue
        module, _, parameter = name.rpartition(".")
        prefix = f"_{parameter}_"
        pieces = {
            part.removeprefix(prefix): piece
            for part, piece in release.modules.get(module, {}).items()
            if part.startswith(prefix)
        }
        if pieces:
            yield attempt(name, pieces, layout_of, name, pieces, text)


def layout_of(name: str, pieces: Pieces, text: str) -> Layout:
    """Return the layout of one weight.

    Raises:
        QuantError: an unsupported class, or a description that does not fit the stored tensors.
    """
    if len(text) > MAX_JSON:
        raise QuantError(f"The description of {named(name)} in the header is too long; save the file again.")
    found = load_json(text, f"the description of {name}")
    kind = found.get("_type") if isinstance(found, dict) else None
    if kind not in MAKERS:
        reason = OTHERS.get(str(kind), "an unknown class")
        raise QuantError(
            f"{named(name)} is stored as torchao's {short(str(kind))}, {reason}, which is not supported; "
            f"save it as one of {', '.join(MAKERS)}."
        )
    needed, make = MAKERS[kind]
    missing = [part for part in needed if part not in pieces]
    if missing:
        raise QuantError(f"The {missing[0]} of {named(name)} is missing; download the release again.")
    return make(name, pieces, section(found, "_data"))


def _dtype(name: str, data: Config, key: str) -> torch.dtype:
    """Return a float dtype that the description gives."""
    said = section(data, key).get("_data")
    if str(said) not in DTYPES:
        raise QuantError(
            f"The description of {named(name)} says {key} {short(str(said))}, not one of {', '.join(DTYPES)}."
        )
    return DTYPES[str(said)]


def _whole(name: str, pieces: Pieces, data: Config) -> Layout:
    codes, scale = pieces["qdata"], pieces["scale"]
    if codes.dtype not in ELEMENTS or not scale.is_floating:
        raise QuantError(
            f"{named(codes.name)} is {codes.dtype} with scales of {scale.dtype}; the file is damaged."
        )
    block = lengths(data, "block_size", len(codes.shape))
    if block is None:
        raise QuantError(f"The description of {named(name)} gives no block_size; save the file again.")
    own = {"weight": codes, "weight_scale": scale}
    if "zero_point" in pieces:
        own["weight_zero_point"] = pieces["zero_point"]
    bits = 8
    if "target_dtype" in data:
        said = str(section(data, "target_dtype").get("_data"))
        if said not in INTEGERS:
            raise QuantError(
                f"The description of {named(name)} says target_dtype {short(said)}, not int1 to int8."
            )
        bits = INTEGERS[said]
    return whole(name, _dtype(name, data, "dtype"), own, "torchao", _granularity(block, codes.shape), bits)


def _granularity(block: tuple[int, ...], shape: tuple[int, ...]) -> Granularity:
    """Return the simplest granularity of blocks."""
    if all(b >= n for b, n in zip(block, shape, strict=True)):
        return PER_TENSOR
    if len(shape) == 2 and block[0] == 1:
        return PerChannel(0) if block[1] >= shape[1] else PerGroup(block[1])
    return PerBlock(tuple(min(b, n) for b, n in zip(block, shape, strict=True)))


def _floats(name: str, pieces: Pieces, data: Config, code: str, size: int) -> Layout:
    codes, scale = pieces["qdata"], pieces["scale"]
    in_tiles = flag(data, "is_swizzled_scales")
    if in_tiles is None:
        raise QuantError(
            f"The description of {named(name)} does not say whether is_swizzled_scales; save the file again."
        )
    own = {CODES: codes, SCALE_CODE: scale}
    if "per_tensor_scale" in pieces:
        own[GLOBAL_SCALE] = at_least_1d(pieces["per_tensor_scale"])
    kind = BlockFloats("torchao", code, size, "multiplies" if GLOBAL_SCALE in own else "", e8m0_nan=True)
    return kind.layout(name, _dtype(name, data, "orig_dtype"), own, in_tiles)


def _mx(name: str, pieces: Pieces, data: Config) -> Layout:
    said = str(section(data, "elem_dtype").get("_data", data.get("elem_dtype")))
    if said not in MX_ELEMENTS:
        raise QuantError(
            f"{named(name)} is an MXTensor of {short(said)}, which is not one of {', '.join(MX_ELEMENTS)}."
        )
    return _floats(name, pieces, data, MX_ELEMENTS[said], integer(data, "block_size", LENGTHS) or 32)


def _nvfp4(name: str, pieces: Pieces, data: Config) -> Layout:
    return _floats(name, pieces, data, "e2m1", integer(data, "block_size", LENGTHS) or 16)


def _int4(name: str, pieces: Pieces, data: Config) -> Layout:
    codes, scale, zero = (pieces[part] for part in ("qdata", "scale", "zero_point"))
    block = lengths(data, "block_size", 2)
    if len(codes.shape) != 2 or block is None or block[0] != 1:
        raise QuantError(f"{named(name)} is not a matrix in groups along its rows, as an Int4Tensor is.")
    rows, columns = unpacked_shape(codes.shape, 4)
    size = min(block[1], columns)
    expected = (-(-columns // size), rows) if size else ()
    if scale.shape != expected or zero.shape != expected or not (scale.is_floating and zero.is_floating):
        raise QuantError(
            f"{named(scale.name)} has shape {scale.shape} and its zero_point {zero.shape}, but groups of "
            f"{size} take floats of shape {expected}; the file is damaged."
        )
    own = {"qdata": viewed(codes, "U8", codes.shape), "scale": scale, "zero_point": zero}
    fields: dict[str, Field] = {
        CODES: Packed(own["qdata"], LOW_FIRST, (rows, columns), signed=True),
        SCALE: Numbers(scale),
        ZERO_POINT: Numbers(zero),
    }
    return Layout(
        name, (rows, columns), torch.float32, own, fields,
        "torchao", words("torchao", "int4", f"per_group({size})", "asymmetric"), INT4, PerGroup(size),
        added=(ZERO_POINT, 1), row_per_group=True, rivals=lambda layout: iter((nibbles(layout, "upper"),)),
    )  # fmt: skip


Maker = Callable[[str, Pieces, Config], Layout]
# class -> the parts that it must have, and what makes its layout
MAKERS: dict[Any, tuple[tuple[str, ...], Maker]] = {
    "Float8Tensor": (("qdata", "scale"), _whole),
    "Int8Tensor": (("qdata", "scale"), _whole),
    "IntxUnpackedToInt8Tensor": (("qdata", "scale"), _whole),
    "Int4Tensor": (("qdata", "scale", "zero_point"), _int4),
    "MXTensor": (("qdata", "scale"), _mx),
    "NVFP4Tensor": (("qdata", "scale"), _nvfp4),
}
