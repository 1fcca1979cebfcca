"""Conversion of input arrays to the float32 tensor from which everything is computed."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.errors import QuantError
from quantcore.wording import passed

CHUNK = 1 << 19  # elements processed at a time: 2 MB of float32 stay in the cache (the fastest of 2^14..2^19)


def decimal(value: float) -> str:
    """Return the shortest decimal that reads back as the same float32; ``-0``, ``inf`` and ``nan`` included.

    >>> decimal(2.0**-23), decimal(255.0), decimal(-0.0)
    ('1.1920929e-07', '255', '-0')
    """
    narrow = np.float32(value)
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value)) if value or not np.signbit(narrow) else "-0"
    return str(narrow)


def apart(value: float, *limits: float, digits: int = 7) -> str:
    """Return the number with the digits, at least ``digits``, that show on which side of limits it is.

    >>> apart(8.25, 8.0), apart(8.9999998, 9.0), apart(19.97, 20.0, digits=3)
    ('8.25', '8.9999998', '19.97')
    """

    def sides(of: float) -> list[tuple[bool, bool]]:
        return [(of > limit, of < limit) for limit in limits]

    texts = (f"{value:.{more}g}" for more in range(digits, 17))
    return next((text for text in texts if sides(float(text)) == sides(value)), f"{value:.17g}")


def before_rounding(value: float) -> str:
    """Return a number with seven significant digits, or enough to show it is no tie and no integer.

    >>> before_rounding(2.4999999), before_rounding(2.5)
    ('2.4999999', '2.5')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    return apart(value, math.floor(2 * value) / 2, math.ceil(2 * value) / 2)


# the dtypes of models that libraries compute in; any other is converted to float32
FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def as_floats(x: Any) -> Tensor:
    """Return x as a tensor in its own dtype, not copied, if that is one of `FLOAT_DTYPES`, else as float32.


    Lists and numbers have no dtype of their own: they become float32.

    Raises:
        QuantError: as in `as_float32`, without the limit of float32 for float64.
    """
    array = isinstance(x, Tensor | np.ndarray | np.generic)
    if not isinstance(x, Tensor):
        x = _from_numpy(_checked(x))
    if x.is_meta:
        raise QuantError(
            f"x is on the meta device, shape {tuple(x.shape)}, and has no values; load them first."
        )
    if x.dtype.is_complex or x.is_quantized or x.layout != torch.strided:
        kind = "quantized" if x.is_quantized else "sparse" if x.layout != torch.strided else "complex"
        raise QuantError(f"x is a {kind} tensor; give a dense tensor of real numbers.")
    if x.numel() == 0:
        raise QuantError(f"x has no elements, shape {tuple(x.shape)}; give at least one number.")
    x = x.detach()
    return x if array and x.dtype in FLOAT_DTYPES else _narrowed(x)


def as_float32(x: Any) -> Tensor:
    """Return x as a float32 tensor on its device; float32 is not copied.

    float16, bfloat16, float64 and integers are converted. float64 and integers beyond 2^24 are rounded to the
    nearest float32.

    Raises:
        QuantError: x is not an array of real numbers, has no elements, or contains numbers beyond float32.
    """
    return _narrowed(as_floats(x))


def held(x: Any) -> tuple[Tensor, torch.dtype]:
    """Return x as results hold it, half precision as float32 numbers of the same value, and its dtype.

    Raises:
        QuantError: as in `as_floats`.
    """
    x = as_floats(x)
    return x.float() if x.itemsize == 2 else x, x.dtype


def _narrowed(x: Tensor) -> Tensor:
    result = x.to(torch.float32)
    if x.dtype == torch.float64 and torch.isinf(result).sum() > torch.isinf(x).sum():
        raise QuantError("x contains numbers beyond float32, whose largest is 3.4e38; scale the tensor down.")
    return result


def _checked(x: Any) -> Any:
    """Return x if it may be an array of numbers.

    Raises:
        QuantError: it is something else, or has masked elements.
    """
    if isinstance(x, torch.nn.Module):
        raise QuantError(f"x is a module, {type(x).__name__}; give one of its tensors, such as model.weight.")
    if isinstance(x, Mapping):
        key = repr(next(iter(x), "weight"))[:60]
        raise QuantError(f"x is {passed(x)}; give one of its tensors, such as x[{key}].")
    if np.ma.is_masked(x):
        raise QuantError("x has masked elements; give x.filled(0), with the number that is to replace them.")
    is_array = hasattr(x, "__len__") or hasattr(x, "__array__") or isinstance(x, Real)
    if isinstance(x, str | bytes | type) or not is_array:
        how = "; read it by qc.tensors.parse" if isinstance(x, str) else ""
        raise QuantError(f"x is {passed(x)}; give a tensor, an array or nested lists of numbers{how}.")
    return x


def _from_numpy(x: Any) -> Tensor:
    try:
        array = np.asarray(x)
    except ValueError:
        raise QuantError("x has rows of different lengths; give a rectangular array.") from None
    except (TypeError, RuntimeError, NotImplementedError):  # a list of tensors that NumPy can't read
        raise QuantError("x is not an array of numbers; give a tensor, an array or nested lists.") from None
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise QuantError(f"x has dtype {array.dtype}; give an array of real numbers up to float64.")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.float32)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # torch can't share memory that is read-only, has negative strides, or is one field of records
    if not array.flags.writeable or any(s < 0 or s % array.itemsize for s in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def refuse_nonfinite(x: Tensor, who: str, what: str = "x") -> None:
    """Raise a QuantError with their number and the first index if ``what`` contains NaN or infinity."""
    if math.isfinite(x.amin()) and math.isfinite(x.amax()):  # NaN counts as the extreme
        return
    rows = x.reshape(-1)
    nan, inf = int(rows.isnan().sum()), int(rows.isinf().sum())
    first = int((~rows.isfinite()).nonzero()[0])
    index = tuple(int(i) for i in np.unravel_index(first, x.shape))
    found = [
        f"one {one}" if n == 1 else f"{n:,} {many}"
        for n, one, many in ((nan, "NaN", "NaN"), (inf, "infinity", "infinities"))
        if n
    ]
    raise QuantError(
        f"{what} contains {' and '.join(found)}{', the first' * (nan + inf > 1)} at index {index}; "
        f"{who} does not accept non-finite values. Replace or remove them."
    )
