"""A small tensor as text that a link can carry.

The text is ``1.`` (the version) and base64url of: CRC-32 of the rest, then zlib of rank (1 byte), sizes
(4 bytes each), and the elements. These are float32, little-endian, stored byte plane by byte plane (all first
bytes, then all second bytes, …), since similar exponents compress better together.
"""

import base64
import math
import re
import struct
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from quantcore.errors import QuantError
from quantcore.tensors.limits import MAX_LINK_CHARS, MAX_LINK_ELEMENTS, MAX_RANK
from quantcore.wording import shape_text, short

_VERSION = "1"
_LARGEST = 1 + 4 * MAX_RANK + 4 * MAX_LINK_ELEMENTS  # bytes before compression
_LARGEST_TEXT = 1 << 18  # bytes of a text before compression
_DAMAGED = "The {what} in the link is damaged ({why}); copy the complete link again, or paste the {what}."


def encode_text(text: str) -> str:
    """Return a text, such as pasted code, as `encode` does a tensor: compressed, with its checksum.

    Raises:
        QuantError: the text is empty, or too long for a link.
    """
    plain = text.encode("utf-8", "surrogatepass")
    found = _packed(plain) if 0 < len(plain) <= _LARGEST_TEXT else ""
    if not 0 < len(found) <= MAX_LINK_CHARS:
        raise QuantError(
            f"A text of {len(text):,} characters does not fit in a link of {MAX_LINK_CHARS:,}; send it as "
            "a file."
        )
    return found


def decode_text(text: str) -> str:
    """Return the text that `encode_text` wrote.

    Raises:
        QuantError: the text is damaged, of another version, or longer than `encode_text` writes.
    """
    plain = _plain(text, "text", _LARGEST_TEXT)
    try:
        return plain.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise _damaged("text", "it is not UTF-8") from None


def encode(x: npt.NDArray[np.float32]) -> str:
    """Return ``x`` as at most `MAX_LINK_CHARS` characters of A-Z, a-z, 0-9, ``-``, ``_`` and ``.``.

    Every bit is preserved, including those of NaN.

    Raises:
        QuantError: ``x`` is not float32, is empty, or is too large for a link.
    """
    if x.dtype != np.float32:
        raise QuantError(
            f"x has dtype {x.dtype}; a link carries float32, so convert it: x.astype('float32')."
        )
    if x.size == 0:
        raise QuantError(f"x has no elements, shape {shape_text(x.shape)}; give at least one number.")
    text = ""
    if x.size <= MAX_LINK_ELEMENTS and x.ndim <= MAX_RANK:
        header = struct.pack(f"<B{x.ndim}I", x.ndim, *x.shape)
        planes = np.ascontiguousarray(x.reshape(-1), dtype="<f4").view(np.uint8).reshape(-1, 4).T
        text = _packed(header + planes.tobytes())
    if not 0 < len(text) <= MAX_LINK_CHARS:
        raise QuantError(
            f"A tensor of shape {shape_text(x.shape)} is too large for a link of {MAX_LINK_CHARS:,} "
            "characters; save it as a file."
        )
    return text


def fits_link(x: npt.NDArray[Any]) -> bool:
    """Return whether `encode` can write ``x``; large tensors are not compressed to find out."""
    try:
        return bool(encode(x))
    except QuantError:
        return False


def decode(text: str) -> npt.NDArray[np.float32]:
    """Return the tensor that `encode` wrote.

    Raises:
        QuantError: the text is damaged, of another version, or longer than `encode` writes.
    """
    shape, elements = _split(_plain(text, "tensor", _LARGEST))
    planes = np.frombuffer(elements, dtype=np.uint8).reshape(4, math.prod(shape))
    return np.ascontiguousarray(planes.T).view("<f4").astype(np.float32).reshape(shape)


def _packed(plain: bytes) -> str:
    packed = zlib.compress(plain, level=9)
    checked = struct.pack("<I", zlib.crc32(packed)) + packed
    return f"{_VERSION}.{base64.urlsafe_b64encode(checked).decode().rstrip('=')}"


def _plain(text: str, what: str, most: int) -> bytes:
    """Return what was packed, at most so many bytes; ``what``: it is called."""
    if len(text) > MAX_LINK_CHARS:
        raise QuantError(
            f"The {what} in the link has {len(text):,} characters; at most {MAX_LINK_CHARS:,} are read."
        )
    version, point, body = text.partition(".")
    if not point or version != _VERSION:
        raise QuantError(
            f"The {what} in the link begins with {short(version)}, not with version {_VERSION}; "
            "copy the complete link again, or open it in the version that wrote it."
        )
    return _inflate(_from_base64(body, what), what, most)


def _damaged(what: str, why: str) -> QuantError:
    return QuantError(_DAMAGED.format(what=what, why=why))


def _from_base64(body: str, what: str) -> bytes:
    """Return the compressed bytes, after checking their checksum."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+", body) or len(body) % 4 == 1:
        raise _damaged(what, "characters are missing or wrong")
    raw = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    # the last character can have bits beyond the last byte: they must be 0
    if base64.urlsafe_b64encode(raw).decode().rstrip("=") != body or len(raw) < 4:
        raise _damaged(what, "it is truncated")
    if struct.unpack("<I", raw[:4])[0] != zlib.crc32(raw[4:]):
        raise _damaged(what, "its checksum does not match")
    return raw[4:]


def _inflate(packed: bytes, what: str, most: int) -> bytes:
    """Decompress, but never more than what would have been compressed."""
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(packed, most)
    except zlib.error:
        raise _damaged(what, "it does not decompress") from None
    if not inflater.eof or inflater.unused_data:
        raise _damaged(what, "its length does not match")
    return plain


def _split(plain: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return shape and elements, after checking that they match."""
    rank = plain[0] if plain else MAX_RANK + 1
    start = 1 + 4 * rank
    if rank > MAX_RANK or len(plain) < start:
        raise _damaged("tensor", "its shape can't be read")
    shape = struct.unpack(f"<{rank}I", plain[1:start])
    if math.prod(shape) == 0 or 4 * math.prod(shape) != len(plain) - start:
        raise _damaged("tensor", f"its shape {shape_text(shape)} does not match its data")
    return shape, plain[start:]
