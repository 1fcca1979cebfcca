"""Reads the header of a GGUF file from front to back, and no byte beyond it.

The header does not say how long it is, but its counts give a lower bound for the rest of it: that much is read ahead, so
that a header of several megabytes takes a few dozen reads.
"""

import struct
from typing import Any

from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.problem import named
from quantcore.errors import QuantError

MAX_HEADER = 2**26  # bytes; a vocabulary of 250,000 words with its merges takes 12 MB
KEPT = 1024  # elements of an array; of a longer one, only the first are kept
_LENGTH = struct.Struct("<Q")


class Cursor:
    """Reads forward, and ahead only as far as the header must reach, so never beyond its end."""

    def __init__(self, source: ByteSource) -> None:
        self.source, self.position = source, 0
        self.least = 0  # bytes that the header must still have after the next take
        self._data, self._start = memoryview(b""), 0

    def view(self, size: int) -> memoryview:
        """Return the bytes from here on, at least ``size`` of them, without moving on."""
        have = self._start + len(self._data) - self.position
        if have < size:
            self._read_to(self.position + size + self.least)
        return self._data[self.position - self._start :]

    def take(self, size: int) -> memoryview:
        """Return the next ``size`` bytes."""
        found = self.view(size)[:size]
        self.position += size
        return found

    def _read_to(self, end: int) -> None:
        reached = self._start + len(self._data)
        if end > self.source.size:
            raise QuantError(
                f"{_quoted(self.source.name)} is truncated: its header goes on for at least {end - reached:,} bytes after "
                f"byte {reached:,}, and the file size is {self.source.size:,} bytes; download it again."
            )
        if end > MAX_HEADER:
            raise QuantError(
                f"The header of {_quoted(self.source.name)} is longer than the limit of {MAX_HEADER:,} bytes; its counts "
                "or lengths are damaged, download it again."
            )
        rest = self._data[self.position - self._start :]
        self._data = memoryview(bytes(rest) + bytes(self.source.read(reached, end - reached)))
        self._start = self.position

    def number(self, code: str) -> Any:
        """Return the next number, by its `struct` code."""
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def text(self, what: str, strict: bool = True) -> str:
        """Return the next text; ``what``: what it is, for messages."""
        raw = bytes(self.take(self.number("<Q")))
        try:
            return raw.decode("utf-8", "strict" if strict else "replace")
        except UnicodeDecodeError:
            raise QuantError(
                f"{what} of {_quoted(self.source.name)} is not UTF-8 text; download it again."
            ) from None

    def texts(self, count: int) -> list[str]:
        """Skip ``count`` texts, and return the first of them."""
        kept: list[str] = []
        after, left = self.least, count
        while left:
            self.least = after + 8 * (left - 1)
            data, done = self.view(8), 0
            while left and done + 8 <= len(data):
                size = _LENGTH.unpack_from(data, done)[0]
                if done + 8 + size > len(data):
                    break
                if len(kept) < KEPT:
                    kept.append(bytes(data[done + 8 : done + 8 + size]).decode("utf-8", "replace"))
                done, left = done + 8 + size, left - 1
            self.position += done
            if not done:  # the next text is longer than what is read so far
                self.view(8 + size)
        self.least = after
        return kept


def _quoted(name: str) -> str:
    return named(name)
