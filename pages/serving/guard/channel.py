"""Messages between the server and a guest: a JSON value and any number of byte strings.

The sender is not trusted: sizes are checked before anything is allocated, and nothing is unpickled.
"""

import json
import math
import socket
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

MAX_JSON = 1 << 26  # 100,000 tensors take 10 MB
Bytes = bytes | bytearray | memoryview
NUMBER = struct.Struct("<i")  # what the fork server is told, and tells
_HEAD, _SIZE = struct.Struct("<II"), struct.Struct("<Q")
_BUFFER = 1 << 16
_DTYPES = frozenset(
    ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float32", "float64")
)


class BrokenChannelError(Exception):
    """The other side has ended in the middle of a message, or sent what is not one."""


@dataclass(frozen=True)
class Packet:
    """``kind``: what it is; ``value``: JSON; ``blobs``: bytes; ``number``: of a call and its reply."""

    kind: str
    value: Any = None
    blobs: Sequence[Bytes] = ()
    number: int = 0


@dataclass
class Channel:
    """Two streams of bytes; `send` may be called by several threads, `receive` by one.

    ``most``: bytes of blobs that one message may carry here.
    """

    reader: BinaryIO
    writer: BinaryIO
    most: int = 1 << 40
    _sending: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Packet) -> None:
        """Send a message.

        Raises:
            OSError: the other side has ended.
        """
        head = json.dumps([message.kind, message.number, message.value]).encode()
        blobs = [memoryview(blob).cast("B") for blob in message.blobs]
        with self._sending:
            self.writer.write(_HEAD.pack(len(head), len(blobs)) + head)
            for blob in blobs:
                self.writer.write(_SIZE.pack(len(blob)))
                self.writer.write(blob)
            self.writer.flush()

    def receive(self) -> Packet | None:
        """Return the next message; None if the other side has ended.

        Raises:
            BrokenChannelError: it ended within a message, or the message is not one.
        """
        start = self.reader.read(1)
        if not start:
            return None
        length, count = _HEAD.unpack(start + bytes(self._exactly(_HEAD.size - 1)))
        if length > MAX_JSON or count > 1 << 20:
            raise BrokenChannelError("a message is too long")
        try:
            kind, number, value = json.loads(bytes(self._exactly(length)))
        except (ValueError, TypeError, RecursionError):
            raise BrokenChannelError("a message is not JSON") from None
        blobs, left = [], self.most
        for _ in range(count):
            (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
            left -= size
            if left < 0:
                raise BrokenChannelError("a message carries too many bytes")
            blobs.append(self._exactly(size))
        return Packet(str(kind), value, blobs, int(number))

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        done, view = 0, memoryview(data)
        while done < size:
            count = self.reader.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise BrokenChannelError("a message is truncated")
            done += count
        return data


def streams(connection: socket.socket) -> tuple[BinaryIO, BinaryIO]:
    """Return a connection as a stream to read and one to write."""
    reader, writer = connection.makefile("rb", _BUFFER), connection.makefile("wb", _BUFFER)
    return cast(BinaryIO, reader), cast(BinaryIO, writer)  # which is what they do


def described(array: npt.NDArray[Any]) -> list[Any]:
    """Return dtype and shape of an array, whose bytes travel beside them."""
    return [array.dtype.name, list(array.shape)]


def restored(description: Any, blob: Bytes) -> npt.NDArray[Any]:
    """Return the array of a description and its bytes, without a copy.

    Raises:
        BrokenChannelError: they do not fit each other.
    """
    try:
        name, shape = description
        whole = [int(n) for n in shape]
        if type(shape) is list and name in _DTYPES and min(whole, default=0) >= 0:
            dtype = np.dtype(name)
            if math.prod(whole) * dtype.itemsize == memoryview(blob).nbytes:
                return np.frombuffer(blob, dtype).reshape(whole)
    except (TypeError, ValueError):
        pass
    raise BrokenChannelError("an array does not fit its description")
