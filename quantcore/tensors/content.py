"""The identity of a tensor: a hash of every byte, whereas a cache may hash only a sample."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError


def content_hash(x: npt.NDArray[Any]) -> str:
    """Return 40 hexadecimal digits that change with the dtype, the shape or any byte of ``x``.

    SHA-1 of dtype, shape and the elements in C order: 0.14 s for the largest tensor, 235 MB. It
    distinguishes tensors; it is not for security.

    Raises:
        QuantError: ``x`` contains Python objects.
    """
    if x.dtype.hasobject:
        raise QuantError("x contains Python objects; give an array of numbers.")
    digest = hashlib.sha1(f"{x.dtype.str}{x.shape}".encode(), usedforsecurity=False)
    digest.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
