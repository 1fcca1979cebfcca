"""ggml's own quantizer from the pywhispercpp wheel (x86-64, no fused multiply-add)."""

import ctypes
import importlib.util
from functools import cache
from pathlib import Path

import numpy as np
import pytest

TYPE_IDS = {
    "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
    "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "TQ1_0": 34, "TQ2_0": 35, "MXFP4": 39,
}  # fmt: skip
WEIGHTED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS")


def library_path():
    """The path of the shared library; None if the wheel is not installed."""
    found = importlib.util.find_spec("pywhispercpp")
    if found is None or not found.submodule_search_locations:
        return None
    site = Path(found.submodule_search_locations[0]).parent
    return next(iter(sorted((site / "pywhispercpp.libs").glob("libggml-base*"))), None)


@cache
def _library():
    library = ctypes.CDLL(str(library_path()))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p,
    ]  # fmt: skip
    library.ggml_row_size.restype = ctypes.c_size_t
    library.ggml_row_size.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.ggml_validate_row_data.restype = ctypes.c_bool
    library.ggml_validate_row_data.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    return library


def quantize(name, x, importance=None):
    """The bytes that ggml_quantize_chunk writes, of shape (rows, bytes per row)."""
    x = np.ascontiguousarray(x, np.float32)
    rows, columns = x.shape
    out = np.zeros((rows, _library().ggml_row_size(TYPE_IDS[name], columns)), np.uint8)
    weights = None if importance is None else np.ascontiguousarray(importance, np.float32)
    _library().ggml_quantize_chunk(
        TYPE_IDS[name], x.ctypes.data, out.ctypes.data, 0, rows, columns,
        None if weights is None else weights.ctypes.data,
    )  # fmt: skip
    return out


def is_valid(name, blocks):
    """Whether ggml would load these bytes: it refuses non-finite scales."""
    return _library().ggml_validate_row_data(TYPE_IDS[name], blocks.ctypes.data, blocks.nbytes)


needs_ggml = pytest.mark.skipif(
    library_path() is None, reason="ggml is in pywhispercpp, of requirements-dev.txt"
)
