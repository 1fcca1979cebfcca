"""Read tensors from untrusted files: nothing is unpickled, and headers are checked before data are read.

========================  ==================================================================
file                      read as
========================  ==================================================================
.npy, .npz                NumPy arrays, in any byte order, C or Fortran order
.safetensors              F64, F32, F16, BF16, integers and BOOL
.csv, .tsv, .txt          as pasted text, see `quantcore.tensors.text`
.json                     nested lists, or an object whose values are
.png, .jpg, .webp         grey levels, see `quantcore.tensors.files.image_files`; needs Pillow
.pt, .pth, .bin, .pkl …   rejected: pickles run code when they are read
========================  ==================================================================
"""

import re
from collections.abc import Sequence

from quantcore.errors import QuantError
from quantcore.tensors.files.entries import (
    Entry,
    Float32Array,
    TensorInfo,
    check_many,
    check_size,
    to_float32,
)
from quantcore.tensors.files.image_files import open_image
from quantcore.tensors.files.numpy_files import CONVERT_TORCH, open_npy, open_npz
from quantcore.tensors.files.safetensors_files import open_safetensors
from quantcore.tensors.files.text_files import open_json, open_text
from quantcore.tensors.limits import MAX_BYTES
from quantcore.wording import megabytes, short

EXTENSIONS = (".npy", ".npz", ".csv", ".tsv", ".txt", ".json", ".safetensors")
IMAGES = (".png", ".jpg", ".jpeg", ".webp")
_PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle", ".joblib")
_ZIP, _ARRAY, _IMAGE = "a zip (.npz, .xlsx, .pt)", "a .npy array", "a PNG, JPEG or WebP image"
_MAGIC = {
    rb"\x93NUMPY": _ARRAY,
    rb"PK\x03\x04": _ZIP,
    rb"\x89HDF": "an HDF5 file",
    rb"GGUF": "a GGUF model",
    rb"\x1f\x8b": "a gzip file",
    rb"\x89PNG|\xff\xd8\xff|RIFF....WEBP": _IMAGE,
    rb"GIF8": "a GIF image",
    rb"II\*\0|MM\0\*": "a TIFF image",
    rb"....ftyp(heic|heix|hevc|mif1|msf1|avif|avis)": "a HEIC or AVIF image",
    rb"%PDF": "a PDF",
}
_EXPECTED = {".npy": _ARRAY, ".npz": _ZIP, **dict.fromkeys(IMAGES, _IMAGE)}


def list_tensors(data: bytes | memoryview, name: str, limit: int = MAX_BYTES) -> list[TensorInfo]:
    """Return what the file contains; for .npy, .npz, .safetensors and images, only headers are read.

    Args:
        data: the content of the file.
        name: its name; the extension decides the format.
        limit: the maximum size in bytes of the file, and of all its tensors once unpacked.

    >>> import quantcore as qc
    >>> data = qc.export.to_npz(qc.apply([0.5, -1.0, 2.0], qc.Scheme(qc.INT4)))
    >>> [(tensor.name, tensor.shape) for tensor in list_tensors(data, "weights.npz")][:3]
    [('x', (3,)), ('codes', (3,)), ('scale', (1,))]

    Raises:
        QuantError: the file can't be read; the message says why and what to do.
    """
    return [entry.info for entry in _open(data, name, limit).values()]


def is_image(name: str) -> bool:
    """Return whether a file of this name is read as an image.

    >>> is_image("Portrait.JPG"), is_image("weights.npy")
    (True, False)
    """
    return name.lower().endswith(IMAGES)


def first_weight(tensors: Sequence[TensorInfo]) -> TensorInfo:
    """Return the tensor to show first: the first with a floating dtype and at least two axes.

    In many files, biases, indices and counters come before the weights. If there is no such tensor, the first
    with a floating dtype is returned; failing that, the first. Tensors without elements come last.

    >>> import quantcore as qc
    >>> data = qc.export.to_npz(qc.apply([[0.5, -1.0]], qc.Scheme(qc.INT4)))
    >>> first_weight(qc.tensors.list_tensors(data, "weights.npz")).name
    'x'
    """

    def order(info: TensorInfo) -> tuple[bool, bool, bool]:
        return 0 in info.shape, not info.is_floating, info.is_floating and len(info.shape) < 2

    return min(tensors, key=order)


def read_tensor(
    data: bytes | memoryview, name: str, tensor: str | None = None, limit: int = MAX_BYTES
) -> Float32Array:
    """Return one tensor of the file as a new float32 array in C order.

    float32, float16, bfloat16, bool and integers up to 16 bits are exact; float64 and
    longer integers are rounded to the nearest float32. Images become integers from 0 to 255.

    Args:
        data: the content of the file.
        name: its name; the extension decides the format.
        tensor: which one, by its name in `list_tensors`; required if the file contains several.
        limit: the maximum size in bytes of the file, and of the tensor as float32.

    >>> import quantcore as qc
    >>> data = qc.export.to_npz(qc.apply([0.5, -1.0, 2.0], qc.Scheme(qc.INT4)))
    >>> read_tensor(data, "weights.npz", "codes")
    array([ 2., -3.,  7.], dtype=float32)

    Raises:
        QuantError: the file or the tensor can't be read, or does not contain real numbers within float32.
    """
    entries = _open(data, name, limit)
    if tensor is None and len(entries) > 1:
        raise QuantError(f"{short(name)} contains {len(entries)} tensors: {_names(entries)}; choose one.")
    chosen = next(iter(entries)) if tensor is None else tensor
    if chosen not in entries:
        raise QuantError(f"{short(name)} has no tensor {short(chosen)}; it contains {_names(entries)}.")
    entry = entries[chosen]
    check_size(entry.info, limit)
    return to_float32(chosen, entry.load())


def _open(data: bytes | memoryview, name: str, limit: int) -> dict[str, Entry]:
    view = memoryview(data).cast("B")
    extension = _check_kind(view, name, limit)
    if extension == ".npy":
        entries = open_npy(view, name)
    elif extension == ".npz":
        entries = open_npz(view, name, limit)
    elif extension == ".safetensors":
        entries = open_safetensors(view, name)
    elif extension == ".json":
        entries = open_json(view, name)
    elif extension in IMAGES:
        entries = open_image(view, name, limit)
    else:
        entries = open_text(view, name)
    if not entries:
        raise QuantError(f"{short(name)} contains no tensor; save at least one.")
    check_many(len(entries), name)
    return entries


def _check_kind(data: memoryview, name: str, limit: int) -> str:
    """Return the extension, if it is supported and the content matches it."""
    dot = name.rfind(".")
    extension = name[dot:].lower() if dot >= 0 else ""
    if extension in _PICKLES:
        raise QuantError(f"{short(name)} is a pickle, which runs code when it is read. {CONVERT_TORCH}")
    if extension not in (*EXTENSIONS, *IMAGES):
        raise QuantError(
            f"{short(name)} is not a supported file type; give one of {', '.join((*EXTENSIONS, *IMAGES))}."
        )
    if len(data) > limit:
        raise QuantError(
            f"{short(name)} is {megabytes(len(data))}; the limit is {megabytes(limit)}. "
            "Save a slice of the tensor."
        )
    if len(data) == 0:
        raise QuantError(f"{short(name)} is empty; save the tensor again.")
    start = bytes(data[:12])
    if start[0] == 0x80 and len(start) > 1 and 2 <= start[1] <= 5 and extension != ".safetensors":
        raise QuantError(
            f"{short(name)} is a pickle under another name; pickles run code when they are read. "
            f"{CONVERT_TORCH}"
        )
    found = next((what for magic, what in _MAGIC.items() if re.match(magic, start, re.DOTALL)), "")
    # a .safetensors file starts with a length, which can look like any of these
    if extension != ".safetensors" and found != _EXPECTED.get(extension, ""):
        found = found or "something else"
        what_to_do = (
            "save it as PNG, JPEG or WebP"
            if extension in IMAGES
            else "correct the extension or save it again"
        )
        raise QuantError(f"{short(name)} ends in {extension}, but contains {found}; {what_to_do}.")
    return extension


def _names(entries: dict[str, Entry]) -> str:
    names = [short(name) for name in entries]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
