"""The bytes that ggml writes for a result of one of the gguf schemes."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from quantcore.checkpoints.ggml.block_type import BlockType
from quantcore.checkpoints.ggml.block_types import BLOCK_TYPES
from quantcore.checkpoints.ggml.levels import digits_of
from quantcore.errors import QuantError
from quantcore.quantization import Quantized
from quantcore.scheme import gguf_type

Numbers = npt.NDArray[Any]


def ggml_bytes(result: Quantized) -> bytes:
    """Return the blocks of a result, row after row: what ``ggml_quantize_chunk`` writes for its x.

    Raises:
        QuantError: the result's scheme is not one of the gguf presets, with or without importance.
    """
    name = gguf_type(result.scheme)
    if name is None:
        raise QuantError(
            f"ggml has no block type for the scheme {str(result.scheme)[:120]!r}; "
            "use one of the presets gguf.* as it is."
        )
    block_type = BLOCK_TYPES[name]
    return block_type.pack(_fields(result, block_type)).tobytes()


def _fields(result: Quantized, block_type: BlockType) -> dict[str, Numbers]:
    """Return the numbers of the blocks by field, (blocks, entries)."""
    codes = _in_blocks(result.codes, block_type.elements)
    assert result.scales is not None
    found = {"codes": codes} | _of_scales(result.scales, block_type, "d", "scale_code")
    if block_type.name == "TQ1_0":
        found["digits"] = digits_of(codes)
    if result.mins is not None:
        found |= _of_scales(result.mins, block_type, "dmin" if result.mins.scales else "m", "min_code")
    if result.scheme.range_setting.ends_are_elements:
        extremes = result.scheme.convention.scale.symmetric_scale == "signed_amax"
        _sign_zeros(found, _in_blocks(result.x, block_type.sub_block), extremes)
    wanted = {field.name for field in block_type.fields}
    return {name: numbers for name, numbers in found.items() if name in wanted}


def _sign_zeros(fields: dict[str, Numbers], x: Numbers, signed: bool) -> None:
    """Give zeros, in place, the signs that they get in C when the extremes of a block are searched.

    The d of Q4_0 and Q5_0 is 0 / -8 if all elements are 0. The m of Q4_1 and Q5_1 is the first zero, +0 or
    -0, if the lowest element is 0. ``signed``: whether d has the sign of the extreme.
    """
    # few blocks: all others are not read again
    if "m" in fields:
        lowest = np.flatnonzero(fields["m"] == 0)
        lowest = lowest[x[lowest].min(axis=1) == 0]
        some = x[lowest]
        fields["m"][lowest, 0] = some[np.arange(len(some)), (some == 0).argmax(axis=1)]
    elif signed:
        empty = np.flatnonzero(fields["d"] == 0)
        fields["d"][empty[~x[empty].any(axis=1)]] = np.float16(-0.0)


def _of_scales(scales: Quantized, block_type: BlockType, d: str, code: str) -> dict[str, Numbers]:
    """Return scales (or mins) of blocks: one float16 or E8M0 each, or codes with a float16 of their own."""
    per_block = block_type.elements // block_type.sub_block
    if scales.scales is None:
        stored = _in_blocks(scales.codes, per_block)
        return {code: stored} if scales.scheme.format.bits == 8 else {d: _half(stored)}
    return {d: _half(_in_blocks(scales.scales.codes, 1)), code: _in_blocks(scales.codes, per_block)}


def _half(codes: Numbers) -> Numbers:
    """Return the float16 numbers whose bit patterns are the codes."""
    return codes.astype(np.uint16).view(np.float16)


def _in_blocks(numbers: Tensor, entries: int) -> Numbers:
    return numbers.cpu().contiguous().numpy().reshape(-1, entries)
