"""Protocol Buffers' wire format: the fields of a message, and where in the file they lie.

Lengths are followed, so that a tensor's bytes are skipped, not read. Source: protobuf.dev, "Encoding".
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from quantcore.checkpoints.files.sources import ByteSource
from quantcore.checkpoints.statement import named
from quantcore.errors import QuantError

MAX_FIELDS = 1_000_000  # of all messages; 50,000 nodes of some 20 fields
PART = 1 << 20  # bytes of numbers that are decoded at once
# Each read has a price, so that what lies near is read together: from so few bytes to so many at once, while
# the next field is at most so far away and no more than so much has been read
_FEWEST, _MOST, _NEAR, _TOGETHER = 1 << 9, 1 << 18, 5000, 1 << 24
_KEPT = 2 * _TOGETHER  # bytes: messages are read after the message that holds them
_BEFORE = 64  # bytes before what is asked for: the ends of the messages before, which are read afterwards
Span = tuple[int, int]


class Wire:
    """Reads numbers and fields of messages in a file."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._start, self._data = 0, b""
        self._steps, self._next, self._total = 0, _FEWEST, 0
        self._starts: list[int] = []  # of the parts that have been read, which don't overlap
        self._parts: list[bytes] = []

    def fields(self, span: Span) -> Iterator[tuple[int, int | Span]]:
        """Yield (number, value) of each field: an integer, or the (start, stop) of its bytes.

        Raises:
            QuantError: a length leads beyond the message, or the bytes are not a message.
        """
        at, stop = span
        while at < stop:
            self._step()
            key, at = self._varint(at, stop)
            kind, number = key & 7, key >> 3
            if kind == 0:
                value, at = self._varint(at, stop)
                yield number, value
                continue
            if kind == 2:
                length, at = self._varint(at, stop)
            else:
                length = {1: 8, 5: 4}.get(kind, -1)
            if length < 0 or at + length > stop or number == 0:
                raise self.damaged(at)
            yield number, (at, at + length)
            at += length

    def text(self, span: Span, limit: int = 4096) -> str:
        """Return the bytes of a field as text.

        Raises:
            QuantError: they are not text, or more than ``limit``.
        """
        if span[1] - span[0] > limit:
            raise self.damaged(span[0])
        try:
            return self.bytes(span).decode("utf-8")
        except UnicodeDecodeError:
            raise self.damaged(span[0]) from None

    def bytes(self, span: Span) -> bytes:
        """Return the few bytes of a field."""
        if span[0] == span[1]:
            return b""
        self._find(span[0])
        begin, end = span[0] - self._start, span[1] - self._start
        if end <= len(self._data):
            return self._data[begin:end]
        return bytes(self.source.read(span[0], span[1] - span[0]))

    def _find(self, at: int) -> None:
        """Make the part that holds a byte the present one; read it, if none has it."""
        if self._start <= at < self._start + len(self._data):
            return
        place = bisect_right(self._starts, at)
        end = self._starts[place - 1] + len(self._parts[place - 1]) if place else 0
        if at >= end:
            is_near = at < end + _NEAR and self._total < _TOGETHER
            self._next = min(2 * self._next, _MOST) if is_near else _FEWEST
            begin = max(end, at - _BEFORE)
            stop = self._starts[place] if place < len(self._starts) else self.source.size
            data = bytes(self.source.read(begin, min(at - begin + self._next, stop - begin)))
            self._total += len(data)
            if self._total % _KEPT < len(data):
                self._starts, self._parts, place = [], [], 0
            self._starts.insert(place, begin)
            self._parts.insert(place, data)
            place += 1
        self._start, self._data = self._starts[place - 1], self._parts[place - 1]

    def varints(self, span: Span) -> Iterator[int]:
        """Yield the integers of a packed field."""
        at, stop = span
        while at < stop:
            self._step()
            value, at = self._varint(at, stop)
            yield value

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MAX_FIELDS:
            raise QuantError(
                f"{named(self.source.name)} has more than {MAX_FIELDS:,} fields; give a smaller model."
            )

    def _varint(self, at: int, stop: int) -> tuple[int, int]:
        place = at - self._start
        if 0 <= place < len(self._data) and at < stop and self._data[place] < 128:  # most are one byte
            return self._data[place], at + 1
        value = 0
        for shift in range(0, 70, 7):
            if at >= stop:
                break
            self._find(at)
            byte = self._data[at - self._start]
            value, at = value | (byte & 127) << shift, at + 1
            if byte < 128:
                return value & (2**64 - 1), at
        raise self.damaged(at)

    def damaged(self, at: int) -> QuantError:
        """Return the error for a file that is not a model."""
        return QuantError(
            f"{named(self.source.name)} is damaged, or not an .onnx file: byte {at:,} can't be read."
        )


def packed_integers(source: ByteSource, span: Span) -> Iterator[npt.NDArray[np.uint64]]:
    """Yield the integers of a packed field, some at a time.

    Raises:
        QuantError: the last is cut off, or one takes more than ten bytes.
    """
    (at, stop), rest = span, np.empty(0, np.uint8)
    while at < stop:
        size = min(PART, stop - at)
        data = np.concatenate([rest, np.frombuffer(source.read(at, size), np.uint8)])
        at += size
        after = np.flatnonzero(data < 128) + 1
        starts = np.concatenate([[0], after])
        starts, rest = starts[:-1], data[starts[-1] :]
        lengths = after - starts
        if len(rest) > 10 or lengths.max(initial=0) > 10 or (at == stop and len(rest)):
            raise QuantError(
                f"{named(source.name)} is damaged: the integers before byte {at:,} can't be read."
            )
        found = np.zeros(len(starts), np.uint64)
        for byte in range(lengths.max(initial=0)):
            longer = lengths > byte
            found[longer] |= (data[starts[longer] + byte] & 127).astype(np.uint64) << np.uint64(7 * byte)
        yield found


class Message:
    """A message, or the whole file as one: its fields by number."""

    def __init__(self, wire: Wire, span: Span | None = None) -> None:
        self.wire = wire
        self.values: dict[int, list[int | Span]] = defaultdict(list)
        for number, value in wire.fields(span or (0, wire.source.size)):
            self.values[number].append(value)

    def integers(self, number: int) -> list[int]:
        """Return the integers of a field that is repeated, packed or not, as int64."""
        found: list[int] = []
        for value in self.values[number]:
            found += self.wire.varints(value) if isinstance(value, tuple) else (value,)
        return [n - 2**64 if n >= 2**63 else n for n in found]

    def spans(self, number: int) -> list[Span]:
        """Return where the bytes of a field lie, each time that it occurs."""
        return [value for value in self.values[number] if isinstance(value, tuple)]

    def messages(self, number: int) -> Iterator["Message"]:
        """Yield the messages in a field."""
        return (Message(self.wire, span) for span in self.spans(number))

    def texts(self, number: int) -> list[str]:
        """Return the texts of a field."""
        return [self.wire.text(span) for span in self.spans(number)]

    def integer(self, number: int) -> int:
        """Return the integer of a field, 0 if it is left out."""
        return next((n for n in reversed(self.values[number]) if isinstance(n, int)), 0)

    def text(self, number: int) -> str:
        """Return the text of a field, "" if it is left out."""
        return self.wire.text(self.spans(number)[-1]) if self.spans(number) else ""
