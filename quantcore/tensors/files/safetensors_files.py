"""The ``.safetensors`` format: a header, see `safetensors_header`, then the data."""

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.tensors.files.entries import Entry, TensorInfo
from quantcore.tensors.files.safetensors_header import read_safetensors_header
from quantcore.wording import short

_DTYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "|b1",
    "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
}  # fmt: skip


def open_safetensors(data: memoryview, name: str) -> dict[str, Entry]:
    """Return the tensors of a ``.safetensors`` file by name.

    Raises:
        QuantError: the header can't be read, or does not describe the bytes that follow it.
    """
    header = read_safetensors_header(lambda offset, size: data[offset : offset + size], len(data), name)
    return {
        tensor: Entry(info, partial(_load, info, data[offset : offset + info.nbytes]))
        for tensor, (info, offset) in header.tensors.items()
    }


def _load(info: TensorInfo, data: memoryview) -> npt.NDArray[Any]:
    if info.dtype == "C64":
        raise QuantError(f"{short(info.name)} contains complex numbers; save an array of real numbers.")
    if info.dtype not in _DTYPES:
        raise QuantError(
            f"{short(info.name)} contains {info.dtype} codes, which have no values without their scales; "
            "dequantize it and save it as F32."
        )
    flat = np.frombuffer(data, dtype=_DTYPES[info.dtype], count=math.prod(info.shape))
    if info.dtype == "BF16":  # the upper half of a float32
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.reshape(info.shape)
