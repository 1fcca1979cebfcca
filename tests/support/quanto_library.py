"""optimum-quanto as the tests use it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch


def quanto() -> Any:
    """Return `optimum.quanto`, without compiling its kernel that unpacks bits; skip where it is missing.

    On first use it would, which takes a minute and a compiler.
    """
    library = pytest.importorskip("optimum.quanto")
    from optimum.quanto.library.extensions.cpp import ext

    ext._lib = SimpleNamespace(unpack=_unpack)
    return library


def _unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the codes of packed bytes as its unpack.cpp does: the lowest bits of all bytes come first."""
    return torch.cat([packed >> shift & 2**bits - 1 for shift in range(0, 8, bits)])
