"""Types of numbers that NumPy lacks, as ml_dtypes names them: small integers and small floats.

An array of one has the next wider type of NumPy, with the name in its dtype's metadata, and the same numbers.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from quantcore.formats import FLOATS, FloatFormat

_LIKE = {  # by name, the format that has the same values
    "float8_e4m3fn": "e4m3fn", "float8_e5m2": "e5m2", "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz", "float8_e3m4": "e3m4", "float8_e8m0fnu": "e8m0", "float6_e2m3fn": "e2m3",
    "float6_e3m2fn": "e3m2", "float4_e2m1fn": "e2m1", "bfloat16": "bf16",
}  # fmt: skip
_FORMATS = {name: replace(FLOATS[like], saturate=FLOATS[like].nan == "none") for name, like in _LIKE.items()}
_INTEGERS = ("int2", "int4", "uint2", "uint4")
_SMALL_FLOAT = re.compile(r"float[468]_e\dm\d")
_WIDER = dict.fromkeys(_LIKE, "float32") | {name: f"{name.rstrip('24')}8" for name in _INTEGERS}
NARROW = {name: np.dtype(wider, metadata={"as": name}) for name, wider in _WIDER.items()}


@dataclass(frozen=True)
class TypeInfo:
    """What `finfo` and `iinfo` say of a type."""

    min: float
    max: float
    bits: int
    eps: float = 1.0
    tiny: float = 1.0


def name_of(dtype: object) -> str:
    """Return the name of a type of torch or NumPy, or of these."""
    return str((getattr(dtype, "metadata", None) or {}).get("as", dtype or "")).removeprefix("torch.")


def plain(array: Any) -> Any:
    """Return what is computed of such arrays in NumPy's type: their sums and products are no longer in it."""
    is_narrow = isinstance(array, np.ndarray) and array.dtype.metadata
    return array.view(array.dtype.type) if is_narrow else array


def is_small_float(name: str) -> bool:
    """Tell whether a type is a float of 4 to 8 bits."""
    return _SMALL_FLOAT.match(name) is not None


def float_format(name: str) -> FloatFormat:
    """Return the format that has the values of a small float, by the name of its type."""
    return FLOATS[_LIKE[name]]


def integer_limits(name: str) -> tuple[int, int] | None:
    """Return the lowest and highest integer of a type; None for floats."""
    match = re.fullmatch(r"(u?)int(\d+)", name)
    bits = int(match[2]) if match else 0
    if not match:
        return None
    return (0, 2**bits - 1) if match[1] else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def limits(dtype: np.dtype[Any]) -> TypeInfo:
    """Return what ml_dtypes' ``finfo`` and ``iinfo`` say of one of these types."""
    name = name_of(dtype)
    ends = integer_limits(name)
    if ends is not None:
        return TypeInfo(*ends, (ends[1] - ends[0]).bit_length())
    fmt = _FORMATS[name]
    return TypeInfo(-fmt.max if fmt.signed else fmt.min, fmt.max, fmt.bits, fmt.epsilon, fmt.min)


def cast(x: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an array in one of these types: floats rounded as by ml_dtypes, of integers the lowest
    bits."""
    name = name_of(dtype)
    ends = integer_limits(name)
    if ends is None:
        fmt = _FORMATS[name]
        codes = fmt.encode(torch.from_numpy(np.array(x, np.float32)))
        return fmt.decode(codes).numpy().astype(dtype)
    whole = np.clip(np.nan_to_num(np.asarray(x, np.float64)), -(2.0**62), 2.0**62).astype(np.int64)
    return ((whole - ends[0]) % (ends[1] - ends[0] + 1) + ends[0]).astype(dtype)
