"""How much memory results take: tensors and arrays are counted once, however many results share them."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_SMALL = 512  # bytes counted for an object that is not looked into
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type)


def storages(value: Any) -> dict[int, int]:
    """The pieces of memory that a result refers to: address -> bytes; all other objects together are one piece."""
    found, others = dict[int, int](), 0
    seen: set[int] = set()
    left = [value]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, torch.Tensor):
            memory = each.untyped_storage()
            found[memory.data_ptr()] = memory.nbytes()
        elif isinstance(each, np.ndarray):
            whole = _whole(each)
            found[whole.ctypes.data] = whole.nbytes
            left += each.flat if each.dtype.hasobject and each.size < 1 << 16 else ()
        else:
            others += sys.getsizeof(each, _SMALL)
            left += _parts(each)
    return found | {id(value): others}


def _whole(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _parts(value: Any) -> Iterator[Any]:
    """What a container or a record contains; nothing for a function or a module."""
    if isinstance(value, _LEAVES):
        return
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        yield from value
    elif dataclasses.is_dataclass(value):
        yield from (getattr(value, each.name, None) for each in dataclasses.fields(value))
    elif not callable(value):
        yield from getattr(value, "__dict__", {}).values()
