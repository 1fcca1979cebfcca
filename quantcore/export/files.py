"""A result as a file: .npz and .safetensors of all its arrays, .csv of one of them.

The arrays are named x, codes, scale, zero_point and dequantized; scale and zero_point are in block form. The text of
the scheme is included, so that the file says how its codes were computed.
"""

import io
from typing import Any

import numpy as np
import safetensors.torch
from torch import Tensor

from quantcore.quantization import Quantized
from quantcore.tensors import number_texts


def arrays(result: Quantized) -> dict[str, Tensor]:
    """Return x, codes, scale, zero_point and dequantized, on the CPU and row-major."""
    found = {
        "x": result.x,
        "codes": result.codes,
        "scale": result.scale,
        "zero_point": result.params.zero_point,
        "dequantized": result.dequantized,
    }
    return {name: tensor.cpu().contiguous() for name, tensor in found.items()}


def to_npz(result: Quantized) -> bytes:
    """Return an uncompressed .npz file, which can be loaded with ``allow_pickle=False``.

    In addition to the arrays it contains ``scheme``, a string of shape ().
    """
    file = io.BytesIO()
    named: dict[str, Any] = {name: tensor.numpy() for name, tensor in arrays(result).items()}
    np.savez(file, **named, scheme=np.array(str(result.scheme)))
    return file.getvalue()  # shares the buffer: no copy


def to_safetensors(result: Quantized) -> bytes:
    """Return a .safetensors file; its metadata contains the text of the scheme as ``scheme``."""
    return safetensors.torch.save(arrays(result), metadata={"scheme": str(result.scheme)})


def to_csv(values: Tensor | np.ndarray[Any, Any]) -> str:
    """Return one line per row: float32 with the fewest digits that round-trip, integers as they are.

    Rows run along the last axis, in row-major order: shape (2, 3, 4) gives 6 lines of 4 numbers, a vector one
    line, a scalar one line with one number.

    >>> to_csv(np.array([[0.1, -2.0], [1e-7, 3.0]], np.float32))
    '0.1,-2.0\\n1e-07,3.0\\n'
    """
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    return "".join(f"{','.join(number_texts(row))}\n" for row in rows)
