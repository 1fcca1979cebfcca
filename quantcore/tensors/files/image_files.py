"""Images (``.png``, ``.jpg``, ``.jpeg``, ``.webp``) as tensors of grey levels, from 0 (black) to 255 (white).

The level of a colored pixel is its luma, 0.299 R + 0.587 G + 0.114 B of the values as they are stored (ITU-R
BT.601-7, section 2.5.1), rounded to the nearest integer, ties up. Levels are not divided by 255: as integers
they are exact in float32, compress into a link, and uint8 with a scale of 1 holds them without error. Color
profiles are not applied.

===========================  =====================================================================
in the file                  read as
===========================  =====================================================================
transparent pixels           blended with white
16 bits per channel          the upper 8 bits
an EXIF orientation          turned upright
more than 256 pixels a side  means of boxes of k × k pixels, rounded, with the smallest k that fits
several frames, CMYK         rejected
===========================  =====================================================================

An image is opened only as one of these three formats, whatever its extension, and its size is known and
checked before any pixel is unpacked.
"""

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.tensors.files.entries import Entry, TensorInfo
from quantcore.tensors.limits import MAX_IMAGE_SIDE
from quantcore.wording import short

_FORMATS = ("PNG", "JPEG", "WEBP")
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")  # of Pillow: how the pixels of a file are stored
# Peak bytes per pixel while decoding, the grey levels included; libwebp keeps two canvases of its own
_BYTES, _BYTES_WEBP = 5, 17
_BAND = 1 << 16  # pixels that become grey levels at once
_ORIENTATION = 0x0112  # the EXIF tag; its values 2 to 8 say how to turn the rows and columns upright
_UPRIGHT = {
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.T,
    6: lambda x: x.T[:, ::-1],
    7: lambda x: x[::-1, ::-1].T,
    8: lambda x: x.T[::-1],
}

# PNG's chunks, which Pillow goes through one by one: 8 kB of pixels each in a usual file. JPEG's segments
# before the pixels: Pillow copies those of EXIF anew with each, 64 kB
MAX_CHUNKS, MAX_SEGMENTS = 2**16, 256
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of PNG's color types
# First column and row, and steps between them, of each pass of an interlaced PNG (PNG specification, 8.2)
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))

Levels = npt.NDArray[np.uint8]


def open_image(data: memoryview, name: str, limit: int) -> dict[str, Entry]:
    """Return the one tensor of an image, under the name of the file; its pixels are not unpacked yet.

    Raises:
        QuantError: it can't be opened, is animated or in CMYK, or unpacks to more than ``limit`` bytes.
    """
    image = _opened(data, name)
    each = _BYTES_WEBP if image.format == "WEBP" else _BYTES
    pixels, most = image.width * image.height, limit // each
    if pixels > most:
        raise QuantError(
            f"{short(name)} has {image.width:,} × {image.height:,} pixels; at most {most:,} can be read. "
            "Scale the image down."
        )
    shape = (image.height, image.width) if _orientation(image) < 5 else (image.width, image.height)
    info = TensorInfo(
        name, tuple(-(-n // _box(shape)) for n in shape), "uint8", each * pixels, _described(image, shape)
    )
    return {name: Entry(info, partial(_load, data, name))}


def _opened(data: memoryview, name: str) -> Any:
    """Open the image, of which only the header is read."""
    try:
        from PIL import Image
    except ImportError:
        raise QuantError("Reading an image needs Pillow; install it with pip install pillow.") from None
    if _has_many_parts(data):
        raise QuantError(
            f"{short(name)} consists of too many parts to be read; save it again without metadata."
        )
    with _read_by_pillow(name):
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
    if min(image.size) < 1:
        raise _damaged(name)
    if image.mode == "CMYK":
        raise QuantError(f"{short(name)} is in CMYK, the inks of a printer; save it in RGB or in grey.")
    if image.mode not in _MODES:
        raise QuantError(f"{short(name)} has pixels of the kind {image.mode!r}; save it in RGB or in grey.")
    # the second picture of a MPO, which some phones write, is another view or a map of depths, not a frame
    if image.format != "MPO" and getattr(image, "is_animated", False):
        raise QuantError(f"{short(name)} is animated; save one frame of it.")
    return image


def _has_many_parts(data: memoryview) -> bool:
    """Tell whether a PNG has more chunks, or a JPEG more segments, than are read."""
    is_png, is_jpeg = bytes(data[:4]) == b"\x89PNG", bytes(data[:2]) == b"\xff\xd8"
    at, left = (8, MAX_CHUNKS) if is_png else (2, MAX_SEGMENTS)
    while left >= 0 and at + 8 <= len(data):
        if not is_png and not (is_jpeg and data[at] == 0xFF and data[at + 1] != 0xDA):
            break  # the pixels begin, or it is of another kind
        size = int.from_bytes(data[at : at + 4]) + 12 if is_png else int.from_bytes(data[at + 2 : at + 4]) + 2
        at, left = at + size, left - 1
    return left < 0


@contextmanager
def _read_by_pillow(name: str) -> Iterator[None]:
    """Whatever Pillow raises on a file that is not as it should be becomes one sentence."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Image.DecompressionBombError:
        raise QuantError(f"{short(name)} has more pixels than can be read; scale the image down.") from None
    except Exception:
        raise _damaged(name) from None


def _damaged(name: str) -> QuantError:
    return QuantError(
        f"{short(name)} can't be read as a PNG, JPEG or WebP image: it is damaged or truncated; save it "
        "again."
    )


def _orientation(image: Any) -> int:
    """Return the EXIF orientation, 1 (upright) to 8; 1 if it is missing or unreadable, as in browsers."""
    from PIL import Image

    try:
        with _read_by_pillow(""):  # PNG's own method would unpack the pixels first
            found = int(Image.Image.getexif(image).get(_ORIENTATION, 1))
    except QuantError:
        return 1
    return found if found in _UPRIGHT else 1


def _box(shape: tuple[int, ...]) -> int:
    """Return the side, in pixels, of the square that becomes one element."""
    return -(-max(shape) // MAX_IMAGE_SIDE)


def _described(image: Any, shape: tuple[int, ...]) -> str:
    """How the tensor is made from the pixels, in sentences."""
    grey = image.mode in ("1", "L", "LA", "I;16")
    sentences = [
        "Grey levels from 0 (black) to 255 (white)"
        + ("." if grey else ": 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), rounded.")
    ]
    side = _box(shape)
    if side > 1:
        sentences.append(
            f"Each element is the mean of {side} × {side} of the {shape[0]:,} × {shape[1]:,} pixels."
        )
    if image.has_transparency_data:
        sentences.append("Transparent pixels are blended with white.")
    if image.mode == "I;16" or "16B" in str(image.tile):
        sentences.append("Of 16 bits, the upper 8 are used.")
    return " ".join(sentences)


def _load(data: memoryview, name: str) -> Levels:
    image = _opened(data, name)
    with _read_by_pillow(name):
        image.load()
        if image.format == "PNG" and not _has_all_rows(data, image.size):
            raise _damaged(name)
    levels = np.empty((image.height, image.width), np.uint8)
    rows = max(1, _BAND // image.width)
    for top in range(0, image.height, rows):
        bottom = min(top + rows, image.height)
        levels[top:bottom] = _levels(image.crop((0, top, image.width, bottom)))
    upright = _UPRIGHT.get(_orientation(image))
    return _means(upright(levels) if upright else levels)


def _has_all_rows(data: memoryview, size: tuple[int, int]) -> bool:
    """Whether a PNG of this size has as many bytes as its pixels take; Pillow leaves missing rows black."""
    width, height, bits, color, _, _, interlaced = struct.unpack(">2I5B", data[16:29])
    missing = 0
    for left, top, across, down in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        if columns > 0 and rows > 0:
            missing += rows * (1 + -(-columns * bits * _CHANNELS[color] // 8))
    inflater, at = zlib.decompressobj(), 8
    while missing > 0 and at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        part = bytes(data[at + 8 : at + 8 + length]) if kind == b"IDAT" else b""
        while part and missing > 0:
            missing -= len(inflater.decompress(part, 1 << 20))
            part = inflater.unconsumed_tail
        at += 12 + length
    return missing <= 0 and (width, height) == size


def _levels(image: Any) -> Levels:
    """Return the grey levels of an image; transparent pixels are blended with white."""
    clear = image.info.get("transparency")
    if image.mode == "I;16":
        deep: npt.NDArray[np.uint16] = np.asarray(image)
        levels: Levels = (deep >> 8).astype(np.uint8)
        return levels if clear is None else np.where(deep == clear, np.uint8(255), levels)
    if image.mode in ("1", "L") and clear is None:
        return np.asarray(image.convert("L"))
    pixels = np.asarray(image.convert("RGBA")).astype(np.int32)
    red, green, blue, alpha = (pixels[..., channel] for channel in range(4))
    luma = 299 * red + 587 * green + 114 * blue  # in thousandths of a level
    blended = luma * alpha + 255_000 * (255 - alpha)
    return ((2 * blended + 255_000) // 510_000).astype(np.uint8)


def _means(levels: Levels) -> Levels:
    """Return the means of boxes of `_box` pixels a side, rounded to the nearest integer, ties up."""
    side = _box(levels.shape)
    if side == 1:
        return levels
    starts = [np.arange(0, n, side) for n in levels.shape]
    # row by row: the sums of all columns at once would take four times the memory of the levels
    rows = np.stack([levels[top : top + side].sum(0, np.uint32) for top in starts[0]])
    sums = np.add.reduceat(rows, starts[1], 1)
    area = np.multiply.outer(*(np.diff([*start, n]) for start, n in zip(starts, levels.shape, strict=True)))
    means: Levels = ((2 * sums + area) // (2 * area)).astype(np.uint8)
    return means
