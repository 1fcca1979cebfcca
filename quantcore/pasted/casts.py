"""Casts as the hardware makes them: an integer keeps its lowest bits."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted.bounds import StopError

_WIDEST = 2.0**62  # casts of larger floats are undefined
_NUMPY = {"float": np.float64, "int": np.int64, "bool": np.bool_}


def cast(x: Any, dtype: Any) -> Any:
    """Return x in another type.

    A float that does not fit an integer type is truncated and keeps its lowest bits, as torch and NumPy do on x86,
    where C leaves it undefined.

    Raises:
        StopError: this is not a type of numbers.
    """
    if isinstance(x, Tensor):
        if isinstance(dtype, Tensor):
            dtype = dtype.dtype
        if not isinstance(dtype, torch.dtype) or dtype.is_complex:
            raise StopError("a tensor is converted here to what is not a type of numbers")
        if x.is_floating_point() and not dtype.is_floating_point and dtype != torch.bool:
            x = torch.nan_to_num(x.double(), 0.0).clamp(-_WIDEST, _WIDEST).to(torch.int64)
        return x.to(dtype)
    wanted = _NUMPY.get(dtype.__name__ if isinstance(dtype, type) else str(dtype))
    target = np.dtype(wanted if wanted is not None else dtype)
    if target.kind not in "biuf":
        raise StopError("an array is converted here to what is not a type of numbers")
    x = np.asarray(x)
    if x.dtype.kind == "f" and target.kind in "iu":
        x = np.clip(np.nan_to_num(x.astype(np.float64)), -_WIDEST, _WIDEST).astype(np.int64)
    return x.astype(target)[()]
