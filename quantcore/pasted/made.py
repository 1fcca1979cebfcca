"""What pasted code makes and converts: tensors, arrays and types of numbers, as torch and NumPy do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantcore.pasted import narrow
from quantcore.pasted.bounds import numbers_in, require


def cast(x: Any, dtype: Any) -> Any:
    """Return x in another type of numbers.

    A float that does not fit an integer type is truncated and keeps its lowest bits, as torch and NumPy do on
    x86, where C leaves it undefined.
    """
    if isinstance(x, Tensor):
        real = isinstance(dtype, torch.dtype) and not dtype.is_complex
        require(real, "a tensor is converted here to what is not a type of numbers")
        if x.is_floating_point() and not dtype.is_floating_point and dtype != torch.bool:
            x = torch.nan_to_num(x.double()).clamp(-(2.0**62), 2.0**62).to(torch.int64)
        return x.to(dtype)
    target, x = np.dtype(dtype), np.asarray(x)
    if target.metadata:
        return narrow.cast(x, target)
    if x.dtype.kind == "f" and target.kind in "iu":
        x = np.clip(np.nan_to_num(x.astype(np.float64)), -(2.0**62), 2.0**62).astype(np.int64)
    return x.astype(target)[()]


def drawn(how: Callable[..., Tensor], *sizes: Any, **named: Any) -> Tensor:
    """Return random numbers, the same in each evaluation."""
    shape = map(int, numbers_in([*sizes, *named.values()]))
    return how(tuple(shape), generator=torch.Generator().manual_seed(0))


def integers(low: Any, high: Any, size: Any) -> Tensor:
    """Return random integers, the same in each evaluation."""
    shape = tuple(map(int, numbers_in([size])))
    return torch.randint(int(low), int(high), shape, generator=torch.Generator().manual_seed(0))


def between(low: Any = 0.0, high: Any = 1.0, size: Any = ()) -> Any:
    """Return random numbers, evenly distributed, as an array."""
    return low + (high - low) * drawn(torch.rand, size).double().numpy()


def around(mean: Any = 0.0, deviation: Any = 1.0, size: Any = ()) -> Any:
    """Return random numbers with a normal distribution, as an array."""
    return mean + deviation * drawn(torch.randn, size).double().numpy()


def tensor(value: Any, dtype: Any = None) -> Tensor:
    """Return a new tensor."""
    found = value.clone() if isinstance(value, Tensor) else torch.tensor(value, dtype=dtype)
    return found.to(dtype or found.dtype)


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def view(x: Tensor, *args: Any) -> Tensor:
    """Return a tensor in another shape, or its bytes in another type of the same size."""
    kind = args[0] if args else None
    if not isinstance(kind, torch.dtype):
        return x.reshape(*args)
    plain = kind.itemsize == x.dtype.itemsize and (kind.is_floating_point or kind in _INTEGERS)
    require(plain, "bytes are read here as a type of another size or kind")
    return x.view(kind)


def new(make: Callable[..., Tensor], x: Tensor, *args: Any, dtype: Any = None) -> Tensor:
    """Return a new tensor in the type of another one, if no other type is given."""
    return make(*args, dtype=dtype or x.dtype)


def array(value: Any, dtype: Any = None) -> Any:
    """Return a new array of numbers."""
    found = np.array(value, dtype=getattr(dtype, "type", dtype))
    require(found.dtype.kind in "biuf", "an array of anything but numbers is not evaluated")
    return narrow.cast(found, dtype) if getattr(dtype, "metadata", None) else found


def array_of(dtype: Any, value: Any, other: Any = None) -> Any:
    """Return an array in the type that is given, or ``dtype`` instead of float64."""
    found = array(value, other)
    return found.astype(dtype) if other is None and found.dtype == np.float64 else found
