"""What readers of files share: a tensor before its data are read, its conversion to float32, strict JSON.

Strict: without duplicate keys and without numbers beyond float64.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_LISTED, MAX_RANK
from quantcore.wording import megabytes, shape_text, short

Float32Array = npt.NDArray[np.float32]

USUAL_NAMES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "BOOL": "bool",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip


@dataclass(frozen=True)
class TensorInfo:
    """A tensor in a file: its name, shape, dtype as the file names it, and unpacked size in bytes.

    ``how``: sentences on how it is made from what is in the file; empty if its elements are stored as such.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    how: str = ""

    @property
    def dtype_name(self) -> str:
        """The usual name of the dtype: ``bfloat16`` for a file's ``BF16``, ``float64`` for its ``>f8``."""
        if self.dtype in USUAL_NAMES:
            return USUAL_NAMES[self.dtype]
        try:
            return np.dtype(self.dtype).name
        except TypeError:  # one that NumPy does not have, such as F8_E4M3
            return self.dtype

    @property
    def is_floating(self) -> bool:
        """Whether `read_tensor` reads it as floats; F8_E4M3 and the like are codes."""
        return self.dtype_name in ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Entry:
    """A tensor in a file and how to read it; ``load`` raises QuantError if it can't be read."""

    info: TensorInfo
    load: Callable[[], npt.NDArray[Any]]


def check_many(tensors: int, name: str) -> None:
    """Check that a user can choose among the tensors of a file.

    Raises:
        QuantError: there are too many.
    """
    if tensors > MAX_LISTED:
        raise QuantError(
            f"{short(name)} has {tensors:,} tensors; at most {MAX_LISTED:,} are listed, "
            "so save fewer in one file."
        )


def check_claim(name: str, shape: tuple[int, ...], itemsize: int) -> int:
    """Return the number of bytes that a header claims.

    Raises:
        QuantError: a size is negative or larger than any file, or there are too many axes.
    """
    if len(shape) > MAX_RANK:
        raise QuantError(f"{short(name)} has {len(shape)} axes; at most {MAX_RANK} are supported.")
    if any(n < 0 or n >= 2**48 for n in shape):
        raise QuantError(f"The header of {short(name)} claims an impossible shape; save the file again.")
    return math.prod(shape) * itemsize


def check_size(info: TensorInfo, limit: int) -> None:
    """Raise unless the tensor has elements and is within the limit, both as stored and as float32."""
    elements = math.prod(info.shape)
    if elements == 0:
        raise QuantError(
            f"{short(info.name)} has no elements, shape {shape_text(info.shape)}; give another tensor."
        )
    size = max(info.nbytes, 4 * elements)
    if size > limit:
        raise QuantError(
            f"{short(info.name)} claims shape {shape_text(info.shape)}, which takes {megabytes(size)}; "
            f"the limit is {megabytes(limit)}. Save a slice of it."
        )


def to_float32(name: str, x: npt.NDArray[Any]) -> Float32Array:
    """Return ``x`` as a new float32 array in C order.

    float32, float16, bool (0 and 1) and integers up to 16 bits are exact; float64 and longer
    integers are rounded to the nearest float32, which is exact for integers up to 2^24.

    Raises:
        QuantError: the dtype is not real, or a finite value is beyond float32's 3.4e38.
    """
    check_dtype(name, x.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        result = x.astype(np.float32, order="C", copy=True)
    if x.dtype.kind == "f" and x.dtype.itemsize == 8:
        beyond = np.isinf(result) & np.isfinite(x)
        if beyond.any():
            first = tuple(int(i) for i in np.unravel_index(int(np.argmax(beyond)), x.shape))
            raise QuantError(
                f"{short(name)} contains {x[first]:.3g} at index {first}, beyond float32, whose largest "
                "value is 3.4e38; scale the tensor down."
            )
    return result


def check_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Raise unless ``dtype`` is a boolean, an integer, or a float of up to 64 bits."""
    if dtype.hasobject:
        raise QuantError(
            f"{short(name)} contains Python objects, which can only be read by unpickling, and that runs any "
            "code in the file; save an array of numbers."
        )
    if dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.shape == ():
        return
    kinds = {
        "c": "complex numbers",
        "U": "strings",
        "S": "strings",
        "V": "records",
        "M": "dates",
        "m": "durations",
    }
    what = kinds.get(dtype.kind, f"{dtype} numbers")
    raise QuantError(f"{short(name)} contains {what}; save an array of real numbers, up to float64.")


def load_json(text: str, name: str) -> Any:
    """Return the value of ``text``; ``NaN`` and ``Infinity`` are read as Python writes them.

    Raises:
        QuantError: the text is not JSON or nested too deep, an object has a key twice, or a number is beyond
            float64.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise QuantError(
            f"{short(name)} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            "correct it there."
        ) from None
    except RecursionError:
        raise QuantError(f"{short(name)} has brackets nested too deep; give a plain list of lists.") from None
    except QuantError:
        raise
    except ValueError:  # Python's limit of 4300 digits
        raise QuantError(f"{short(name)} has an integer with too many digits; shorten it.") from None


def _finite(word: str) -> float:
    value = float(word)
    if math.isinf(value):  # 1e999; a literal Infinity is not passed here
        raise QuantError(
            f"The JSON contains {short(word)}, beyond float32, whose largest value is 3.4e38; scale it down."
        )
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise QuantError(f"The JSON has the duplicate key {short(twice, 80)}; rename one of them.")
    return result
