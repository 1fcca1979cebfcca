"""Arrays as Python source text, for the scripts of `snippets`.

=====================  ==========================================================================
array                  source
=====================  ==========================================================================
up to 300 elements     ``torch.tensor([[0.5, -1.0]])``, each number as short as is exact
up to 64 kB            its bytes, compressed, in base64
larger                 (only x) read from the exported file
=====================  ==========================================================================
"""

import base64
import re
import textwrap
import zlib

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantcore.tensors.dtypes import as_numpy

Array = NDArray[np.generic]

READABLE = 300  # elements that a person may still read
PACKED = 1 << 16  # bytes before compression: about 850 lines of base64
WIDTH = 100


def literal(x: Array | Tensor, module: str = "torch") -> str:
    """Return source that binds ``x`` to a tensor of x's shape and dtype, bit for bit.

    It needs torch (np if that is the ``module``), and for more than 300 elements also np, base64 and zlib.
    Above 64 kB it reads the file quantscope.npz from the Export tab. In NumPy, which has no bfloat16, such a
    tensor is float32.

    >>> literal(torch.tensor([[0.1, -2.0]])), literal(torch.tensor(8.31, dtype=torch.bfloat16))
    ('x = torch.tensor([[0.1, -2.0]])', 'x = torch.tensor(8.3125, dtype=torch.bfloat16)')
    """
    x = _tensor(x)
    if x.numel() > READABLE and x.nbytes > PACKED:
        read = 'np.load("quantscope.npz")["x"]'
        read = read if module == "np" else f"torch.from_numpy({read})"
        cast = ".to(torch.bfloat16)" if module == "torch" and x.dtype == torch.bfloat16 else ""
        return f"x = {read}{cast}  # from the Export tab, .npz"
    return f"x = {array_source(x, module)}"


def array_source(values: Array | Tensor, module: str = "torch") -> str:
    """Return an expression for a tensor of the same dtype (one of `DTYPES` or an integer) and bits.

    ``module``: "torch" for a torch tensor, "np" for a numpy array, in which bfloat16 is float32.
    """
    values = _tensor(values)
    name = str(values.dtype).removeprefix("torch.")
    if module == "np" and name == "bfloat16":
        name, values = "float32", values.float()
    if values.numel() > READABLE:
        return _packed(values, module)
    numbers = _nested(as_numpy(values))
    if values.is_floating_point():
        numbers = re.sub("nan|inf", lambda word: f"{module}.{word[0]}", numbers)
    if module == "np":
        return f"np.array({numbers}, np.{name})"
    dtype = "" if name == "float32" else f", dtype=torch.{name}"
    return f"torch.tensor({numbers}{dtype})"


def number_texts(values: Array) -> list[str]:
    """Return each element of a 1-D array as text: integers as such, floats with the fewest exact digits.

    >>> number_texts(np.array([0.1, 1e-30], np.float32))
    ['0.1', '1e-30']
    """
    texts = [str(v) for v in values]
    if values.dtype.kind == "f":
        # readers round to float64 first; for a few numbers ("7.038531e-26") this gives another float32
        back = np.array([float(t) for t in texts], np.float64).astype(values.dtype)
        for i in np.flatnonzero(back != values):
            texts[i] = repr(float(values[i]))
    return texts


def little_endian(values: Array) -> Array:
    """Return the array row-major and little-endian, without a copy if it already is."""
    return np.ascontiguousarray(values, values.dtype.newbyteorder("<"))


def _tensor(values: Array | Tensor) -> Tensor:
    if isinstance(values, Tensor):
        return values
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _nested(values: Array, indent: int = 0) -> str:
    if values.ndim == 0:
        return number_texts(values.reshape(1))[0]
    if values.ndim == 1:
        line = f"[{', '.join(number_texts(values))}]"
        return textwrap.fill(
            line, WIDTH - indent, subsequent_indent=" " * (indent + 1), break_on_hyphens=False
        )
    rows = [_nested(row, indent + 4) for row in values]
    if sum(map(len, rows)) < WIDTH - 40 and not any("\n" in row for row in rows):
        return f"[{', '.join(rows)}]"
    pad = " " * indent
    return "[\n" + "".join(f"{pad}    {row},\n" for row in rows) + f"{pad}]"


def _packed(values: Tensor, module: str) -> str:
    bits = values.dtype == torch.bfloat16
    array = (values.view(torch.int16) if bits else values).cpu().numpy()
    text = base64.b64encode(zlib.compress(little_endian(array).tobytes(), 9)).decode()
    lines = "\n".join(f'    "{line}"' for line in textwrap.wrap(text, WIDTH))
    dtype = array.dtype.newbyteorder("<").str
    read = f'np.frombuffer(zlib.decompress(base64.b64decode(\n{lines}\n)), "{dtype}").reshape({array.shape})'
    # copied, since torch warns about read-only memory
    return (
        read
        if module == "np"
        else f"torch.from_numpy({read}.copy()){'.view(torch.bfloat16)' if bits else ''}"
    )
