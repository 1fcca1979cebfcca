"""``.csv``, ``.tsv`` and ``.txt`` are read like pasted text, ``.json`` as nested lists or an object."""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.tensors.files.entries import Entry, TensorInfo, check_many, load_json
from quantcore.tensors.limits import MAX_RANK, MAX_TEXT_FILE_BYTES
from quantcore.tensors.text.parse import parse, parse_all
from quantcore.wording import megabytes, short

MAX_LISTS = 2_000_000  # of a .json file; each takes ten times its text once parsed


def open_text(data: memoryview, name: str) -> dict[str, Entry]:
    """Return the tensor of a text file, under the file's name, or the tensors that it may mean.

    Raises:
        QuantError: as for `parse_all`.
    """
    found = parse_all(_decode(data, name), MAX_TEXT_FILE_BYTES)
    if len(found) == 1:
        return {name: _entry(name, found[0].values, found[0].note)}
    return {
        tensor.title: _entry(tensor.title, tensor.values, tensor.note) for tensor in found if not tensor.error
    }


def open_json(data: memoryview, name: str) -> dict[str, Entry]:
    """Return the tensor of nested lists, or one per key of an object.

    Raises:
        QuantError: the file is not JSON, or its lists are not rectangular or not of numbers.
    """
    text = _decode(data, name)
    if text.count("[") > MAX_LISTS:
        raise QuantError(f"{short(name)} has more than {MAX_LISTS:,} lists; save it as .npy.")
    value = load_json(text, name)
    if isinstance(value, dict):
        check_many(len(value), name)
        return _entries({key: _from_lists(key, lists) for key, lists in value.items()})
    try:
        return _entries({name: _from_lists(name, value)})
    except QuantError:
        parse(text, MAX_TEXT_FILE_BYTES)  # gives the line and column
        raise


def _from_lists(name: str, value: Any) -> npt.NDArray[Any]:
    """Return nested lists as an array, if they contain only numbers."""
    try:
        x = np.array(value)
    except (ValueError, OverflowError, RecursionError):
        x = np.array(None)
    # strings, null, ragged lists and integers beyond 64 bits are other kinds; [1, true] would be [1, 1]
    if x.dtype.kind not in "iuf" or x.ndim > MAX_RANK or _holds_bool(value):
        raise QuantError(
            f"{short(name)} is not a rectangular array of numbers; write [[1, 2], [3, 4]], "
            'or {"name": [[1, 2], [3, 4]]}.'
        )
    return x


def _holds_bool(value: Any) -> bool:
    if isinstance(value, list):
        return (
            any(map(_holds_bool, value))
            if value and isinstance(value[0], list)
            else bool in set(map(type, value))
        )
    return isinstance(value, bool)


def _entries(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Entry]:
    return {name: _entry(name, x) for name, x in arrays.items()}


def _entry(name: str, x: npt.NDArray[Any], how: str = "") -> Entry:
    return Entry(TensorInfo(name, x.shape, str(x.dtype), x.nbytes, how), partial(np.asarray, x))


def _decode(data: memoryview, name: str) -> str:
    if len(data) > MAX_TEXT_FILE_BYTES:
        raise QuantError(
            f"{short(name)} is {megabytes(len(data))} of text; the limit is "
            f"{megabytes(MAX_TEXT_FILE_BYTES)}. Save the tensor with np.save and upload the .npy file."
        )
    if bytes(data[:2]) in (b"\xff\xfe", b"\xfe\xff"):
        raise QuantError(f"{short(name)} is UTF-16 text; save it as UTF-8, or as CSV UTF-8.")
    try:
        return str(data, "utf-8-sig")
    except UnicodeDecodeError as error:
        raise QuantError(
            f"{short(name)} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}; "
            "save it as UTF-8."
        ) from None
